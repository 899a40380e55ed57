"""A contact sheet of rendered objects: are textures in their places, do variants do what they should?"""

from pathlib import Path

import numpy as np
from PIL import Image

from g_ray.formats.objaverse import DOLLY, FOCAL, NATIVE, find_objects, format_image_name, read_image

COLUMNS = ((0, NATIVE), (0, FOCAL), (0, DOLLY), (2, NATIVE), (4, NATIVE), (6, NATIVE))
"""Direction and kind: one direction in all its kinds, then around the object."""


def draw_object_sheet(root: Path, count: int) -> Image.Image:
    """A row per object, evenly chosen from all."""
    names = find_objects(root)
    if not names or count < 1:
        raise ValueError(f"{count} of {len(names)} objects in {root}: nothing to show")
    chosen = [names[i] for i in np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)]
    rows = [np.concatenate(_make_row(root / name), axis=1) for name in chosen]
    return Image.fromarray(np.concatenate(rows, axis=0))


def _make_row(folder: Path) -> list[np.ndarray]:
    images = [read_image(folder / "views" / format_image_name(*column)) for column in COLUMNS]
    return [image.movedim(0, -1).numpy() for image in images]
