"""Structure from motion with the lens as it is: from photographs and calibrations to poses and points."""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from g_ray.formats.colmap.colmap_cameras import ColmapLens, import_pycolmap, make_colmap_lens
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.sfm.diagnosis import (
    NothingMatches,
    check_matches,
    check_views,
    explain_contradiction,
    explain_missing,
    measure_agreement,
)
from g_ray.sfm.localization import localize_views, place_by_guesses, start_from_guesses
from g_ray.sfm.mapping import (
    convert_model,
    drop_outliers,
    make_track_scene,
    triangulate_with_poses,
)
from g_ray.sfm.model_choice import choose_models, has_learned_matcher
from g_ray.sfm.pairs import Pair, choose_further_pairs, choose_pairs
from g_ray.sfm.refinement import (
    Refinement,
    adjust_scene,
    arrange_frames,
    describe_baseline,
    estimate_scale,
    make_scene_problem,
    refine,
)
from g_ray.sfm.rig import Rig
from g_ray.sfm.sfm_options import MAX_ERROR_PX, WORKING_SIZE, SfMOptions
from g_ray.sfm.sparse_scene import PoseAgreement, SparseScene, Tracks
from g_ray.sfm.workspace import (
    Report,
    Workspace,
    build_database,
    choose_folder,
    ignore_progress,
    load_features,
    load_or_compute,
    match_pairs,
    prepare_views,
    read_matched_pairs,
    read_two_view_geometries,
)

GOOD_AGREEMENT = 0.7
"""Poses that explain a smaller share of the matches are noted."""
MIN_MATCHES_PER_VIEW = 30
"""Fewer matches do not refute given poses: where views hardly overlap, most of them may be wrong."""
GuessPoses = Callable[[], Sequence[Pose]]
"""Returns poses of all photographs in some world of its own."""

UNKNOWN_SCALE = 2.0
"""A scale that may be wrong by this factor is not known."""


def reconstruct_cameras(
    views: Sequence[View],
    *,
    rig: Rig | None = None,
    options: SfMOptions | None = None,
    work_folder: Path | None = None,
    report: Report | None = None,
    guess_poses: GuessPoses | None = None,
) -> SparseScene:
    """Estimate the pose of every photograph, and sparse points, with the given calibrations held fixed.

    Views that share a camera object share a lens; poses that they have are not used. Views that cannot be
    registered have a reason and the rest is finished; ValueError where nothing can be reconstructed at all. The
    first registered view is not special: the world is COLMAP's, up to a similarity, or in the rig's unit where a
    rig with a baseline is given. With a `work_folder` features and matches are stored, and an interrupted run
    continues. Where matching does not place all photographs, `guess_poses` is called for poses of all of them, in
    any world (see `g_ray.sfm.localization`).
    """
    options, report = options or SfMOptions(), report or ignore_progress
    views = prepare_views(views)
    if rig is not None and len(rig.places) != len(views):
        raise ValueError(
            f"rig: {len(rig.places)} places for {len(views)} photographs; give one, or None, for each"
        )
    if rig is not None and guess_poses is not None:
        raise ValueError("guessed poses ignore the rig: leave out one of them")
    if rig is None:
        return _map_views(views, None, options, work_folder, report, guess_poses)
    at_once = rig.place_at_once()
    if at_once is not None:
        posed = [replace(view, pose=pose) for view, pose in zip(views, at_once, strict=True)]
        scene = triangulate(posed, options=options, work_folder=work_folder, report=report)
        return _take_scale(replace(scene, rig=rig), rig)
    try:
        return _map_views(views, rig, options, work_folder, report, None)
    except (NothingMatches, TimeoutError) as error:
        try:
            scene = _map_views(views, None, options, work_folder, report, None)
        except NothingMatches:
            raise error from None
        return scene.add_notes(f"the rig is not used ({error}): every photograph is placed by itself")


