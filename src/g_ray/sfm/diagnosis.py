"""Why photographs cannot be used: errors for all of them, reasons for single ones."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.formats.colmap.colmap_cameras import CannotMatch
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.sfm.bundle import State, compute_residuals
from g_ray.sfm.mapping import make_track_scene
from g_ray.sfm.pairs import Pair
from g_ray.sfm.refinement import arrange_frames, make_scene_problem, retriangulate
from g_ray.sfm.sfm_options import MAX_ERROR_PX, MIN_INLIERS
from g_ray.sfm.sparse_scene import PoseAgreement
from g_ray.sfm.workspace import Workspace, hash_view


class NothingMatches(CannotMatch):
    """No two photographs can be oriented by their matches."""


ROTATION_SHARE = 0.9
"""A pair has no parallax if a rotation alone explains at least this share of its matches."""
ROTATION_PX = 1.5
"""… to this many working pixels."""
ROUNDS = 8


def check_views(views: Sequence[View]) -> list[str]:
    """Raise ValueError where no reconstruction is possible; return notes about photographs given twice."""
    if len(views) < 2:
        raise ValueError(
            f"{len(views)} photograph: poses and points need two or more, taken from different places"
        )
    first: dict[str, str] = {}
    twice = []
    for view in views:
        name = first.setdefault(hash_view(view), view.name)
        if name != view.name:
            twice.append(f"{view.name} is the same photograph as {name}")
    if len(first) == 1:
        raise CannotMatch(
            f"all {len(views)} photographs are identical: no parallax, depth cannot be computed; "
            "give photographs from different places"
        )
    return twice


def check_matches(space: Workspace, geometries: Mapping[Pair, Any]) -> None:
    """Raise ValueError where photographs share nothing or were all taken from one place."""
    empty = [
        view.name for view, features in zip(space.views, space.features, strict=True) if not len(features)
    ]
    if len(empty) > len(space.views) - 2:
        raise CannotMatch(
            f"{len(empty)} of {len(space.views)} photographs have no features outside of the masks "
            f"({', '.join(empty[:3])}{', …' if len(empty) > 3 else ''}); check the masks and the photographs"
        )
    if not geometries:
        raise NothingMatches(
            f"the {len(space.views)} photographs share nothing: no two of them have {MIN_INLIERS} "
            "matches that agree with a relative pose; give photographs that overlap, and their own calibrations"
        )
    moving = (pair for pair, geometry in geometries.items() if not _is_rotation(space, pair, geometry))
    if next(moving, None) is None:
        raise CannotMatch(
            "no parallax: depth cannot be computed, as a rotation alone explains all matches; "
            "give photographs from different places"
        )


def explain_missing(
    space: Workspace, geometries: Mapping[Pair, Any], registered: Collection[int]
) -> list[str | None]:
    """Say for every view that is not registered why."""
    partners: dict[int, dict[int, int]] = {index: {} for index in range(len(space.views))}
    for (first, second), geometry in geometries.items():
        partners[first][second] = partners[second][first] = len(geometry.inlier_matches)
    return [
        None if index in registered else _explain(space, index, partners[index], registered)
        for index in range(len(space.views))
    ]


def _explain(space: Workspace, index: int, partners: dict[int, int], registered: Collection[int]) -> str:
    if not len(space.features[index]):
        return "no features: it is blank, blurred or masked everywhere"
    if not partners:
        return f"no other photograph has {MIN_INLIERS} matches that agree with a relative pose"
    known = {other: count for other, count in partners.items() if other in registered}
    if not known:
        best = max(partners, key=partners.__getitem__)
        return f"it matches only photographs that are not registered either ({space.views[best].name})"
    best = max(known, key=known.__getitem__)
    return (
        f"too few of its matches are points seen from different places "
        f"(best: {known[best]} matches with {space.views[best].name})"
    )


def _is_rotation(space: Workspace, pair: Pair, geometry: Any) -> bool:
    first, second = match_rays(space, pair, geometry)
    density = min(space.lenses[index].pixels_per_rad for index in pair)
    error_px = fit_rotation_errors(first, second) * density
    return float((error_px < ROTATION_PX).double().mean()) >= ROTATION_SHARE


def match_rays(
    space: Workspace, pair: Pair, geometry: Any
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"]]:
    """Unit rays, in the frames of their cameras, of the matches of a pair."""
    rows = np.asarray(geometry.inlier_matches, dtype=np.int64)
    rays = []
    for side, index in enumerate(pair):
        pixels = torch.from_numpy(space.features[index].pixels[rows[:, side]].astype(np.float64))
        rays.append(space.views[index].camera.unproject(pixels)[0])
    return rays[0], rays[1]


def fit_rotation_errors(first: Float[Tensor, "n 3"], second: Float[Tensor, "n 3"]) -> Float[Tensor, "n"]:
    """Angles in radians between R·first and second for the rotation that fits most of them (reweighted Kabsch)."""
    weight = torch.ones(len(first), dtype=torch.float64)
    angle = torch.zeros_like(weight)
    for _ in range(ROUNDS):
        left, _, right = torch.linalg.svd((weight[:, None] * second).mT @ first)
        sign = torch.linalg.det(left @ right).sign()
        rotation = left * left.new_tensor([1.0, 1.0, 1.0]).index_fill(0, torch.tensor(2), float(sign)) @ right
        angle = torch.linalg.vector_norm(first @ rotation.mT - second, dim=-1)
        weight = 1 / (angle.square() + angle.median().square().clamp(min=1e-12))
    return angle


# Whether given poses explain the pictures


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
"""Another reading of the poses must explain this much more, as a share of the matches."""


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
