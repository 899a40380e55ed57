"""Which model to believe: mapping again from other first pairs, and with more matches where views are left over."""

import copy
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.geometry.pose import Pose
from g_ray.sfm.diagnosis import NothingMatches, check_matches, measure_agreement
from g_ray.sfm.learned_matches import INSTALL, PACKAGE, match_learned
from g_ray.sfm.mapping import convert_model, label_components, map_globally, map_views
from g_ray.sfm.pairs import Pair, choose_pairs
from g_ray.sfm.sfm_options import SMALL_SET
from g_ray.sfm.workspace import Report, Workspace, match_pairs, read_two_view_geometries

GOOD_MATCHES, FURTHER_STARTS = 0.9, 4
"""Models that explain less than this share of the matches are mapped again, from up to this many other first pairs."""
WORSE_ERROR, SMALL_ERROR_PX = 1.5, 1.0
"""A second model may have a median error, at held-out matches, this many times as large as the first model's, which
may have seen them; or one of this many working pixels."""
GOOD_VIEW = 0.7
"""Share of the features, of matches that were held out, that each view placed by a second try must explain."""
MIN_PARTNERS, MIN_HELD_OUT = 2, 8
"""Placed views that such a view must match, as a single relative pose is contradicted by nothing; and matches with
them, held out, that it must have."""
ADVICE = f"learned features may place the photographs that are left over: {INSTALL}"
HELD_OUT_LEARNED, HELD_OUT_GUIDED = 3, 5
"""One track in so many is held out: guided matches are so few that mapping fails without a third of them."""


@dataclass(frozen=True, eq=False)
class Choice:
    """What was mapped: views with their features and matches, COLMAP's models, the largest first, and notes."""

    space: Workspace
    geometries: Mapping[Pair, Any]
    models: list[Any]
    notes: tuple[str, ...] = ()


def has_learned_matcher() -> bool:
    """Whether the optional package is installed."""
    return find_spec(PACKAGE) is not None


def choose_models(space: Workspace, report: Report) -> Choice:
    """Map the views; where some are left over, match these again: by learned features, or along epipolar curves.

    This second try is taken if it places more views and explains matches that were held out from it. NothingMatches if
    no try orients two views.
    """
    geometries = read_two_view_geometries(space)
    models, failure = [], None
    try:
        check_matches(space, geometries)
        models = _map_consistently(space, geometries, report)
        if not models:
            raise NothingMatches(_describe_failure(space, geometries))
    except NothingMatches as error:
        failure = error
    best = Choice(space, geometries, models)
    missing = {index for index, pose in enumerate(_read_poses(best)) if pose is None}
    if missing and space.rig is None and len(space.views) <= SMALL_SET:
        best = _try_again(best, missing, report)
        if not has_learned_matcher() and any(pose is None for pose in _read_poses(best)):
            best = replace(best, notes=(*best.notes, ADVICE))
    if not best.models:
        raise NothingMatches(str(failure) + ("" if has_learned_matcher() else f"; {ADVICE}"))
    return best


def _read_poses(choice: Choice) -> Sequence[Pose | None]:
    if not choice.models:
        return (None,) * len(choice.space.views)
    return convert_model(choice.space, choice.models[0]).poses


def _describe_failure(space: Workspace, geometries: Mapping[Pair, Any]) -> str:
    best = max(geometries, key=lambda pair: len(geometries[pair].inlier_matches))
    first, second = (space.views[index].name for index in best)
    return (
        f"no two photographs can be oriented: the best pair ({first}, {second}) has "
        f"{len(geometries[best].inlier_matches)} matches, but too little parallax or overlap; check the calibrations"
    )


# A second try


def _match_guided(first: Choice, missing: set[int], folder: Path, report: Report) -> Workspace | None:
    """Match verified pairs again, features near the epipolar curves of their relative poses."""
    space = first.space
    # Guided matching in COLMAP 4.2 aborted the process with lenses that were given to it as panoramas.
    native = {index for index, lens in enumerate(space.lenses) if lens.is_native}
    pairs = sorted(
        pair for pair in first.geometries if missing.intersection(pair) and native.issuperset(pair)
    )
    if not pairs:
        return None
    second = replace(space, folder=folder)
    shutil.copyfile(space.database, second.database)
    with space.pycolmap.Database.open(str(second.database)) as database:
        for one, other in pairs:
            database.delete_matches(one + 1, other + 1)
            database.delete_two_view_geometry(one + 1, other + 1)
    match_pairs(second, pairs, report, guided=True)
    return second


