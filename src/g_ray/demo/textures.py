"""Solid textures: a pattern in space, cut by whatever surface passes through it. No image, no seam, no UV."""

from collections.abc import Callable
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

Pattern = Callable[[Float[Tensor, "point 3"]], Float[Tensor, "point"]]
"""Points (in units of the pattern) to a blend in [0, 1] between a surface's two colors."""


def plain(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Plaster: almost uniform, with faint clouds."""
    return 0.5 + 0.3 * _compute_clouds(points)


def checker(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    return points.floor().sum(-1).remainder(2)


def marble(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    veins = torch.sin(3 * points.sum(-1) + 5 * _compute_clouds(points))
    return (0.5 + 0.5 * veins) ** 2


def stripes(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    return _soft_step(torch.sin(2 * torch.pi * (points[..., 1] + 0.15 * points[..., 0])))


def dots(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Balls on a lattice."""
    return _soft_step(0.55 - 1.6 * (points - points.floor() - 0.5).norm(dim=-1))


def bricks(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Courses along y; x + z runs along every upright wall of a room, so its corners match."""
    course = (2 * points[..., 1]).floor()
    along = points[..., 0] + points[..., 2] + 0.5 * course.remainder(2)
    across = (2 * points[..., 1]).remainder(1)
    mortar = torch.minimum(_distance_to_integer(along), 0.5 * _distance_to_integer(across)) < 0.035
    tint = 0.35 * _hash(along.floor() + 57 * course)
    return torch.where(mortar, 1.0, tint)


def planks(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Boards along z, one unit wide and four long, each with its own tone and grain."""
    board = points[..., 0].floor()
    length = (points[..., 2] / 4 + _hash(board)).floor()
    grain = torch.sin(22 * points[..., 0] + 2.5 * _compute_clouds(points / 3) + 0.7 * points[..., 2])
    gap = _distance_to_integer(points[..., 0]) < 0.02
    return torch.where(gap, 1.0, 0.6 * _hash(board + 31 * length) + 0.08 * (1 + grain))


def waves(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Return a sine bent by another: nothing finer than about a third of a unit, so that a coarse image can show it."""
    main, bend = (points @ points.new_tensor([[0.8, -0.4], [0.5, 0.7], [-0.6, 0.5]])).unbind(-1)
    return 0.5 + 0.5 * torch.sin(2 * torch.pi * main + 1.2 * torch.sin(2 * torch.pi * bend))


PATTERNS: dict[str, Pattern] = {
    "plain": plain,
    "checker": checker,
    "marble": marble,
    "stripes": stripes,
    "dots": dots,
    "bricks": bricks,
    "planks": planks,
    "waves": waves,
}


def _compute_clouds(points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
    """Smooth noise in about (−1, 1): sines along incommensurate directions, each bent by the one before."""
    value = torch.zeros_like(points[..., 0])
    for octave in range(1, 5):
        scale = 1.7**octave
        direction = points.new_tensor([sqrt(2), sqrt(3 + octave), -sqrt(5)]).roll(octave)
        value = value + torch.sin(scale * (points @ direction) / 2 + 2 * value) / scale
    return value


def _soft_step(value: Tensor, sharpness: float = 12.0) -> Tensor:
    """Return a soft step, so that a pattern's border does not flicker between pixels."""
    return torch.sigmoid(sharpness * value)


def _distance_to_integer(value: Tensor) -> Tensor:
    """Distance to the nearest integer."""
    return (value - value.round()).abs()


def _hash(value: Tensor) -> Tensor:
    """Hash an integer to a number in [0, 1)."""
    return (torch.sin(value * 12.9898) * 43758.5453).remainder(1)
