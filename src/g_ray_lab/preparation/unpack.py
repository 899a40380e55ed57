"""Bring a download into a folder: archives are unpacked, folders that are unpacked already are linked.

What is done is noted in FOLDER/.prepared, so that an interrupted run resumes. An archive is unpacked into a scratch
folder first: a file of the dataset is there whole or not at all.
"""

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from g_ray.runtime.files import write_json
from g_ray_lab.datasets.evaluation_scene import Download

NOTES = ".prepared"
TAR = (".tgz", ".tar", ".gz")
Report = Callable[[str], None]


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
        _move_into(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_json(note, state)


def _unpack(archive: Path, target: Path) -> None:
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as file:
                for name in file.namelist():
                    _check_inside(archive, name)
                file.extractall(target)
        elif archive.suffix in TAR:
            with tarfile.open(archive) as file:
                file.extractall(target, filter="data")
        else:
            _unpack_7z(archive, target)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive}: cannot be unpacked ({error}); download it again") from None


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


def _move_into(scratch: Path, target: Path) -> None:
    """Move files into a folder that may have some of the same folders: archives of a scene complete each other."""
    for path in sorted(path for path in scratch.rglob("*") if path.is_file()):
        place = target / path.relative_to(scratch)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)


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
