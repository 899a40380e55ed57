"""Bundle adjustment of a scene's poses with the true lenses, kept only if tracks that it did not use improve."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.formats.colmap.colmap_cameras import compute_working_scale, measure_pixels_per_rad
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity_to_poses
from g_ray.sfm.bundle import (
    PosePrior,
    Problem,
    State,
    adjust,
    estimate_scale_deviation,
    make_problem,
    triangulate_rays,
)
from g_ray.sfm.rig import Rig
from g_ray.sfm.sfm_options import MAX_ERROR_PX, WORKING_SIZE, SfMOptions
from g_ray.sfm.sparse_scene import SparseScene

CLIP_PX = 20.0
"""Larger errors count as this much, so that single wrong matches do not dominate."""
INTERVAL = 1.96
"""Standard deviations on either side of a 95 % interval."""
COARSE_LOSSES = (20.0, 5.0)
"""How much wider the loss is while poses are still far off."""
MIN_NOISE_PX = 0.1
"""Poses are not taken for more precise than this, however well the pictures agree with them."""
MIN_HELD_OUT = 10
"""Fewest held-out points from which an improvement can be judged."""


@dataclass(frozen=True, eq=False)
class Refinement:
    """A scene with refined poses, or the given one where that is better, and the evidence."""

    scene: SparseScene
    kept: bool
    """Whether the refined poses are in `scene`."""
    before_px: float
    """Mean reprojection error of the held-out tracks, in original pixels, with the given poses …"""
    after_px: float
    """… and with the refined ones. In both cases the points are triangulated again."""
    held_out: int
    """Tracks that were not used."""


def refine(
    scene: SparseScene,
    *,
    options: SfMOptions | None = None,
    hold_out: float = 0.2,
    fixed: Sequence[int] = (),
    coarse: bool = False,
    measured: bool = False,
) -> Refinement:
    """Adjust poses and points with the lenses held fixed; `fixed` views do not move.

    A share `hold_out` of the tracks is put aside. Their points are triangulated with the poses before and after; the
    refined poses are kept if the mean reprojection error of these tracks is smaller. The refined world is aligned
    with the given one, so that its place, and its scale where no rig fixes it, stay. `coarse` first pulls together
    tracks with errors of many pixels.

    Poses `measured` by other means are evidence in addition to the pictures: moving away from them is penalized
    according to their noise, which is estimated from the reprojection error of the held-out tracks (see `PosePrior`).
    """
    options = options or SfMOptions()
    if len(scene.registered) < 2:
        raise ValueError(
            f"refine: {len(scene.registered)} view of {len(scene.names)} has a pose; two or more are needed"
        )
    held = choose_held_out(len(scene.points), hold_out, options.seed)
    if int(held.sum()) < MIN_HELD_OUT:
        raise ValueError(
            f"refine: {len(scene.points)} points are too few to hold out {MIN_HELD_OUT} of them; "
            "nothing can be said about an improvement"
        )
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, options, frames)
    before = measure_held_out(scene, scene, problem, frames, held, options)
    prior = make_pose_prior(scene, frames, before) if measured else None
    moved = scene
    # A wide loss first: with the final one, tracks with large errors would be treated as outliers and pull too little.
    for factor in (*COARSE_LOSSES, 1.0) if coarse else (1.0,):
        moved = adjust_scene(moved, problem, frames, options, ~held, fixed, factor, prior)
    after = measure_held_out(scene, moved, problem, frames, held, options)
    kept = after < before
    if kept:
        # Held-out points were not adjusted together with the poses.
        scene = retriangulate(moved, problem, frames, options)
    return Refinement(scene, kept, before, after, int(held.sum()))


# Views as frames


@dataclass(frozen=True, eq=False)
class Frames:
    """Groups of views that move together: the frame of each view, and where its camera is mounted on it."""

    frame_of_view: Int[Tensor, "view"]
    cam_from_frame: Float[Tensor, "view 4 4"]
    count: int

    def compute_frame_poses(self, scene: SparseScene) -> Float[Tensor, "frame 4 4"]:
        """frame_from_world, from a registered view of each; the identity for frames without one."""
        poses = torch.eye(4, dtype=torch.float64).repeat(self.count, 1, 1)
        for index in reversed(scene.registered):
            pose = scene.poses[index]
            assert pose is not None
            mount = Pose(self.cam_from_frame[index])
            poses[self.frame_of_view[index]] = (mount.inverse() @ pose.inverse()).world_from_cam
        return poses

    def compute_view_poses(self, frame_from_world: Float[Tensor, "frame 4 4"]) -> Pose:
        """world_from_cam of every view."""
        return Pose(self.cam_from_frame @ frame_from_world[self.frame_of_view]).inverse()


def arrange_frames(scene: SparseScene) -> Frames:
    """Make one frame per instant of the scene's rig, and one per view outside of it."""
    rig: Rig | None = scene.rig
    keys: dict[tuple[str, str], int] = {}
    frame_of_view, mounts = [], []
    for index in range(len(scene.names)):
        place = rig.places[index] if rig is not None else None
        key = ("instant", place[1]) if place is not None else ("view", str(index))
        frame_of_view.append(keys.setdefault(key, len(keys)))
        if rig is not None and place is not None:
            mounts.append(rig.rig_from_cam[place[0]].inverse().world_from_cam.double())
        else:
            mounts.append(torch.eye(4, dtype=torch.float64))
    return Frames(torch.tensor(frame_of_view), torch.stack(mounts), len(keys))