def _try_again(first: Choice, missing: set[int], report: Report) -> Choice:
    """Return what more matches make of the views, if what is made of a part of them explains the rest as well."""
    folder = first.space.folder / "second-try"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    space, learned = None, has_learned_matcher()
    if learned:
        pairs = choose_pairs(first.space.features, first.space.options)
        pairs = [pair for pair in pairs if missing.intersection(pair)]
        try:
            space = match_learned(first.space, pairs, folder, report)
        except ImportError as error:
            learned = False
            broken = (
                f"{PACKAGE} is installed, but cannot be imported ({error}): guided matching was tried instead"
            )
            first = replace(first, notes=(*first.notes, broken))
    if not learned:
        space = _match_guided(first, missing, folder, report)
    name, one_in = ("learned features", HELD_OUT_LEARNED) if learned else ("guided matching", HELD_OUT_GUIDED)
    if space is None:
        return first
    geometries = read_two_view_geometries(space)
    if not geometries:
        return first
    held_out = choose_held_out(space, geometries, one_in)
    before, best = _read_poses(first), first
    # Of guided matches alone, a global model passed that was off by a quarter of the extent.
    ways = (("", map_views), (", mapped globally", map_globally))
    for way, map_again in ways if learned else ways[:1]:
        with _hide(space, geometries, held_out) as hidden:
            models = map_again(hidden, report)
        if not models or not explains_more(space, held_out, before, convert_model(space, models[0]).poses):
            continue
        # With all matches the model is usually a little better, though nothing is left that could show it.
        whole = map_again(space, report)
        if whole and _rate_model(space, held_out, whole[0]) >= _rate_model(space, held_out, models[0]):
            models = whole
        if not best.models or models[0].num_reg_images() > best.models[0].num_reg_images():
            placed = models[0].num_reg_images() - (len(space.views) - len(missing))
            note = f"{name}{way}, in a second try, placed {placed} more of the photographs"
            best = Choice(space, geometries, models, (*first.notes, note))
    return best


def choose_held_out(space: Workspace, geometries: Mapping[Pair, Any], one_in: int) -> dict[Pair, Any]:
    """Return the verified matches of one track in so many, of all its pairs."""
    starts = np.cumsum([0, *(len(features) for features in space.features)])
    edges = {
        pair: np.asarray(geometry.inlier_matches, dtype=np.int64) + starts[list(pair)]
        for pair, geometry in geometries.items()
    }
    labels = label_components(int(starts[-1]), np.concatenate(list(edges.values())))
    # Features of a photograph are sorted by their size: consecutive numbers are everywhere in it.
    numbers = np.unique(labels, return_inverse=True)[1].reshape(-1)
    kept = {pair: numbers[rows[:, 0]] % one_in == 0 for pair, rows in edges.items()}
    return {pair: _select(geometries[pair], keep) for pair, keep in kept.items() if keep.any()}


def _select(geometry: Any, keep: np.ndarray) -> Any:
    part = copy.copy(geometry)
    part.inlier_matches = np.asarray(geometry.inlier_matches)[keep]
    return part


@contextmanager
def _hide(
    space: Workspace, geometries: Mapping[Pair, Any], held_out: Mapping[Pair, Any]
) -> Iterator[Workspace]:
    """Yield a workspace without some of the matches."""
    folder = space.folder / "hidden"
    folder.mkdir()
    hidden = replace(space, folder=folder)
    shutil.copyfile(space.database, hidden.database)
    with space.pycolmap.Database.open(str(hidden.database)) as database:
        for pair, part in held_out.items():
            gone = {tuple(row) for row in np.asarray(part.inlier_matches).tolist()}
            rows = np.asarray(geometries[pair].inlier_matches)
            keep = np.array([tuple(row) not in gone for row in rows.tolist()])
            database.update_two_view_geometry(pair[0] + 1, pair[1] + 1, _select(geometries[pair], keep))
    yield hidden
    shutil.rmtree(folder)


def explains_more(
    space: Workspace,
    held_out: Mapping[Pair, Any],
    first: Sequence[Pose | None],
    second: Sequence[Pose | None],
) -> bool:
    """Whether poses place more views than `first`, and explain matches that were held out from them as well.

    The first poses may have seen these matches. Both are compared at those between views that both place.
    """
    before, now = (
        {index for index, pose in enumerate(poses) if pose is not None} for poses in (first, second)
    )
    if len(now) <= max(len(before), MIN_PARTNERS):
        return False
    for index in now - before:
        counts = [
            len(part.inlier_matches)
            for pair, part in held_out.items()
            if index in pair and now.issuperset(pair)
        ]
        if len(counts) < MIN_PARTNERS or sum(counts) < MIN_HELD_OUT:
            return False
    new = measure_agreement(space, held_out, second)
    if not all(new.view_shares[index] >= GOOD_VIEW for index in now - before):
        return False
    if not before:
        return new.share >= GOOD_MATCHES
    known = {pair: part for pair, part in held_out.items() if before.issuperset(pair)}
    old, again = (measure_agreement(space, known, poses) for poses in (first, second))
    as_good = again.track_median_px <= max(SMALL_ERROR_PX, WORSE_ERROR * old.track_median_px)
    return as_good and min(new.share, again.share) >= min(GOOD_MATCHES, old.share)


# Mapping again


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
