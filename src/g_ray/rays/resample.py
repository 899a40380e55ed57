"""Crop and resize an image and its camera together, in one resampling step, and choose what to crop."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera

CameraType = TypeVar("CameraType", bound=Camera)
Box = tuple[float, float, float, float]
"""left, top, right, bottom in pixels from the top-left corner; not necessarily whole ones."""


def resample(
    image: Float[Tensor, "*batch channel h w"],
    camera: CameraType,
    width: int,
    height: int,
    box: Sequence[float | int] | None = None,
) -> tuple[Float[Tensor, "*batch channel height width"], CameraType]:
    """Resample the part `box` of an image (all of it without one) to a new size, and its camera alike.

    Antialiased; the content of a pixel stays on its ray (appendix "Consistency under Image Resampling").
    """
    if image.shape[-2:] != (camera.height, camera.width):
        raise ValueError(
            f"image of {image.shape[-1]}×{image.shape[-2]} px, but its camera takes {camera.width}×{camera.height}: "
            "resize them together"
        )
    changed = camera.resize(width, height, box)
    return resample_image(image, width, height, box), changed


def resample_image(
    image: Float[Tensor, "*batch channel h w"],
    width: int,
    height: int,
    box: Sequence[float | int] | None = None,
) -> Float[Tensor, "*batch channel height width"]:
    """Resample the part `box` of an image to a new size."""
    rows, columns = image.shape[-2:]
    left, top, right, bottom = map(float, box or (0, 0, columns, rows))
    if (width, height) == (columns, rows) == (right, bottom) and (left, top) == (0, 0):
        return image  # the weights would be those of the identity
    across = compute_resampling_weights(columns, width, left, right).to(image)
    down = compute_resampling_weights(rows, height, top, bottom).to(image)
    # Separable: one matrix product per axis.
    return down @ image @ across.mT


def compute_resampling_weights(
    source: int, target: int, start: float, stop: float
) -> Float[Tensor, "target source"]:
    """Compute how much of each source pixel goes into each target pixel, along one axis.

    Target pixel i has its center at start + (i + ½) s with s = (stop − start)/target, source pixel j at j + ½. The
    filter is a triangle as wide as the coarser of both grids (Pillow's and torch's antialiased bilinear); pixels
    outside the box take part where it reaches them, and at the image's edge the rest is scaled to sum to 1.
    """
    step = (stop - start) / target
    target_centers = start + (torch.arange(target, dtype=torch.float64) + 0.5) * step
    source_centers = torch.arange(source, dtype=torch.float64) + 0.5
    # Enlarging (step < 1) interpolates between neighbors; shrinking averages over all that a target pixel covers.
    reach = max(1.0, step)
    triangle = (1 - (source_centers - target_centers[:, None]).abs() / reach).clamp(min=0)
    return triangle / triangle.sum(1, keepdim=True)


# Boxes to crop: in the middle, of a given shape, anywhere.


def center_box(width: float | int, height: float | int, zoom: float | int) -> Box:
    """Find the middle of an image that fills it again after a zoom by that factor."""
    if not zoom >= 1:
        raise ValueError(f"zoom {zoom} is below 1: an image cannot show what lies outside of it")
    across, down = width / (2 * zoom), height / (2 * zoom)
    return (width / 2 - across, height / 2 - down, width / 2 + across, height / 2 + down)


def fit_box(width: int, height: int, new_width: int, new_height: int, zoom: float | int = 1) -> Box:
    """Find the largest part in the middle of an image that has the shape of a new one, zoomed."""
    scale = min(width / new_width, height / new_height)
    left, top, right, bottom = center_box(scale * new_width, scale * new_height, zoom)
    right_by, down_by = (width - scale * new_width) / 2, (height - scale * new_height) / 2
    return (left + right_by, top + down_by, right + right_by, bottom + down_by)


def place_box(
    width: int,
    height: int,
    new_width: int,
    new_height: int,
    *,
    zoom: float | int = 1.0,
    place: tuple[float, float] = (0.5, 0.5),
) -> Box:
    """Find a part of an image that has the shape of a new one, 1/zoom of the largest.

    `place` in [0, 1]² is from the leftmost and topmost to the rightmost and lowest.
    """
    scale = min(width / new_width, height / new_height) / zoom
    across, down = scale * new_width, scale * new_height
    left, top = place[0] * (width - across), place[1] * (height - down)
    return (left, top, min(left + across, float(width)), min(top + down, float(height)))
