"""Whether given poses explain the pictures: matches against their epipolar lines, tracks against their points."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.sfm.bundle import State, compute_residuals
from g_ray.sfm.diagnosis import match_rays
from g_ray.sfm.match_tracks import make_track_scene
from g_ray.sfm.pairs import Pair
from g_ray.sfm.refinement import arrange_frames, make_scene_problem, retriangulate
from g_ray.sfm.sfm_options import MAX_ERROR_PX
from g_ray.sfm.sparse_scene import PoseAgreement
from g_ray.sfm.workspace import Workspace

PARALLAX_PX = 4.0
"""Rays must differ by this much for the place where they meet to mean something."""


def measure_agreement(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> PoseAgreement:
    """Compare matches, whose pairs were verified by relative poses of their own, with the given poses."""
    limit = MAX_ERROR_PX
    epipolar = _measure_matches(space, geometries, poses)
    view, error = _measure_tracks(space, geometries, poses)
    return PoseAgreement(
        len(epipolar),
        _compute_share(epipolar, limit),
        _compute_median(epipolar),
        len(error),
        _compute_share(error, limit),
        _compute_median(error),
        tuple(_compute_share(error[view == index], limit) for index in range(len(poses))),
    )


FLIPPED = ((1.0, 0, 0, 0), (0, -1.0, 0, 0), (0, 0, -1.0, 0), (0, 0, 0, 1.0))
"""From OpenGL's camera axes (y up, z backward) to OpenCV's."""
CLEAR_LEAD = 0.2
"""A reading of the poses must explain so many more of the matches."""


def explain_contradiction(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None], good: float
) -> str | None:
    """Find a reading of given poses that explains a share `good` of the matches, and clearly more than they do."""
    posed = [index for index, pose in enumerate(poses) if pose is not None]
    limit = MAX_ERROR_PX

    def measure(changed: Sequence[Pose | None]) -> float:
        return _compute_share(_measure_matches(space, geometries, changed), limit)

    flip = Pose(torch.tensor(FLIPPED, dtype=torch.float64))
    readings: dict[str, Sequence[Pose | None]] = {
        "they are cam_from_world: give their inverse": [pose and pose.inverse() for pose in poses],
        "their axes are OpenGL's (y up, z backward)": [pose and pose @ flip for pose in poses],
    }
    for step in (1, -1):
        moved = dict(zip(posed, [*posed[step:], *posed[:step]], strict=True))
        first, owner = (space.views[index].name for index in (moved[posed[0]], posed[0]))
        readings[f"they are shifted by one view: the pose of {first} belongs to {owner}"] = [
            poses[moved[index]] if index in moved else None for index in range(len(poses))
        ]
    best = max(readings, key=lambda name: measure(readings[name]))
    share = measure(readings[best])
    return best if share >= max(good, measure(poses) + CLEAR_LEAD) else None


def _measure_matches(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> Float[Tensor, "match"]:
    """Distances to epipolar lines in working pixels."""
    errors = [torch.zeros(0, dtype=torch.float64)]
    for pair, geometry in geometries.items():
        pose, other = (poses[index] for index in pair)
        if pose is None or other is None:
            continue
        density = [space.lenses[index].pixels_per_rad for index in pair]
        rays = match_rays(space, pair, geometry)
        errors.append(measure_epipolar_px(*rays, other.inverse() @ pose, density[0], density[1]))
    return torch.cat(errors)


def _measure_tracks(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> tuple[Int[Tensor, "observation"], Float[Tensor, "observation"]]:
    """Views and reprojection errors in working pixels of all tracks, with the points that fit the poses best."""
    scene = make_track_scene(space, geometries, poses)
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, space.options, frames)
    fitted = retriangulate(scene, problem, frames, space.options)
    state = State(frames.compute_frame_poses(fitted), fitted.points)
    return scene.tracks.view, torch.linalg.vector_norm(compute_residuals(problem, state), dim=-1)


def measure_epipolar_px(
    first: Float[Tensor, "n 3"],
    second: Float[Tensor, "n 3"],
    second_from_first: Pose,
    first_density: float,
    second_density: float,
) -> Float[Tensor, "n"]:
    """Sampson's distance on unit rays: d₂ᵀE d₁ over its change per pixel of both rays.

    Cameras in one place have no epipolar lines; there it is the angle between the rays. Rays that meet behind a
    camera are infinitely far off.
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
    error = value.abs() / slope.sqrt().clamp(min=1e-12)
    ahead = _meet_ahead(turned, second, shift, PARALLAX_PX / min(first_density, second_density))
    return torch.where(ahead, error, torch.inf)


def _meet_ahead(
    first: Float[Tensor, "n 3"], second: Float[Tensor, "n 3"], shift: Float[Tensor, "3"], least_rad: float
) -> Bool[Tensor, "n"]:
    """Whether s·first + shift = u·second has s, u > 0; true for rays that are parallel within `least_rad`."""
    across = torch.linalg.cross(first, second)
    way = shift.expand_as(first)
    s = -(torch.linalg.cross(way, second) * across).sum(-1)
    u = -(torch.linalg.cross(way, first) * across).sum(-1)
    parallel = torch.linalg.vector_norm(across, dim=-1) < least_rad
    return parallel | ((s > 0) & (u > 0))


def _remove_component(vector: Tensor, unit: Tensor) -> Tensor:
    return vector - (vector * unit).sum(-1, keepdim=True) * unit


def _compute_median(errors: Tensor) -> float:
    return float(errors.median()) if len(errors) else float("nan")


def _compute_share(errors: Tensor, limit: float) -> float:
    return float((errors < limit).double().mean()) if len(errors) else float("nan")
