"""Which model to believe: mapping again from other first pairs, and with more matches of views left over."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from g_ray.geometry.pose import Pose
from g_ray.sfm.diagnosis import measure_agreement
from g_ray.sfm.mapping import convert_model, map_views
from g_ray.sfm.pairs import Pair
from g_ray.sfm.sfm_options import SMALL_SET
from g_ray.sfm.workspace import Report, Workspace, match_pairs

GOOD_MATCHES, FURTHER_STARTS = 0.9, 4
"""Models that explain less than this share of the matches are mapped again, from up to this many other first pairs."""
WORSE_ERROR = 1.5
"""A model of guided matches may have a median reprojection error this many times as large as the first model's."""
GOOD_VIEW = 0.7
"""Share of the features, of matches that were verified before, that each view placed by guided matches must explain."""
MIN_PARTNERS = 2
"""Placed views that such a view must match: a single relative pose is contradicted by nothing."""


def choose_models(
    space: Workspace, geometries: Mapping[Pair, Any], report: Report
) -> tuple[list[Any], tuple[str, ...]]:
    """Return COLMAP's models, the largest first, and a note if guided matches made them.

    Where views are left over, their verified pairs of lenses that COLMAP has are matched again along their epipolar
    curves, and everything is mapped again. The second model is taken if it places more views and explains the first
    matches as well.
    """
    models = _map_consistently(space, geometries, report)
    if models and models[0].num_reg_images() == len(space.views):
        return models, ()
    poses = convert_model(space, models[0]).poses if models else (None,) * len(space.views)
    missing = {index for index, pose in enumerate(poses) if pose is None}
    # Guided matching in COLMAP 4.2 aborted the process with lenses that were given to it as panoramas.
    native = {index for index, lens in enumerate(space.lenses) if lens.is_native}
    pairs = sorted(pair for pair in geometries if missing.intersection(pair) and native.issuperset(pair))
    if not pairs or space.rig is not None or len(space.views) > SMALL_SET:
        return models, ()
    others = _map_guided(space, pairs, report)
    if not others or not explains_more(space, geometries, poses, convert_model(space, others[0]).poses):
        return models, ()
    placed = others[0].num_reg_images() - (len(space.views) - len(missing))
    return others, (f"guided matching, in a second try, placed {placed} more of the photographs",)


def _map_guided(space: Workspace, pairs: Sequence[Pair], report: Report) -> list[Any]:
    """Match pairs again with their relative poses as a guide, and map all views with these and the other matches."""
    with tempfile.TemporaryDirectory(dir=space.folder, prefix=".guided-") as folder:
        guided = replace(space, folder=Path(folder))
        shutil.copyfile(space.database, guided.database)
        with space.pycolmap.Database.open(str(guided.database)) as database:
            for first, second in pairs:
                database.delete_matches(first + 1, second + 1)
                database.delete_two_view_geometry(first + 1, second + 1)
        match_pairs(guided, pairs, report, guided=True)
        return map_views(guided, report)


def explains_more(
    space: Workspace,
    geometries: Mapping[Pair, Any],
    first: Sequence[Pose | None],
    second: Sequence[Pose | None],
) -> bool:
    """Whether poses place more views than `first`, and explain the matches that were verified before as well."""
    before, now = (
        {index for index, pose in enumerate(poses) if pose is not None} for poses in (first, second)
    )
    if len(now) <= max(len(before), MIN_PARTNERS):
        return False
    for index in now - before:
        if sum(index in pair and now.issuperset(pair) for pair in geometries) < MIN_PARTNERS:
            return False
    new = measure_agreement(space, geometries, second)
    if not all(new.view_shares[index] >= GOOD_VIEW for index in now - before):
        return False
    if not before:
        return new.share >= GOOD_MATCHES
    old = measure_agreement(space, geometries, first)
    as_good = new.track_median_px <= WORSE_ERROR * old.track_median_px
    return as_good and new.share >= min(GOOD_MATCHES, old.share)


def _map_consistently(space: Workspace, geometries: Mapping[Pair, Any], report: Report) -> list[Any]:
    """Map the views, again from other first pairs where the model contradicts the matches.

    Two relative poses may explain a pair equally well, if its scene is flat or a lens is narrow. A model that starts
    from the wrong one can contain all views, but it explains fewer of the verified matches.
    """
    models = map_views(space, report)
    if not models or len(space.views) > SMALL_SET:
        return models
    best = _rate_model(space, geometries, models[0])
    starts = sorted(geometries, key=lambda pair: -len(geometries[pair].inlier_matches))[:FURTHER_STARTS]
    for first in starts if best[1] < GOOD_MATCHES else ():
        others = map_views(space, report, first)
        rating = _rate_model(space, geometries, others[0]) if others else (0, 0.0)
        if rating > best:
            models, best = others, rating
        if best[1] >= GOOD_MATCHES:
            break
    return models


def _rate_model(space: Workspace, geometries: Mapping[Pair, Any], model: Any) -> tuple[int, float]:
    """Return the number of registered views, and the share of the matches among them that the model explains."""
    scene = convert_model(space, model)
    return len(scene.registered), measure_agreement(space, geometries, scene.poses).share
