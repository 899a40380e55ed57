"""Why photographs cannot be used: errors for all of them, reasons for single ones."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.formats.colmap.pycolmap_package import CannotMatch
from g_ray.media.view import View
from g_ray.sfm.pairs import Pair
from g_ray.sfm.sfm_options import MIN_INLIERS
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