def _take_scale(scene: SparseScene, rig: Rig) -> SparseScene:
    """Return a scene whose poses are those on the rig, and whose unit is the rig's if its cameras are apart."""
    scene = scene.add_notes("all photographs are of one instant: their poses are those on the rig")
    if rig.baseline == 0:
        return scene
    return replace(scene, scale=MetricScale(describe_baseline(rig), 1.0, 1.0, 1.0))


def _map_views(
    views: Sequence[View],
    rig: Rig | None,
    options: SfMOptions,
    work_folder: Path | None,
    report: Report,
    guess_poses: GuessPoses | None,
) -> SparseScene:
    """Match and map views; see `reconstruct_cameras`."""
    notes = check_views(views)
    with open_workspace(views, rig, options, work_folder, report) as space:

        def compute() -> SparseScene:
            return _map_scene(space, notes, report, guess_poses)

        if work_folder is None:
            return compute()
        return load_or_compute(space, f"mapped {guess_poses is not None} {has_learned_matcher()}", compute)


def _map_scene(
    space: Workspace, notes: Sequence[str], report: Report, guess_poses: GuessPoses | None
) -> SparseScene:
    """Map the views of a workspace; see `reconstruct_cameras`."""
    views, options = space.views, space.options
    try:
        choice = choose_models(space, report)
    except NothingMatches as error:
        if guess_poses is None:
            raise
        # Without registered views there is no world to align the guesses with: they become the poses of all views.
        empty = make_empty_scene(views, [None] * len(views), (*notes, str(error)))
        return start_from_guesses(space, read_two_view_geometries(space), empty, guess_poses())
    space, geometries = choice.space, choice.geometries
    scene = replace(convert_model(space, choice.models[0]), rig=space.rig, notes=(*notes, *choice.notes))
    # Lenses that COLMAP lacks were given to it as panoramas, whose pixels weigh errors differently.
    if not all(lens.is_native for lens in space.lenses):
        scene = _polish(space, scene)
    reasons = explain_missing(space, geometries, scene.registered)
    if guess_poses is not None and any(reasons):
        scene = place_by_guesses(space, geometries, scene, guess_poses())
        reasons = [None] * len(views)
    scene = _add_groups(scene, geometries)
    scale = estimate_scale(scene, options)
    if scale is not None and scale.high is not None and scale.high > UNKNOWN_SCALE:
        scene = scene.add_notes("the rig's baseline is too short for this scene: its scale is not known")
        scale = None
    return replace(scene, reasons=tuple(reasons), scale=scale)


NO_MATCHES = "no two photographs have matching features: nothing checks the given poses"


def make_empty_scene(
    views: Sequence[View], poses: Sequence[Pose | None], notes: tuple[str, ...]
) -> SparseScene:
    """Make a scene of given poses without points."""
    reasons = tuple("it has no pose, and no matches to find one" if pose is None else None for pose in poses)
    return SparseScene(
        tuple(view.name for view in views),
        tuple(view.camera for view in views),
        tuple(poses),
        reasons,
        torch.zeros(0, 3, dtype=torch.float64),
        torch.zeros(0, 3, dtype=torch.uint8),
        Tracks.make_empty(),
        notes=notes,
    )


