"""Crops of the zoom protocol, beside the resampling that carries them out."""

from g_ray.rays.resample import Box, resample, weights

__all__ = ["Box", "centre_box", "resample", "weights"]


def centre_box(width: int, height: int, zoom: float | int) -> Box:
    """The middle of an image that fills it again after a zoom by that factor."""
    if not zoom >= 1:
        raise ValueError(f"zoom {zoom} is below 1: an image cannot show what lies outside of it")
    across, down = width / (2 * zoom), height / (2 * zoom)
    return (width / 2 - across, height / 2 - down, width / 2 + across, height / 2 + down)
