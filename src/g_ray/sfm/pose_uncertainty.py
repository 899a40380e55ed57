"""How far the poses of a scene may be off: poses drawn from the distribution that the features leave them.

Bundle adjustment ends at poses whose errors are correlated: all cameras may turn and shift together so that the
pictures change little while all distances do (see "Poses as measurements" in `g_ray.sfm.bundle`). Standard deviations
per pose do not show this; whole sets of poses that fit almost as well do, for whatever is computed from them.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.sfm.bundle import (
    Problem,
    State,
    System,
    compute_residuals,
    differentiate,
    exponentiate,
    hold_farthest,
    invert_points,
    linearize,
)
from g_ray.sfm.refinement import Frames, adjust_scene, arrange_frames, make_pose_prior, make_scene_problem
from g_ray.sfm.sfm_options import MAX_ERROR_PX, SfMOptions
from g_ray.sfm.sparse_scene import SparseScene

SAMPLES = 16
MAX_FRAMES = 400
"""Frames up to which correlations between all of them are computed; beyond, each frame's given the others."""
PAIRS_AT_ONCE = 1_000_000
LOSS_PX = MAX_ERROR_PX / 2


def sample_poses(
    scene: SparseScene, options: SfMOptions, measured: bool = False
) -> Float[Tensor, "sample view 4 4"]:
    """Draw sets of poses, world_from_cam, that could be the true ones, at the scale of the scene's own.

    Estimated poses are drawn from their posterior distribution, given the features and their noise. Poses `measured`
    by other means have independent errors: as large as the part of their reprojection error that adjusting them
    removes.
    """
    frames = arrange_frames(scene)
    generator = torch.Generator().manual_seed(options.seed)
    if measured:
        frame_from_world = _sample_measured(scene, frames, options, generator)
    else:
        frame_from_world = _sample_posterior(scene, frames, options, generator)
    return torch.stack([frames.compute_view_poses(poses).world_from_cam for poses in frame_from_world])


def _sample_measured(
    scene: SparseScene, frames: Frames, options: SfMOptions, generator: torch.Generator
) -> Float[Tensor, "sample frame 4 4"]:
    start = frames.compute_frame_poses(scene)
    excess = measure_excess_px(scene, options)
    prior = make_pose_prior(scene, frames, excess / 2)
    noise = torch.randn(SAMPLES, frames.count, 6, generator=generator, dtype=torch.float64)
    sizes = torch.tensor([prior.rotation_rad] * 3 + [prior.translation] * 3, dtype=torch.float64)
    return exponentiate(noise * sizes) @ start


def measure_excess_px(scene: SparseScene, options: SfMOptions) -> float:
    """Return the part of the reprojection error of given poses that adjusting them removes, in original pixels."""
    if not len(scene.points):
        return 0.0
    frames = arrange_frames(scene)
    problem = make_scene_problem(scene, options, frames)
    everything = torch.ones(len(scene.points), dtype=torch.bool)
    adjusted = adjust_scene(scene, problem, frames, options, everything)
    before, after = (part.compute_errors_px().clamp(max=20.0).square().mean() for part in (scene, adjusted))
    # A fit absorbs some of the noise, even of exact poses.
    absorbed = 1 + 6.0 * frames.count / max(1, len(scene.tracks))
    return math.sqrt(max(0.0, float(before - absorbed * after)))


def _sample_posterior(
    scene: SparseScene, frames: Frames, options: SfMOptions, generator: torch.Generator
) -> Float[Tensor, "sample frame 4 4"]:
    start = frames.compute_frame_poses(scene)
    if not len(scene.points):
        return start.expand(SAMPLES, -1, -1, -1)
    problem = make_scene_problem(scene, options, frames)
    state = State(start, scene.points)
    free = torch.zeros(frames.count, dtype=torch.bool)
    free[frames.frame_of_view[list(scene.registered)]] = True
    free[frames.frame_of_view[scene.registered[0]]] = False
    # The first frame is the origin, where the gauge of scale is easily held.
    first = Pose(start[frames.frame_of_view[scene.registered[0]]])
    state = State(start @ first.inverse().world_from_cam, first.apply(state.points))
    system = linearize(problem, state, LOSS_PX)
    steps = _draw_steps(problem, system, state, free, generator)
    return torch.stack([_move(problem, system, state, step) for step in steps]) @ first.world_from_cam


