"""`g-ray data prepare`: bring a download in, extract what readers need, verify it, and freeze the view indices.

FOLDER/…                              the dataset in its own layout, unpacked or linked
FOLDER/iphone_frames/SCENE/…          ScanNet++: the registered frames of each video
FOLDER/indices/PROTOCOL.json          which frames are scored
FOLDER/.prepared/…                    what is done: the same command resumes
"""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from g_ray.media.images import read_photo_size
from g_ray.runtime.files import write_json
from g_ray_lab.datasets.dataset_registry import DATASETS, DOWNLOADS
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    Download,
    EvaluationFrame,
    EvaluationScene,
    Framing,
)
from g_ray_lab.datasets.scannetpp import FRAMES, extract_iphone_frames, list_scannetpp
from g_ray_lab.datasets.stored_frames import StoredImage
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.view_index import COVISIBILITY, INDICES, ViewIndex, freeze_views, write_view_index
from g_ray_lab.sources.scene_check import pick_evenly

NOTES = ".prepared"
TAR = (".tgz", ".tar", ".gz")
Report = Callable[[str], None]
NAMED = 3
"""Mistakes of a scene that are named."""


@dataclass(frozen=True)
class SceneCheck:
    """What was found in a scene; it is sound if nothing is wrong."""

    dataset: str
    scene: str
    frames: int
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedDataset:
    """What a prepared folder holds."""

    checks: tuple[SceneCheck, ...]
    indices: dict[str, ViewIndex]
    unfrozen: tuple[str, ...] = ()
    """Protocols without views of a sound scene, e.g. because a published list of frames is missing."""

    @property
    def broken(self) -> tuple[SceneCheck, ...]:
        return tuple(check for check in self.checks if check.wrong)


def prepare_dataset(
    name: str, source: Path, out: Path, report: Report, *, freeze: bool = True, probes: int = 3
) -> PreparedDataset:
    """Prepare one of DOWNLOADS; scenes that cannot be read are reported and left out. ValueError if there are none."""
    download = DOWNLOADS[name]
    bring_in(download, source, out, report)
    for written in (FRAMES, INDICES):
        replace_links(out / written, out)
    if name == "scannetpp":
        for scene in list_scannetpp(out):
            replace_links(out / FRAMES / scene, out)
            extract_iphone_frames(out, scene, report)
    checks = _verify(download, out, probes, report)
    indices, unfrozen = _freeze(name, checks, out, report) if freeze else ({}, ())
    digests = {key: index.digest for key, index in indices.items()}
    summary = {"dataset": name, "scenes": [asdict(check) for check in checks], "indices": digests}
    write_json(out / NOTES / "summary.json", {**summary, "unfrozen": unfrozen})
    return PreparedDataset(tuple(checks), indices, unfrozen)


def _verify(download: Download, out: Path, probes: int, report: Report) -> list[SceneCheck]:
    checks: list[SceneCheck] = []
    for key, dataset in DATASETS.items():
        if dataset.download == download.name:
            root = dataset.find_root(out)
            scenes = _verify_scenes(key, dataset, root, out / NOTES, probes, report) if root.is_dir() else []
            report(f"{key}: {sum(not check.wrong for check in scenes)} of {len(scenes)} scenes are sound")
            checks += scenes
    if not checks:
        raise ValueError(
            f"{out}: no scene of {download.title}; expected paths like {', '.join(download.layout[:2])}"
        )
    return checks


def _verify_scenes(
    name: str, dataset: Dataset, root: Path, notes: Path, probes: int, report: Report
) -> list[SceneCheck]:
    """Check all scenes that are there; those that were sound before and have not changed are not opened again.

    Image and depth are read of `probes` frames per scene, of all if it is 0; files and image sizes are checked of all.
    """
    checks = []
    for scene_name in dataset.list_scenes(root):
        try:
            scene = dataset.read(root, scene_name)
        except (ValueError, OSError) as error:
            checks.append(SceneCheck(name, scene_name, 0, (str(error),)))
        else:
            checks.append(_verify_once(scene, notes, probes))
        for text in checks[-1].wrong:
            report(f"{name}, {scene_name}: {text}")
    return checks