def triangulate(
    views: Sequence[View],
    *,
    options: SfMOptions | None = None,
    work_folder: Path | None = None,
    report: Report | None = None,
    guess_poses: GuessPoses | None = None,
) -> SparseScene:
    """Compute sparse points with the poses of the views, which are kept as they are.

    `agreement` of the scene measures how well the poses explain the pictures; ValueError if they contradict them
    (`SfMOptions.min_agreement`). Views whose pose is None are localized in the result; where
    that fails, `guess_poses` is called as in `reconstruct_cameras`.
    """
    options, report = options or SfMOptions(), report or ignore_progress
    views = prepare_views(views)
    exact = _check_poses(views)
    notes = check_views(views)
    with open_workspace(views, None, options, work_folder, report) as space:
        geometries = read_two_view_geometries(space)
        if not geometries:
            # Poses are known, so stereo can work without points if the depth range is given.
            return make_empty_scene(views, exact, (*notes, NO_MATCHES))
        check_matches(space, geometries)
        agreement = measure_agreement(space, geometries, exact)
        hint = None
        if agreement.share < GOOD_AGREEMENT:
            hint = explain_contradiction(space, geometries, exact, GOOD_AGREEMENT)
        notes += _judge_agreement(views, agreement, hint, options)
        report("triangulation", 0.0)
        scene = convert_model(space, triangulate_with_poses(space, exact))
        # COLMAP stores rotations as quaternions: the given matrices are kept to the last digit.
        scene = replace(scene, poses=tuple(exact), agreement=agreement, notes=tuple(notes))
        missing = [index for index, pose in enumerate(exact) if pose is None]
        if missing and len(scene.points):
            scene = localize_views(space, scene, missing)
        if guess_poses is not None and any(pose is None for pose in scene.poses):
            scene = place_by_guesses(space, geometries, scene, guess_poses())
        report("triangulation", 1.0)
        return _add_groups(scene, geometries)


def refine_poses(
    views: Sequence[View],
    *,
    rig: Rig | None = None,
    options: SfMOptions | None = None,
    work_folder: Path | None = None,
    report: Report | None = None,
) -> Refinement:
    """Improve the poses of views, from anywhere, by bundle adjustment with the true lenses, if the pictures support it.

    Tracks come from matches alone, so that poses that are off by several degrees still have them. They are first
    pulled together with a loss that tolerates large errors, then `refine` decides on held-out tracks.
    """
    options, report = options or SfMOptions(), report or ignore_progress
    views = prepare_views(views)
    exact = _check_poses(views)
    notes = check_views(views)
    with open_workspace(views, rig, options, work_folder, report) as space:
        geometries = read_two_view_geometries(space)
        check_matches(space, geometries)
        scene = make_track_scene(space, geometries, exact)
        scene = replace(
            scene, rig=rig, notes=tuple(notes), agreement=measure_agreement(space, geometries, exact)
        )
        answer = refine(scene, options=options, coarse=True)
        return replace(answer, scene=drop_outliers(space, answer.scene))


@contextmanager
def name_full_disk(folder: Path) -> Iterator[None]:
    """Turn COLMAP's error about its database into an OSError with the folder."""
    try:
        yield
    except RuntimeError as error:
        if "disk is full" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from None


@contextmanager
def open_workspace(
    views: Sequence[View],
    rig: Rig | None,
    options: SfMOptions,
    folder: Path | None,
    report: Report,
) -> Iterator[Workspace]:
    """Yield features and verified matches of all views, in a temporary folder if none is given."""
    pycolmap = import_pycolmap()
    with choose_folder(folder) as place, name_full_disk(place):
        features = load_features(pycolmap, views, options, place, report)
        lenses = make_lenses(pycolmap, views, options)
        space = Workspace(pycolmap, place, views, lenses, features, rig, options)
        build_database(space)
        match_pairs(space, choose_pairs(features, options), report)
        matched, good = read_matched_pairs(pycolmap, space.database)
        match_pairs(space, choose_further_pairs(features, matched, good), report)
        yield space


def make_lenses(pycolmap: Any, views: Sequence[View], options: SfMOptions) -> list[ColmapLens]:
    """Make one lens per camera object."""
    cameras = {id(view.camera): view.camera for view in views}
    made = {key: make_colmap_lens(pycolmap, camera, WORKING_SIZE) for key, camera in cameras.items()}
    return [made[id(view.camera)] for view in views]


def _polish(space: Workspace, scene: SparseScene) -> SparseScene:
    """Adjust poses and points in pixels of the true lenses, where COLMAP had only the sphere."""
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, space.options, frames)
    everything = torch.ones(len(scene.points), dtype=torch.bool)
    return drop_outliers(space, adjust_scene(scene, problem, frames, space.options, everything))


