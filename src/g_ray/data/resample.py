"""Crops of the zoom protocol, beside the resampling that carries them out."""

from g_ray.rays.resample import Box, compute_resampling_weights, resample

__all__ = ["Box", "center_box", "compute_resampling_weights", "fit_box", "place_box", "resample"]


def center_box(width: float | int, height: float | int, zoom: float | int) -> Box:
    """The middle of an image that fills it again after a zoom by that factor."""
    if not zoom >= 1:
        raise ValueError(f"zoom {zoom} is below 1: an image cannot show what lies outside of it")
    across, down = width / (2 * zoom), height / (2 * zoom)
    return (width / 2 - across, height / 2 - down, width / 2 + across, height / 2 + down)


def fit_box(width: int, height: int, new_width: int, new_height: int, zoom: float | int = 1) -> Box:
    """The largest part in the middle of an image that has the shape of a new one, zoomed."""
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
    """A part of an image that has the shape of a new one, 1/zoom of the largest; `place` in [0, 1]² from the leftmost
    and topmost to the rightmost and lowest."""
    scale = min(width / new_width, height / new_height) / zoom
    across, down = scale * new_width, scale * new_height
    left, top = place[0] * (width - across), place[1] * (height - down)
    return (left, top, min(left + across, float(width)), min(top + down, float(height)))
