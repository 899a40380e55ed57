"""Rotations as unit quaternions (x, y, z, w), the real part last (as VGGT, SciPy and ROS)."""

import torch
from jaxtyping import Float
from torch import Tensor


def rotation_from_quaternion(quaternion: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    """R of q/‖q‖, so that any non-zero output of a network is a rotation; q and −q give the same one."""
    x, y, z, w = torch.nn.functional.normalize(quaternion, dim=-1).unbind(-1)
    rows = [
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    ]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def quaternion_from_rotation(rotation: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    """The unit quaternion of R with w ≥ 0.

    Row i of the matrix below is 4 qᵢ q: the one with the largest diagonal, 4 qᵢ² ≥ 1, loses no digits.
    """
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = rotation.flatten(-2).unbind(-1)
    rows = [
        (1 + m00 - m11 - m22, m10 + m01, m20 + m02, m21 - m12),
        (m10 + m01, 1 - m00 + m11 - m22, m21 + m12, m02 - m20),
        (m20 + m02, m21 + m12, 1 - m00 - m11 + m22, m10 - m01),
        (m21 - m12, m02 - m20, m10 - m01, 1 + m00 + m11 + m22),
    ]
    outer = torch.stack([torch.stack(row, -1) for row in rows], -2)
    best = outer.diagonal(dim1=-2, dim2=-1).argmax(-1)
    row = outer.gather(-2, best[..., None, None].expand(*best.shape, 1, 4))[..., 0, :]
    quaternion = torch.nn.functional.normalize(row, dim=-1)
    return torch.where(quaternion[..., 3:] < 0, -quaternion, quaternion)
