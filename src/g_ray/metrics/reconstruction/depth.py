"""Depth of camera-space points, with a channel, so that it is compared as points are."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

DepthName = Literal["z", "ray"]
"""The paper takes z on PandaSet and ETH3D, and the distance along the ray where fisheyes take part (ScanNet++)."""


def compute_depth(camera_points: Float[Tensor, "*shape 3"], kind: DepthName) -> Float[Tensor, "*shape 1"]:
    """z-depth, the component along the optical axis, or ray depth, the distance from the camera."""
    if kind == "z":
        return camera_points[..., 2:]
    if kind == "ray":
        return torch.linalg.vector_norm(camera_points, dim=-1, keepdim=True)
    raise ValueError(
        f"unknown depth {kind!r}: choose z (along the optical axis) or ray (along the viewing ray)"
    )