def _draw_steps(
    problem: Problem, system: System, state: State, free: Tensor, generator: torch.Generator
) -> Float[Tensor, "sample frame 6"]:
    """Draw increments S⁻¹ Σ zₚ gₚ of the frames, with gₚ the gradient of the track of point p and zₚ ~ N(0, 1).

    S = A − W V⁻¹ Wᵀ is the information that the points leave on the poses. Errors of one track are not independent: a
    feature sits at the same wrong place in views that look alike, and the outline of a ball moves with the view.
    Drawing whole tracks allows for it, S⁻¹ (Σ gₚgₚᵀ) S⁻¹ being the covariance of clustered errors.
    """
    has_baseline = bool((problem.cam_from_frame[:, :3, 3] != 0).any())
    blocks = system.pose_blocks + 1e-9 * torch.eye(6, dtype=torch.float64)
    blocks = blocks if has_baseline else hold_farthest(blocks, state, free)
    rows = free.nonzero()[:, 0]
    gradients = _draw_gradients(problem, system, state, generator)[:, rows]
    steps = torch.zeros(SAMPLES, len(free), 6, dtype=torch.float64)
    if len(rows) <= MAX_FRAMES:
        dense = torch.diag_embed(blocks.permute(1, 2, 0)).permute(2, 0, 3, 1)  # [frame 6 frame 6]
        dense = dense - _gather_mixed(problem, system, len(free))
        dense = dense[rows][:, :, rows].reshape(6 * len(rows), -1)
        steps[:, rows] = _solve(dense, gradients.flatten(1)).reshape(SAMPLES, -1, 6)
    else:
        through = system.mixed @ invert_points(system)[problem.point] @ system.mixed.mT
        own = blocks.index_add(0, problem.frame, -through)[rows]
        steps[:, rows] = _solve(own, gradients)
    freedom = max(1.0, 2.0 * len(problem.frame) - 6.0 * len(rows) - 3.0 * len(state.points))
    # Residuals are smaller than errors, by what the fit has absorbed.
    return steps * math.sqrt(2.0 * len(problem.frame) / freedom)


def _draw_gradients(
    problem: Problem, system: System, state: State, generator: torch.Generator
) -> Float[Tensor, "sample frame 6"]:
    """Sum the tracks' gradients by the poses, less what their points take up, with random signs and weights."""
    by_pose, by_point = differentiate(problem, state)
    residual = compute_residuals(problem, state)
    weighted = residual / (1 + residual.square().sum(-1, keepdim=True) / LOSS_PX**2)
    point_gradient = (by_point.mT @ weighted[..., None])[..., 0]
    total = torch.zeros_like(state.points).index_add_(0, problem.point, point_gradient)
    taken = (invert_points(system) @ total[..., None])[..., 0]
    gradient = by_pose.mT @ weighted[..., None] - system.mixed @ taken[problem.point][..., None]
    weights = torch.randn(SAMPLES, len(state.points), generator=generator, dtype=torch.float64)
    drawn = gradient[..., 0] * weights[:, problem.point, None]
    empty = torch.zeros(SAMPLES, len(state.frame_from_world), 6, dtype=torch.float64)
    return empty.index_add_(1, problem.frame, drawn)


def _solve(information: Float[Tensor, "*block n n"], right: Float[Tensor, "sample *block n"]) -> Tensor:
    values, vectors = torch.linalg.eigh(information)
    # Directions without information are not infinite: the linearization does not reach that far.
    values = values.clamp_min(1e-12 * float(values.max()))
    return torch.einsum("...ij,...j,...kj,s...k->s...i", vectors, 1 / values, vectors, right)


def _gather_mixed(problem: Problem, system: System, frames: int) -> Float[Tensor, "frame 6 frame 6"]:
    """W V⁻¹ Wᵀ, block by block: each point ties all frames that see it."""
    order = torch.argsort(problem.point, stable=True)
    frame, point, mixed = problem.frame[order], problem.point[order], system.mixed[order]
    inverse = invert_points(system)
    count = torch.bincount(point, minlength=len(inverse))
    first = torch.cumsum(count, 0) - count
    total = torch.zeros(frames * frames, 6, 6, dtype=torch.float64)
    for part in _split_observations(count[point]):
        # Every observation meets all of its point, itself included.
        times = count[point[part]]
        left = torch.repeat_interleave(part, times)
        within = torch.arange(len(left)) - torch.repeat_interleave(torch.cumsum(times, 0) - times, times)
        right = first[point[left]] + within
        tie = mixed[left] @ inverse[point[left]] @ mixed[right].mT
        total.index_add_(0, frame[left] * frames + frame[right], tie)
    return total.reshape(frames, frames, 6, 6).permute(0, 2, 1, 3)


def _split_observations(partners: Int[Tensor, "observation"]) -> list[Int[Tensor, "part"]]:
    """Split observations so that the pairs of each part fit into memory."""
    number = torch.cumsum(partners, 0) // PAIRS_AT_ONCE
    return list(torch.arange(len(partners)).split(torch.bincount(number).tolist()))


def _move(
    problem: Problem, system: System, state: State, step: Float[Tensor, "frame 6"]
) -> Float[Tensor, "frame 4 4"]:
    """Move frames by a step, with the points that follow, at the scale that keeps the median distance of points."""
    pulled = (system.mixed.mT @ step[problem.frame][..., None])[..., 0]
    pull = torch.zeros_like(state.points).index_add_(0, problem.point, pulled)
    points = state.points - (invert_points(system) @ pull[..., None])[..., 0]
    moved = State(exponentiate(step) @ state.frame_from_world, points)
    before, after = (_measure_distances(problem, part) for part in (state, moved))
    shrink = torch.ones(4, 4, dtype=torch.float64)
    shrink[:3, 3] = (before / after.clamp_min(1e-12)).median().clamp(1e-3, 1e3)
    return replace(moved, frame_from_world=moved.frame_from_world * shrink).frame_from_world


def _measure_distances(problem: Problem, state: State) -> Float[Tensor, "observation"]:
    frame = state.frame_from_world[problem.frame]
    local = (frame[:, :3, :3] @ state.points[problem.point][..., None])[..., 0] + frame[:, :3, 3]
    return torch.linalg.vector_norm(local, dim=-1)
