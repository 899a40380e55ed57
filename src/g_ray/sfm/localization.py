"""Further photographs localized in a finished scene."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.formats.colmap.colmap_cameras import ColmapLens, import_pycolmap, make_colmap_lens
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_to_poses
from g_ray.media.view import View
from g_ray.sfm.bundle import State, adjust, make_problem
from g_ray.sfm.features import Features, normalize_descriptors
from g_ray.sfm.mapping import drop_outliers, make_track_scene
from g_ray.sfm.pairs import Pair, compute_retrieval_vectors
from g_ray.sfm.refinement import MIN_HELD_OUT, refine
from g_ray.sfm.sfm_options import MAX_ERROR_PX, MIN_INLIERS, SMALL_SET, WORKING_SIZE, SfMOptions
from g_ray.sfm.sparse_scene import SparseScene, Tracks, measure_reprojection_px
from g_ray.sfm.workspace import (
    Report,
    Workspace,
    choose_folder,
    ignore_progress,
    load_features,
    prepare_views,
)

MAX_RATIO = 0.8
"""Distance to the best descriptor over the distance to the second."""
MIN_INLIER_RATIO = 0.1


def localize(
    scene: SparseScene,
    views: Sequence[View],
    *,
    options: SfMOptions | None = None,
    work_folder: Path | None = None,
    report: Report | None = None,
) -> SparseScene:
    """Append photographs to a scene: each with a pose from its matches with the scene's points, or with a reason.

    Poses and points of the scene are not changed; the new views add observations to its points.
    """
    options = options or SfMOptions()
    if not len(scene.points):
        raise ValueError("localize: the scene has no points; reconstruct or triangulate it first")
    views = prepare_views(views)
    both = sorted(set(scene.names) & {view.name for view in views})
    if both:
        raise ValueError(
            f"localize: {both[0]} is in the scene already; rename the photograph or leave it out"
        )
    pycolmap = import_pycolmap()
    with choose_folder(work_folder) as folder:
        features = load_features(pycolmap, views, options, folder, report or ignore_progress)
    known = _split_by_view(scene)
    for view, part in zip(views, features, strict=True):
        lens = make_colmap_lens(pycolmap, view.camera, WORKING_SIZE)
        scene = _localize(pycolmap, _append(scene, view), len(scene.names), lens, part, known, options)
    return scene


def localize_views(space: Workspace, scene: SparseScene, missing: Sequence[int]) -> SparseScene:
    """Give poses to views of a scene that have none."""
    known = _split_by_view(scene)
    for index in missing:
        lens, features = space.lenses[index], space.features[index]
        scene = _localize(space.pycolmap, scene, index, lens, features, known, space.options)
    return scene


def _append(scene: SparseScene, view: View) -> SparseScene:
    """Return the scene with one more view that has no pose yet."""
    rig = scene.rig
    return replace(
        scene,
        names=(*scene.names, view.name),
        cameras=(*scene.cameras, view.camera),
        poses=(*scene.poses, None),
        reasons=(*scene.reasons, None),
        rig=None if rig is None else replace(rig, places=(*rig.places, None)),
    )


def _localize(
    pycolmap: Any,
    scene: SparseScene,
    index: int,
    lens: ColmapLens,
    features: Features,
    known: dict[int, tuple[Tensor, Features]],
    options: SfMOptions,
) -> SparseScene:
    """Return the scene with a pose and observations of one view, or with a reason."""
    rows, points = match_scene(features, known, options)
    pose, inliers, reason = _estimate_pose(pycolmap, scene, lens, features, rows, points, options)
    poses, reasons, tracks = list(scene.poses), list(scene.reasons), scene.tracks
    poses[index], reasons[index] = pose, reason
    if pose is not None:
        tracks = Tracks.concatenate([tracks, _make_tracks(index, features, rows, points).select(inliers)])
    return replace(scene, poses=tuple(poses), reasons=tuple(reasons), tracks=tracks)


def _estimate_pose(
    pycolmap: Any,
    scene: SparseScene,
    lens: ColmapLens,
    features: Features,
    rows: Int[Tensor, "match"],
    points: Int[Tensor, "match"],
    options: SfMOptions,
) -> tuple[Pose | None, Tensor, str | None]:
    """Return the pose and the matches that agree with it, or the reason why there is none."""
    nothing = torch.zeros(0, dtype=torch.int64)
    if len(rows) < MIN_INLIERS:
        return None, nothing, f"only {len(rows)} of its features match points of the scene"
    places, _ = lens.convert_pixels(features.pixels[rows.numpy()])
    # RANSAC measures errors in COLMAP's lens, a panorama where COLMAP lacks the true one, with a loose limit. The pose
    # is then adjusted in the true lens, which also decides which matches agree with it.
    settings = pycolmap.AbsolutePoseEstimationOptions()
    settings.ransac.max_error = 2 * MAX_ERROR_PX
    settings.ransac.random_seed = options.seed
    settings.ransac.min_inlier_ratio = MIN_INLIER_RATIO / 2
    settings.ransac.max_num_trials = 20000
    answer = pycolmap.estimate_and_refine_absolute_pose(
        places, scene.points[points].numpy(), lens.make_camera(pycolmap, 1), settings
    )
    count = 0 if answer is None else int(np.sum(answer["inlier_mask"]))
    if answer is None or count < max(MIN_INLIERS, MIN_INLIER_RATIO * len(rows)):
        return None, nothing, f"only {count} of its {len(rows)} matches with the scene agree with one pose"
    matrix = torch.from_numpy(np.asarray(answer["cam_from_world"].matrix(), dtype=np.float64).copy())
    cam_from_world = Pose.from_parts(matrix[:, :3], matrix[:, 3])
    agreeing = torch.from_numpy(np.asarray(answer["inlier_mask"], dtype=bool)).nonzero()[:, 0]
    tracks = _make_tracks(0, features, rows, points)
    problem = make_problem(tracks.select(agreeing), [lens.camera], [lens.scale])
    state = State(cam_from_world.world_from_cam[None], scene.points)
    free = torch.ones(1, dtype=torch.bool)
    state = adjust(problem, state, free, move_points=False, loss_px=MAX_ERROR_PX / 2)
    pose = Pose(state.frame_from_world[0]).inverse()
    error = measure_reprojection_px(lens.camera, pose, scene.points[points], tracks.pixel) * lens.scale
    return pose, (error <= MAX_ERROR_PX).nonzero()[:, 0], None


def match_scene(
    features: Features, known: dict[int, tuple[Tensor, Features]], options: SfMOptions
) -> tuple[Int[Tensor, "match"], Int[Tensor, "match"]]:
    """Features of a photograph and the points they show, by a majority vote of the scene's views."""
    if not len(features):
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    votes: dict[int, dict[int, int]] = {}
    for index in _choose_similar(features, known, options):
        points, seen = known[index]
        for row, column in zip(*match_descriptors(features.descriptors, seen.descriptors), strict=True):
            counts = votes.setdefault(row, {})
            point = int(points[column])
            counts[point] = counts.get(point, 0) + 1
    best = [(row, max(counts, key=counts.__getitem__)) for row, counts in sorted(votes.items())]
    table = torch.tensor(best, dtype=torch.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def match_descriptors(first: np.ndarray, second: np.ndarray) -> tuple[list[int], list[int]]:
    """Mutual nearest neighbors that pass the ratio test."""
    if len(first) < 2 or len(second) < 2:
        return [], []
    a, b = (normalize_descriptors(part) for part in (first, second))
    likeness = a @ b.mT
    value, column = likeness.topk(2, -1)
    back = likeness.argmax(0)
    distance = (2 - 2 * value).clamp(min=0).sqrt()
    mutual = back[column[:, 0]] == torch.arange(len(first))
    rows = (mutual & (distance[:, 0] < MAX_RATIO * distance[:, 1])).nonzero()[:, 0]
    return rows.tolist(), column[rows, 0].tolist()


def _choose_similar(
    features: Features, known: dict[int, tuple[Tensor, Features]], options: SfMOptions
) -> list[int]:
    """All views of a small scene, the most similar ones of a large one."""
    if len(known) <= SMALL_SET:
        return list(known)
    vectors = compute_retrieval_vectors([features, *(part for _, part in known.values())], options.seed)
    order = (vectors[1:] @ vectors[0]).argsort(descending=True)
    return [list(known)[i] for i in order[: options.similar].tolist()]


def _split_by_view(scene: SparseScene) -> dict[int, tuple[Tensor, Features]]:
    """Points that each view sees, with its descriptors of them."""
    parts = {}
    for index in scene.registered:
        tracks = scene.tracks.select(scene.tracks.view == index)
        if len(tracks):
            colors = scene.colors[tracks.point].numpy()
            parts[index] = (
                tracks.point,
                Features(tracks.pixel.float().numpy(), tracks.descriptor.numpy(), colors),
            )
    return parts


def _make_tracks(view: int, features: Features, rows: Tensor, points: Tensor) -> Tracks:
    chosen = rows.numpy()
    return Tracks(
        torch.full((len(rows),), view),
        points,
        torch.from_numpy(features.pixels[chosen].astype(np.float64)),
        torch.from_numpy(features.descriptors[chosen]),
    )


# Guessed poses
#
# A guess is brought to the world of the registered views: the similarity between both gives the scale, and the
# registered view that is closest in the guessed world the place to start from. Tracks of verified matches that reach
# a guessed view then adjust its pose, if tracks that were held out improve; registered views do not move.


HOLD_OUT = 0.2
"""Share of the tracks that decide whether an adjusted pose is kept."""
SAME_VIEW_RAD = 1.0
"""Beyond this angle two photographs hardly see the same things: it counts as much as the spread of all cameras."""
MIN_OBSERVATIONS = 6
"""Features without which a pose is not adjusted: three would fix it, but allow no wrong one."""


def place_by_guesses(
    space: Workspace, geometries: Mapping[Pair, Any], scene: SparseScene, guesses: Sequence[Pose]
) -> SparseScene:
    """Give guessed poses to the views of a scene that have none; `guessed` of the result names them.

    With fewer than two registered views, nothing relates both worlds: all poses are then guesses.
    """
    if len(scene.registered) < 2:
        return start_from_guesses(space, geometries, scene, guesses)
    missing = [index for index, pose in enumerate(scene.poses) if pose is None]
    poses = align_guesses(scene, guesses)
    extra, note = _adjust_guesses(space, _select_tracks(space, geometries, poses, missing), scene.registered)
    return replace(
        scene,
        poses=extra.poses,
        points=torch.cat([scene.points, extra.points]),
        colors=torch.cat([scene.colors, extra.colors]),
        tracks=Tracks.concatenate(
            [scene.tracks, replace(extra.tracks, point=extra.tracks.point + len(scene.points))]
        ),
        reasons=(None,) * len(poses),
        guessed=tuple(missing),
        notes=(*scene.notes, note),
    )


def start_from_guesses(
    space: Workspace, geometries: Mapping[Pair, Any], scene: SparseScene, guesses: Sequence[Pose]
) -> SparseScene:
    """Take the guesses for all views, and adjust them to the matches that there are."""
    poses = [pose.to("cpu").to(torch.float64) for pose in guesses]
    full, note = _adjust_guesses(space, make_track_scene(space, geometries, poses), ())
    everything = tuple(range(len(poses)))
    return replace(full, guessed=everything, notes=(*scene.notes, note))


def align_guesses(scene: SparseScene, guesses: Sequence[Pose]) -> list[Pose]:
    """Return the registered poses as they are, and the guesses of all other views in their world.

    A guess is taken relative to its closest registered view, of which the true place is known: on photographs of the
    red kitchen rotations are then off by 14° instead of 25° (docs: photographs).
    """
    rows = torch.tensor(scene.registered)
    stacked = Pose(torch.stack([pose.world_from_cam.cpu().double() for pose in guesses]))
    scale = fit_similarity_to_poses(stacked[rows], scene.stack_poses()).scale
    poses = list(scene.poses)
    for index in range(len(poses)):
        if scene.poses[index] is None:
            anchor = int(rows[_measure_separation(stacked[rows], stacked[index]).argmin()])
            step = stacked[anchor].inverse() @ stacked[index]
            known = scene.poses[anchor]
            assert known is not None
            poses[index] = known @ Pose.from_parts(step.rotation, scale * step.translation)
    return [pose for pose in poses if pose is not None]


def _measure_separation(poses: Pose, other: Pose) -> Float[Tensor, "view"]:
    """Distance in units of the cameras' spread, plus the angle in units of `SAME_VIEW_RAD`."""
    centers = poses.translation
    spread = torch.linalg.vector_norm(centers - centers.mean(0), dim=-1).square().mean().sqrt()
    distance = torch.linalg.vector_norm(centers - other.translation, dim=-1)
    # ‖A − B‖ = √8 sin(angle / 2), accurate for small angles too.
    half = (poses.rotation - other.rotation).flatten(-2).norm(dim=-1) / 8**0.5
    return distance / spread + 2 * torch.asin(half.clamp(max=1)) / SAME_VIEW_RAD


def _select_tracks(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose], guessed: Sequence[int]
) -> SparseScene:
    """Return a scene of the tracks that reach a guessed view; the others have points already."""
    scene = make_track_scene(space, geometries, poses)
    reached = torch.zeros(len(scene.points), dtype=torch.bool)
    reached[scene.tracks.point[torch.isin(scene.tracks.view, torch.tensor(guessed))]] = True
    number = torch.cumsum(reached.long(), 0) - 1
    tracks = scene.tracks.select(reached[scene.tracks.point])
    tracks = replace(tracks, point=number[tracks.point])
    return replace(scene, points=scene.points[reached], colors=scene.colors[reached], tracks=tracks)


