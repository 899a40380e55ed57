"""`g-ray data prepare`: bring a download in, extract what readers need, verify it, and freeze the view indices.

FOLDER/…                              the dataset in its own layout, unpacked or linked
FOLDER/iphone_frames/SCENE/…          ScanNet++: the registered frames of each video
FOLDER/indices/PROTOCOL.json          which frames are scored
FOLDER/.prepared/…                    what is done: the same command resumes
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
from g_ray_lab.datasets.scannetpp import extract_iphone_frames, list_scannetpp
from g_ray_lab.datasets.stored_frames import StoredImage
from g_ray_lab.preparation.unpack import NOTES, Report, bring_in
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.scoring.view_index import COVISIBILITY, INDICES, ViewIndex, freeze_views, write_view_index
from g_ray_lab.sources.scene_check import pick_evenly

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

    @property
    def broken(self) -> tuple[SceneCheck, ...]:
        return tuple(check for check in self.checks if check.wrong)


def prepare_dataset(
    name: str, source: Path, out: Path, report: Report, *, freeze: bool = True, probes: int = 3
) -> PreparedDataset:
    """Prepare one of DOWNLOADS; scenes that cannot be read are reported and left out. ValueError if there are none."""
    download = DOWNLOADS[name]
    bring_in(download, source, out, report)
    if name == "scannetpp":
        for scene in list_scannetpp(out):
            extract_iphone_frames(out, scene, report)
    checks = _verify(download, out, probes, report)
    indices = _freeze(name, checks, out, report) if freeze else {}
    digests = {key: index.digest for key, index in indices.items()}
    summary = {"dataset": name, "scenes": [asdict(check) for check in checks], "indices": digests}
    write_json(out / NOTES / "summary.json", summary)
    return PreparedDataset(tuple(checks), indices)


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


def _freeze(name: str, checks: list[SceneCheck], out: Path, report: Report) -> dict[str, ViewIndex]:
    """Freeze all protocols of which some scene is sound."""
    indices = {}
    for key, protocol in PROTOCOLS.items():
        sound = [check.scene for check in checks if check.dataset == protocol.dataset and not check.wrong]
        wanted = [scene for scene in sound if not protocol.scenes or scene in protocol.scenes]
        if DATASETS[protocol.dataset].download != name or not wanted:
            continue
        try:
            index = freeze_views(key, protocol, out, out / NOTES / COVISIBILITY, wanted, report)
        except ValueError as error:
            report(f"{key}: no views: {error}")
            continue
        write_view_index(out / INDICES / f"{key}.json", index)
        repeated = f", {index.repeated} sets with repeated frames" if index.repeated else ""
        report(
            f"{key}: {len(index.scenes)} of {len(protocol.scenes) or len(wanted)} scenes{repeated}; "
            f"index {index.digest[:16]}"
        )
        indices[key] = index
    return indices
