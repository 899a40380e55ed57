"""Whether given poses explain the pictures: distances of matches to the epipolar lines of these poses."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.sfm.diagnosis import match_rays
from g_ray.sfm.pairs import Pair
from g_ray.sfm.scene import PoseAgreement
from g_ray.sfm.workspace import Workspace


def measure_agreement(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> PoseAgreement:
    """Compare the matches of all pairs, each verified by a relative pose of its own, with the given poses."""
    errors: list[Tensor] = []
    by_view: list[list[Tensor]] = [[] for _ in space.views]
    for pair, geometry in geometries.items():
        pose, other = (poses[index] for index in pair)
        if pose is None or other is None:
            continue
        density = [space.lenses[index].pixels_per_rad for index in pair]
        rays = match_rays(space, pair, geometry)
        error = measure_epipolar_px(*rays, other.inverse() @ pose, density[0], density[1])
        errors.append(error)
        for index in pair:
            by_view[index].append(error)
    limit = space.options.max_error_px
    everything = torch.cat(errors) if errors else torch.zeros(0, dtype=torch.float64)
    return PoseAgreement(
        len(everything),
        _compute_share(everything, limit),
        float(everything.median()) if len(everything) else float("nan"),
        tuple(_compute_share(torch.cat(part), limit) if part else float("nan") for part in by_view),
    )


def measure_epipolar_px(
    first: Float[Tensor, "n 3"],
    second: Float[Tensor, "n 3"],
    second_from_first: Pose,
    first_density: float,
    second_density: float,
) -> Float[Tensor, "n"]:
    """Sampson's distance on unit rays: d₂ᵀE d₁ over its change per pixel of both rays.

    Cameras in one place have no epipolar lines; there it is the angle between the rays.
    """
    rotation, shift = second_from_first.rotation, second_from_first.translation
    turned = first @ rotation.mT
    length = torch.linalg.vector_norm(shift)
    if float(length) < 1e-12:
        return torch.linalg.vector_norm(turned - second, dim=-1) * min(first_density, second_density)
    normal = torch.linalg.cross((shift / length).expand_as(turned), turned)
    back = torch.linalg.cross(second, (shift / length).expand_as(second)) @ rotation
    value = (second * normal).sum(-1)
    slope = (
        _remove_component(normal, second).square().sum(-1) / second_density**2
        + _remove_component(back, first).square().sum(-1) / first_density**2
    )
    return value.abs() / slope.sqrt().clamp(min=1e-12)


def _remove_component(vector: Tensor, unit: Tensor) -> Tensor:
    return vector - (vector * unit).sum(-1, keepdim=True) * unit


def _compute_share(errors: Tensor, limit: float) -> float:
    return float((errors < limit).double().mean()) if len(errors) else float("nan")
