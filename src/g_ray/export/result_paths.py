"""Where the files of a view are in the folder of a reconstruction, and which names of views allow it."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from g_ray.formats.posed_scene import resolve_inside

WRITABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
"""Suffixes of photographs that are stored under their own name; others become NAME.png."""


MAX_NAME_BYTES = 255 - 10
"""Longest part of a path: what file systems take, less what `atomic_path` adds while it writes."""
MAX_PATH_BYTES = 4000


def make_image_name(name: str) -> str:
    """Return the name of a view's photograph below images/."""
    return name if PurePosixPath(name).suffix.lower() in WRITABLE else f"{name}.png"


def get_image_path(folder: Path, name: str) -> Path:
    """Return the path of a view's photograph."""
    return _resolve_below(folder / "images", name, make_image_name(name))


def get_depth_path(folder: Path, name: str, suffix: str = ".npz") -> Path:
    """Return the path of a view's depth."""
    return _resolve_below(folder / "depth", name, f"{name}{suffix}")


def check_view_names(folder: Path, names: Sequence[str]) -> None:
    """Check that all files of views can be stored; ValueError names the first view whose name does not allow it."""
    stored: dict[Path, str] = {}
    for name in names:
        for path in (get_image_path(folder, name), get_depth_path(folder, name)):
            too_long = max(len(os.fsencode(part)) for part in path.parts) > MAX_NAME_BYTES
            if too_long or len(os.fsencode(path.absolute())) > MAX_PATH_BYTES:
                raise ValueError(f"the name of {name[:40]}… is too long to be stored: rename the photograph")
            if path in stored:
                raise ValueError(
                    f"{stored[path]} and {name} would both be stored as {path.name}: rename one of them"
                )
            stored[path] = name


def _resolve_below(folder: Path, name: str, file: str) -> Path:
    if name != str(PurePosixPath(name)) or "\\" in name or name == ".":
        raise ValueError(f"view name {name!r} is not a plain path; write it as folder/file.jpg")
    return resolve_inside(folder, file)