def _verify_once(scene: EvaluationScene, notes: Path, probes: int) -> SceneCheck:
    note = (
        notes / "verified" / f"{scene.dataset}--{scene.name.replace('/', '--')}--{scene.fingerprint()}.json"
    )
    probed, wrong = probes or len(scene), ()
    if not note.is_file() or json.loads(note.read_text())["probed"] < probed:
        wrong = tuple(_find_mistakes(scene, probes))
        if not wrong:
            write_json(note, {"frames": len(scene), "probed": probed})
    return SceneCheck(scene.dataset, scene.name, len(scene), wrong)


def _find_mistakes(scene: EvaluationScene, probes: int) -> list[str]:
    """Look for missing files, images of another size, and frames that cannot be read; a sentence each."""
    missing = list(dict.fromkeys(scene.list_missing_files()))
    if missing:
        some = ", ".join(str(path) for path in missing[:NAMED]) + (", …" if len(missing) > NAMED else "")
        return [f"{len(missing)} files are missing: {some}"]
    wrong = [text for frame in scene.frames if (text := _check_size(frame))]
    if wrong:
        return wrong[:NAMED]
    for place in pick_evenly(range(len(scene)), probes):
        frame = scene.frames[place]
        try:
            view = frame.load_view(Framing.fit(frame.camera, 64, 48))
        except (ValueError, OSError) as error:
            return [str(error)]
        if frame.depth is not None and not bool(view.valid.any()):
            wrong.append(f"{frame.name}: no pixel with true depth")
    return wrong


def _check_size(frame: EvaluationFrame) -> str:
    """Compare the size in an image's header with its camera's, without decoding the image."""
    image, camera = frame.image, frame.camera
    if not isinstance(image, StoredImage):
        return ""
    try:
        size = read_photo_size(image.path)
    except OSError as error:
        return str(error)
    expected = (camera.height, camera.width) if image.turns % 2 else (camera.width, camera.height)
    if size == expected:
        return ""
    return f"{image.path} is {size[0]}×{size[1]} px, but its camera takes {expected[0]}×{expected[1]}"


def _freeze(
    name: str, checks: list[SceneCheck], out: Path, report: Report
) -> tuple[dict[str, ViewIndex], tuple[str, ...]]:
    """Freeze all protocols of which some scene is sound; return also those that lack views of a sound scene."""
    indices, unfrozen = {}, []
    for key, protocol in PROTOCOLS.items():
        sound = [check.scene for check in checks if check.dataset == protocol.dataset and not check.wrong]
        wanted = [scene for scene in sound if not protocol.scenes or scene in protocol.scenes]
        if DATASETS[protocol.dataset].download != name or not wanted:
            continue
        try:
            index = freeze_views(key, protocol, out, out / NOTES / COVISIBILITY, wanted, report)
        except ValueError as error:
            report(f"{key}: no views: {error}")
            unfrozen.append(key)
            continue
        write_view_index(out / INDICES / f"{key}.json", index)
        repeated = f", {index.repeated} sets with repeated frames" if index.repeated else ""
        report(
            f"{key}: {len(index.scenes)} of {len(protocol.scenes) or len(wanted)} scenes{repeated}; "
            f"index {index.digest[:16]}"
        )
        indices[key] = index
        if set(wanted) & set(index.missing):
            unfrozen.append(key)
    return indices, tuple(unfrozen)


# Bring a download into a folder: archives are unpacked, folders that are unpacked already are linked
#
# What is done is noted in FOLDER/.prepared, so that an interrupted run resumes. An archive is unpacked into a scratch
# folder first: a file of the dataset is there whole or not at all. Nothing is written below a link: what it leads to is
# the user's.


def bring_in(download: Download, source: Path, out: Path, report: Report) -> None:
    """Unpack or link everything of a download that is not there yet."""
    if not source.is_dir():
        raise ValueError(f"{source}: no such folder; give the one with the downloaded files")
    out.mkdir(parents=True, exist_ok=True)
    archives = sorted(
        {path for pattern in download.archives for path in source.glob(pattern) if path.is_file()}
    )
    for archive in archives:
        _unpack_once(archive, out, out / NOTES, report)
    if source.resolve() != out.resolve():
        _link_entries(source, out, download.real_levels, skip=set(archives))
    for archive in sorted(path for pattern in download.nested for path in out.glob(pattern)):
        if not archive.with_suffix("").is_dir():
            _unpack_once(archive, archive.parent, out / NOTES, report)


