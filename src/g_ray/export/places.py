"""Where a view's files are in the folder of a result. Names keep their sub-folders and lead nowhere else."""

from pathlib import Path, PurePosixPath

from g_ray.data.scenes.scene import inside

WRITABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
"""Photographs that are stored under their own name; others become NAME.png."""


def image_name(name: str) -> str:
    """Of a view's photograph, below images/."""
    return name if PurePosixPath(name).suffix.lower() in WRITABLE else f"{name}.png"


def image_path(folder: Path, name: str) -> Path:
    return _below(folder / "images", name, image_name(name))


def depth_path(folder: Path, name: str, suffix: str = ".npz") -> Path:
    return _below(folder / "depth", name, f"{name}{suffix}")


def _below(folder: Path, name: str, file: str) -> Path:
    if name != str(PurePosixPath(name)) or "\\" in name or name == ".":
        raise ValueError(f"view name {name!r} is not a plain path; write it as folder/file.jpg")
    return inside(folder, file)