def _add_groups(scene: SparseScene, geometries: Mapping[Pair, Any]) -> SparseScene:
    """Add the groups of views without a pose that match one another, each with a note."""
    rest = {index for index, pose in enumerate(scene.poses) if pose is None}
    groups = find_groups(rest, geometries)
    notes = []
    for group in groups:
        some = ", ".join(scene.names[index] for index in group[:3]) + (", …" if len(group) > 3 else "")
        notes.append(f"{len(group)} photographs form a group that is not connected to the rest: {some}")
    return replace(scene, groups=groups).add_notes(*notes)


def find_groups(views: Collection[int], pairs: Iterable[Pair]) -> tuple[tuple[int, ...], ...]:
    """Return the connected components, of two views or more, that pairs make of some views; the largest first."""
    group_of = {view: {view} for view in views}
    for first, second in pairs:
        if first in group_of and second in group_of and group_of[first] is not group_of[second]:
            joined = group_of[first] | group_of[second]
            group_of |= dict.fromkeys(joined, joined)
    groups = {id(group): tuple(sorted(group)) for group in group_of.values() if len(group) > 1}
    return tuple(sorted(groups.values(), key=lambda group: (-len(group), group)))


def _check_poses(views: Sequence[View]) -> list[Pose | None]:
    """Poses in float64; ValueError for what is not one."""
    exact = [None if view.pose is None else view.pose.to("cpu").to(torch.float64) for view in views]
    for view, pose in zip(views, exact, strict=True):
        if pose is None:
            continue
        matrix = pose.world_from_cam
        if matrix.shape != (4, 4) or not bool(torch.isfinite(matrix).all()):
            raise ValueError(f"{view.name}: its pose is not a finite 4×4 matrix")
        off = float((matrix[:3, :3].mT @ matrix[:3, :3] - torch.eye(3, dtype=torch.float64)).abs().max())
        if off > 1e-2:
            raise ValueError(
                f"{view.name}: its pose is not a rotation and a translation (RᵀR is off by {off:.2g})"
            )
    if sum(pose is not None for pose in exact) < 2:
        raise ValueError(
            "triangulate: two or more photographs need a pose; use reconstruct_cameras without any"
        )
    return exact


def _judge_agreement(
    views: Sequence[View], agreement: PoseAgreement, hint: str | None, options: SfMOptions
) -> list[str]:
    """Return notes; ValueError if the poses contradict the pictures. `hint` is how they would fit."""
    figures = (
        f"{agreement.match_share:.0%} of {agreement.matches} matches lie within {MAX_ERROR_PX:g} px of the "
        f"epipolar lines, {agreement.track_share:.0%} of {agreement.observations} features within it of their points "
        f"(median reprojection error {agreement.track_median_px:.1f} px)"
    )
    posed = sum(view.pose is not None for view in views)
    if agreement.share < options.min_agreement and agreement.matches < MIN_MATCHES_PER_VIEW * posed:
        return [f"the known poses contradict the few matches that there are, which may be wrong: {figures}"]
    if agreement.share < options.min_agreement:
        advice = (
            f"it looks as if {hint}"
            if hint
            else "check their direction (world_from_cam), axes, order and the calibration, or do without them"
        )
        raise ValueError(f"the given poses contradict the pictures: {figures}; {advice}")
    notes = []
    if agreement.share < GOOD_AGREEMENT:
        advice = f"; it looks as if {hint}" if hint else ""
        notes.append(f"the given poses explain the pictures badly: {figures}{advice}")
    # Good agreement of all views together can hide single wrong poses, so these are named in any case.
    bad = [
        view.name
        for view, share in zip(views, agreement.view_shares, strict=True)
        if share < options.min_agreement
    ]
    if bad:
        more = ", …" if len(bad) > 3 else ""
        notes.append(
            f"the given poses of {len(bad)} views contradict the pictures: {', '.join(bad[:3])}{more}"
        )
    return notes
