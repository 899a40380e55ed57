"""Where a view's files are in the folder of a result. Names keep their sub-folders and lead nowhere else."""

from pathlib import Path, PurePosixPath

from g_ray.formats.scene import resolve_inside

WRITABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
"""Photographs that are stored under their own name; others become NAME.png."""


def make_image_name(name: str) -> str:
    """Of a view's photograph, below images/."""
    return name if PurePosixPath(name).suffix.lower() in WRITABLE else f"{name}.png"


def get_image_path(folder: Path, name: str) -> Path:
    return _resolve_below(folder / "images", name, make_image_name(name))


def get_depth_path(folder: Path, name: str, suffix: str = ".npz") -> Path:
    return _resolve_below(folder / "depth", name, f"{name}{suffix}")


def _resolve_below(folder: Path, name: str, file: str) -> Path:
    if name != str(PurePosixPath(name)) or "\\" in name or name == ".":
        raise ValueError(f"view name {name!r} is not a plain path; write it as folder/file.jpg")
    return resolve_inside(folder, file)
