"""Validation of camera parameters, with one-line errors (what is wrong, where, and what to do), and random examples."""

import math
import random

import torch
from torch import Tensor

from g_ray.cameras.distortion import critical_angle, rho


def checks_enabled() -> bool:
    """Tell whether values may be checked: checks read values, which a compiled graph cannot."""
    return not torch.compiler.is_compiling()


def check_sizes(name: str, width: int, height: int) -> None:
    if isinstance(width, bool) or not isinstance(width, int) or not isinstance(height, int):
        raise ValueError(
            f"{name}: image size {width!r} x {height!r} is not made of integers; give width and height in pixels"
        )
    if width <= 0 or height <= 0:
        raise ValueError(
            f"{name}: image size {width}x{height} is not positive; give width and height in pixels"
        )


def check_box(name: str, box: tuple[float, float, float, float], width: int, height: int) -> None:
    left, top, right, bottom = box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(
            f"{name}: box {box} is empty or leaves the {width}x{height} image; "
            "give (left, top, right, bottom) inside it"
        )


def check_parameters(name: str, names: tuple[str, ...], params: Tensor) -> None:
    if not params.is_floating_point():
        raise ValueError(f"{name}: params are {params.dtype}; give a float32 or float64 tensor")
    if params.ndim == 0 or params.shape[-1] != len(names):
        raise ValueError(
            f"{name}: params of shape {tuple(params.shape)}; the last dimension must hold "
            f"{len(names)} numbers: {' '.join(names)}"
        )
    check_values(
        name, names, params, torch.isfinite(params), "is not finite; check the calibration it came from"
    )
    check_values(
        name,
        names[:2],
        params[..., :2],
        params[..., :2] > 0,
        "is not positive; give the focal length in pixels",
    )


def check_values(name: str, names: tuple[str, ...], values: Tensor, is_good: Tensor, problem: str) -> None:
    """Raise for the first parameter (and batch element) that is not good."""
    if bool(is_good.all()):
        return
    *batch, column = (int(i) for i in (~is_good).nonzero()[0])
    where = f" of batch element {tuple(batch)}" if batch else ""
    raise ValueError(f"{name}: {names[column]} = {values[(*batch, column)].item():g}{where} {problem}")


def compute_nearest_edge_distance(params: Tensor, width: int, height: int) -> Tensor:
    """Compute the distance on the normalized plane from the principal point to the nearest image edge; negative if
    outside."""
    fx, fy, cx, cy = params[..., 0:4].unbind(-1)
    return torch.stack([cx / fx, (width - cx) / fx, cy / fy, (height - cy) / fy], -1).amin(-1)


def check_fold(name: str, fold_radius: Tensor, edge: Tensor, where: str) -> None:
    """Refuse a radial function that turns around before it reaches the nearest edge of the image."""
    folded = fold_radius < edge
    if not bool(folded.any()):
        return
    index = tuple(int(i) for i in folded.nonzero()[0])
    share = fold_radius[index].item() / edge[index].item()
    raise ValueError(
        f"{name}: the distortion polynomial folds back at {where}, {share:.0%} of the way from the principal "
        f"point to the nearest image edge{f' in batch element {index}' if index else ''}; "
        "check the order and signs of the coefficients, or crop the image"
    )


def check_angle_fold(name: str, params: Tensor, k: Tensor, width: int, height: int) -> None:
    """Refuse a fisheye whose ρ(ψ) turns around before 90° and before the nearest image edge.

    A turning point past 90° belongs to a circular image with black corners, which is legitimate.
    """
    angle = critical_angle(k)
    edge = compute_nearest_edge_distance(params, width, height).masked_fill(angle >= math.pi / 2, -1.0)
    radius = rho(angle, k)
    first = torch.rad2deg(angle)[radius < edge]
    check_fold(name, radius, edge, f"{first[0].item():.1f}° from the optical axis" if len(first) else "")


# Random but sensible parameters for `Camera.example`.


class ParameterSampler:
    """Uniform numbers from a seed: ``draw = ParameterSampler(seed, width, height)``, then ``draw(low, high)``."""

    def __init__(self, seed: int, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._random = random.Random(seed)

    def __call__(self, low: float | int, high: float | int) -> float:
        return self._random.uniform(low, high)

    def sample_intrinsics(self, low: float | int, high: float | int) -> dict[str, float]:
        """Draw fx, fy between low and high image widths, and a principal point near the middle."""
        f = self(low, high) * self.width
        return {
            "fx": f,
            "fy": f * self(0.95, 1.05),
            "cx": self.width * self(0.45, 0.55),
            "cy": self.height * self(0.45, 0.55),
        }
