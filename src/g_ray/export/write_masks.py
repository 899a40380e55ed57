"""Masks beside the exported photographs, for tools whose lens models know no image circle.

OUT/masks/NAME.png, of the photograph's size: 0 where a pixel has no ray or is masked out, 255 elsewhere. The names are
COLMAP's (images/a.jpg has masks/a.jpg.png); transforms.json names them as `mask_path`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.export.result import make_image_name
from g_ray.media.view import View
from g_ray.runtime.files import atomic_path

MASKS = "masks"
STRIDE = 16
"""Pixels between those that are tried first: most lenses have a ray everywhere, and photographs are large."""
ROWS = 64
"""Rows whose rays are computed at once."""


def get_mask_path(folder: Path, name: str) -> Path:
    """Return where the mask of a photograph is, if it has one."""
    return folder / MASKS / f"{make_image_name(name)}.png"


def write_masks(folder: Path, views: Sequence[View]) -> None:
    """Write the masks of views that have pixels without a ray, or a mask; masks that are there already are kept."""
    rays: dict[int, Bool[Tensor, "h w"] | None] = {}
    for view in views:
        path = get_mask_path(folder, view.name)
        if path.is_file():
            continue
        if id(view.camera) not in rays:
            rays[id(view.camera)] = find_rays(view.camera)
        parts = [part for part in (rays[id(view.camera)], view.load_mask()) if part is not None]
        if parts:
            used = torch.stack([part.cpu() for part in parts]).all(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as scratch:
                Image.fromarray(used.numpy().astype(np.uint8) * 255).save(scratch, format="PNG")


def find_rays(camera: Camera) -> Bool[Tensor, "h w"] | None:
    """Return which pixels have a ray; None if all have."""
    width, height = camera.width, camera.height
    columns = torch.arange(width, dtype=camera.dtype, device=camera.device) + 0.5
    rows = torch.arange(height, dtype=camera.dtype, device=camera.device) + 0.5
    coarse = torch.cartesian_prod(_thin(columns), _thin(rows))
    if bool(camera.unproject(coarse)[1].all()):
        return None
    parts = []
    for block in rows.split(ROWS):
        v, u = torch.meshgrid(block, columns, indexing="ij")
        parts.append(camera.unproject(torch.stack([u, v], -1))[1])
    valid = torch.cat(parts)
    return None if bool(valid.all()) else valid


def _thin(values: Tensor) -> Tensor:
    """Every few values, the first and the last among them: corners are the farthest from the center."""
    return torch.cat([values[::STRIDE], values[-1:]])