def make_scene_problem(scene: SparseScene, options: SfMOptions, frames: Frames) -> Problem:
    scales = [compute_working_scale(camera, WORKING_SIZE) for camera in scene.cameras]
    return make_problem(scene.tracks, scene.cameras, scales, frames.frame_of_view, frames.cam_from_frame)


def adjust_scene(
    scene: SparseScene,
    problem: Problem,
    frames: Frames,
    options: SfMOptions,
    used: Bool[Tensor, "point"],
    fixed: Sequence[int] = (),
    loss_factor: float = 1.0,
    prior: PosePrior | None = None,
) -> SparseScene:
    """Move poses and the used points to where the used tracks fit best; the world does not move."""
    start = frames.compute_frame_poses(scene)
    free = torch.zeros(frames.count, dtype=torch.bool)
    free[frames.frame_of_view[list(scene.registered)]] = True
    # The gauge has to be fixed: a prior does so by itself, otherwise one view stays.
    stay = list(fixed) or ([] if prior is not None else [scene.registered[0]])
    free[frames.frame_of_view[stay]] = False
    state = adjust(
        problem.select(used[problem.point]),
        State(start, scene.points),
        free,
        loss_px=loss_factor * MAX_ERROR_PX / 2,
        prior=prior,
    )
    poses = frames.compute_view_poses(state.frame_from_world)
    back = Similarity.identity() if fixed or prior is not None else _align(scene, poses)
    poses = back.transform_pose(poses)
    return replace(
        scene,
        poses=tuple(None if old is None else poses[i] for i, old in enumerate(scene.poses)),
        points=back.apply(state.points),
    )


def retriangulate(scene: SparseScene, problem: Problem, frames: Frames, options: SfMOptions) -> SparseScene:
    """Move all points to where they fit the scene's poses best."""
    state = State(frames.compute_frame_poses(scene), scene.points)
    start = State(state.frame_from_world, triangulate_rays(problem, state))
    none = torch.zeros(frames.count, dtype=torch.bool)
    points = adjust(problem, start, none, loss_px=MAX_ERROR_PX / 2, iterations=10).points
    return replace(scene, points=points)


def estimate_scale(scene: SparseScene, options: SfMOptions) -> MetricScale | None:
    """Estimate how well the rig's baselines fix the scale of a scene; None without a rig whose cameras are apart."""
    if scene.rig is None or scene.rig.baseline == 0 or not len(scene.points):
        return None
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, options, frames)
    state = State(frames.compute_frame_poses(scene), scene.points)
    free = torch.zeros(frames.count, dtype=torch.bool)
    free[frames.frame_of_view[list(scene.registered)]] = True
    free[frames.frame_of_view[scene.registered[0]]] = False
    try:
        deviation = estimate_scale_deviation(problem, state, free, MAX_ERROR_PX / 2)
    except RuntimeError:  # LinAlgError
        deviation = math.inf  # nothing in the pictures depends on the scale
    reach = min(INTERVAL * deviation, 50.0)
    return MetricScale(describe_baseline(scene.rig), 1.0, math.exp(-reach), math.exp(reach))


def describe_baseline(rig: Rig) -> str:
    return f"a rig with a baseline of {rig.baseline:.4g}"


def make_pose_prior(scene: SparseScene, frames: Frames, error_px: float) -> PosePrior:
    """Take the reprojection error for the noise of the poses: as a rotation, and as a shift at the median distance."""
    density = [measure_pixels_per_rad(scene.cameras[index]) for index in scene.registered]
    error_rad = max(error_px, MIN_NOISE_PX) / statistics.median(density)
    centers = torch.zeros(len(scene.names), 3, dtype=torch.float64)
    centers[list(scene.registered)] = scene.stack_poses().translation
    offsets = scene.points[scene.tracks.point] - centers[scene.tracks.view]
    distance = float(torch.linalg.vector_norm(offsets, dim=-1).median())
    return PosePrior(frames.compute_frame_poses(scene), error_rad, error_rad * distance)


def _align(scene: SparseScene, poses: Pose) -> Similarity:
    """Fit a similarity from the refined world to the given one; where a rig fixes the scale, it is rigid."""
    rows = torch.tensor(scene.registered)
    target = scene.stack_poses()
    try:
        fit = fit_similarity_to_poses(poses[rows], target)
    except ValueError:
        return Similarity.identity()
    if scene.rig is not None and scene.rig.baseline > 0:
        center, goal = poses[rows].translation.mean(0), target.translation.mean(0)
        one = torch.ones((), dtype=torch.float64)
        return Similarity(one, fit.rotation, goal - fit.rotation @ center)
    return fit


def choose_held_out(count: int, share: float, seed: int) -> Bool[Tensor, "point"]:
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(count, dtype=torch.bool)
    held[torch.randperm(count, generator=generator)[: round(share * count)]] = True
    return held


def measure_held_out(
    given: SparseScene,
    scene: SparseScene,
    problem: Problem,
    frames: Frames,
    held: Bool[Tensor, "point"],
    options: SfMOptions,
) -> float:
    """Mean clipped error of the held-out tracks with the poses of `scene`."""
    rows = held[given.tracks.point]
    chosen = replace(scene, tracks=given.tracks.select(rows))
    chosen = retriangulate(chosen, problem.select(rows), frames, options)
    return float(chosen.compute_errors_px().clamp(max=CLIP_PX).mean())