def _unpack_once(archive: Path, target: Path, notes: Path, report: Report) -> None:
    note = notes / "unpacked" / f"{archive.parent.name}--{archive.name}.json"
    state = {"bytes": archive.stat().st_size}
    if note.is_file() and json.loads(note.read_text()) == state:
        return
    report(f"unpacking {archive.name}")
    scratch = notes / "unpacking"
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed run left behind
    scratch.mkdir(parents=True)
    try:
        _unpack(archive, scratch)
        _move_into(scratch, target, notes.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_json(note, state)


def _unpack(archive: Path, target: Path) -> None:
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as file:
                for name in file.namelist():
                    _check_inside(archive, name)
                _check_room(archive, sum(info.file_size for info in file.infolist()), target)
                file.extractall(target)
        elif archive.suffix in TAR:
            with tarfile.open(archive) as file:
                for member in file:
                    _check_room(archive, member.size, target)
                    file.extract(member, target, filter="data")
        else:
            _unpack_7z(archive, target)
    except (zipfile.BadZipFile, zlib.error, tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive}: cannot be unpacked ({error}); download it again") from None
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or compressed by another method
        raise ValueError(
            f"{archive}: cannot be unpacked ({error}); unpack it with its own program, and give the folder"
        ) from None


def _check_room(archive: Path, size: int, target: Path) -> None:
    """Refuse to unpack more than the disk takes, before it is full."""
    free = shutil.disk_usage(target).free
    if size > free:
        raise ValueError(
            f"{archive}: its content needs {size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free at {target}; "
            "give another folder, or download it again if that is implausible"
        )


def _check_inside(archive: Path, name: str) -> None:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError(f"{archive}: path {name!r} leads out of the archive; download it again")


def _unpack_7z(archive: Path, target: Path) -> None:
    """Use the 7-Zip program: Python's library cannot."""
    program = shutil.which("7z") or shutil.which("7zz")
    if program is None:
        raise ValueError(
            f"{archive}: 7-Zip is not installed (apt-get install p7zip-full); or unpack it with 7z x"
        )
    done = subprocess.run([program, "x", "-y", f"-o{target}", str(archive)], capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ValueError(f"{archive}: cannot be unpacked ({reason}); download it again")


def _move_into(scratch: Path, target: Path, root: Path) -> None:
    """Move files into a folder that may have some of the same folders: archives of a scene complete each other."""
    for path in sorted(path for path in scratch.rglob("*") if path.is_file()):
        place = target / path.relative_to(scratch)
        replace_links(place.parent, root)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)  # replaces a link to a file, and not the file


def replace_links(folder: Path, root: Path) -> None:
    """Replace links to folders on the way from `root` to `folder` by folders that link to the same entries.

    What is written to `folder` then stays below `root`, and the folders that were linked are left as they are.
    """
    for place in reversed([folder, *folder.parents][: len(folder.relative_to(root).parts)]):
        if not (place.is_symlink() and place.is_dir()):
            continue
        (root / NOTES).mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root / NOTES) as scratch:
            filled = Path(scratch) / place.name
            filled.mkdir()
            _link_entries(place.resolve(), filled, 0, set())
            place.unlink()
            filled.rename(place)


def _link_entries(source: Path, out: Path, levels: int, skip: set[Path]) -> None:
    """Link what lies in a folder; folders of the first levels are made, and what lies in them is linked."""
    for path in sorted(source.iterdir()):
        place = out / path.name
        if path in skip or path.name == NOTES or path.resolve() == out.resolve():
            continue
        if path.is_dir() and (levels > 0 or (place.is_dir() and not place.is_symlink())):
            place.mkdir(exist_ok=True)
            _link_entries(path, place, max(0, levels - 1), set())
        elif not place.exists():
            place.symlink_to(path.resolve(), target_is_directory=path.is_dir())