def _adjust_guesses(space: Workspace, scene: SparseScene, fixed: Sequence[int]) -> tuple[SparseScene, str]:
    """Adjust all but the fixed views if held-out tracks then fit better, drop what does not fit, and describe that."""
    outcome = f"{len(scene.points)} tracks reach them, too few to adjust them"
    seen = scene.count_observations()
    # A view without features would drift freely, so it stays where the guess puts it.
    still = sorted(
        {*fixed, *(index for index, count in enumerate(seen.tolist()) if count < MIN_OBSERVATIONS)}
    )
    if round(HOLD_OUT * len(scene.points)) >= MIN_HELD_OUT and len(still) < len(scene.names):
        answer = refine(
            scene, options=space.options, hold_out=HOLD_OUT, fixed=still, coarse=True, measured=True
        )
        scene = answer.scene
        outcome = (
            f"adjusted to {len(scene.points)} tracks" if answer.kept else "adjusting them did not help"
        ) + f" (held-out error {answer.before_px:.1f} px before, {answer.after_px:.1f} px after)"
    scene = drop_outliers(space, scene)
    supported = scene.count_observations()
    places = [index for index in range(len(scene.names)) if index not in fixed]
    good = sum(int(supported[index]) >= MIN_INLIERS for index in places)
    return scene, (
        f"guessed poses of {len(places)} photographs: {outcome}; {good} of them fit "
        f"{MIN_INLIERS} features or more"
    )
