"""Pointmaps: a point and a confidence for every pixel, and how a network's raw numbers become them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def linear(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    return raw


def inverse_log(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    """sign(y) (e^|y| − 1): far points from small numbers, in any direction (VGGT's points). Slope 1 at zero."""
    return torch.where(raw < 0, -torch.expm1(-raw), torch.expm1(raw))


def exponential(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    """e^y, positive (VGGT's depth)."""
    return raw.exp()


def depth_first(raw: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
    """(xz, yz, z) with z = e^y₂ (Pi3's points): in front of the camera only, so for fields of view below 180°."""
    depth = raw[..., 2:].exp()
    return torch.cat([raw[..., :2] * depth, depth], -1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": linear,
    "inverse_log": inverse_log,
    "exponential": exponential,
    "depth_first": depth_first,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}: choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class Pointmap:
    """Points (or depths, with one channel) and confidences of at least 1 for every pixel."""

    points: Float[Tensor, "*image h w channel"]
    confidence: Float[Tensor, "*image h w"]

    @classmethod
    def from_raw(
        cls, raw: Float[Tensor, "*image h w raw"], activate: Callable[[Tensor], Tensor]
    ) -> "Pointmap":
        """All channels but the last through an activation; confidence 1 + e^c from the last."""
        return cls(activate(raw[..., :-1]), 1 + raw[..., -1].exp())
