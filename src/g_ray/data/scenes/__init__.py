"""Folders of photographs with known cameras: nerfstudio's transforms.json and COLMAP's sparse models."""

from pathlib import Path

from g_ray.data.scenes.colmap import find_model, read_colmap
from g_ray.data.scenes.nerfstudio import TRANSFORMS, read_nerfstudio
from g_ray.data.scenes.scene import PosedScene

__all__ = ["PosedScene", "read_colmap", "read_nerfstudio", "read_scene"]


def read_scene(folder: Path) -> PosedScene:
    """Whatever the folder holds; transforms.json comes first, since nerfstudio keeps the COLMAP model that it has used.

    `scene.kind` says what was found and `scene.notes` what was left aside. ValueError in one line for anything that
    cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give one with transforms.json or a COLMAP model")
    if (folder / TRANSFORMS).is_file():
        return read_nerfstudio(folder)
    if find_model(folder) is not None:
        return read_colmap(folder)
    raise ValueError(
        f"{folder} is no scene folder: it has neither {TRANSFORMS} nor a COLMAP model in sparse/0 or sparse"
    )
