"""Bundle adjustment through any lens: Levenberg–Marquardt on poses and points with the lens held fixed.

The residual of an observation is its reprojection error in pixels of the true lens. A lens π is linearized once, at
the observed pixel u with the ray d = π⁻¹(u):

    π(X) − u ≈ J (X/‖X‖ − d),   J = ∂π/∂d at d  [2, 3].

The error of this is of second order in an error of a few pixels, far below the noise of features, and J exists for
every lens, beyond 90° and at the seam of a panorama too. As J d = 0, the opposite direction −d would fit as well: a
third residual, ‖J‖/√2 · dᵀ(X/‖X‖ − d), which is of second order near d, keeps points in front. Poses move by left
increments, exp(δ) · frame_from_world; points are eliminated by the Schur complement, whose products with vectors are
all that conjugate gradients need.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.sfm.sparse_scene import Tracks

# Poses as measurements
#
# A camera that turns about a point near itself moves its image by f (θ + b/z): a smaller angle θ and a constant added
# to all inverse distances 1/z fit the pictures almost as well. Bundle adjustment alone then settles far from poses
# that were measured: by 8 % in distance for 3 % of reprojection error in the red kitchen of 7-Scenes. A prior of the
# poses' own noise decides what the pictures leave open, and fixes the frame and the scale of the world too.


MAX_DEVIATIONS = 3 * 6**0.5
"""Poses farther off than this, three in each of six directions, count less and less: single ones may be wrong."""


@dataclass(frozen=True, eq=False)
class PosePrior:
    """Given poses with the standard deviations of their rotation and of their place."""

    frame_from_world: Float[Tensor, "frame 4 4"]
    rotation_rad: float
    translation: float  # in the unit of the world

    def compute_cost(self, frame_from_world: Float[Tensor, "frame 4 4"]) -> float:
        """Σ k² log(1 + ‖d‖²/k²) over the frames, d in standard deviations."""
        square = self._measure(frame_from_world).square().sum(-1)
        return float((MAX_DEVIATIONS**2 * torch.log1p(square / MAX_DEVIATIONS**2)).sum())

    def linearize(
        self, frame_from_world: Float[Tensor, "frame 4 4"]
    ) -> tuple[Float[Tensor, "frame 6 6"], Float[Tensor, "frame 6"]]:
        """Blocks and gradients of the normal equations by left increments of the frames."""
        steps = self._measure(frame_from_world)
        weight = 1 / (1 + steps.square().sum(-1, keepdim=True) / MAX_DEVIATIONS**2)
        scale = self._list_scales()
        return torch.diag_embed(weight * scale.square()), weight * scale * steps

    def _measure(self, frame_from_world: Float[Tensor, "frame 4 4"]) -> Float[Tensor, "frame 6"]:
        """Rotation and shift from the given frames to the present ones, in standard deviations."""
        motion = Pose(frame_from_world) @ Pose(self.frame_from_world).inverse()
        twice = motion.rotation - motion.rotation.mT
        # The axis times the sine of the angle; angles are a few degrees at most.
        turn = torch.stack([twice[:, 2, 1], twice[:, 0, 2], twice[:, 1, 0]], -1) / 2
        return torch.cat([turn, motion.translation], -1) * self._list_scales()

    def _list_scales(self) -> Float[Tensor, "6"]:
        return torch.tensor(
            [1 / self.rotation_rad] * 3 + [1 / self.translation] * 3, dtype=self.frame_from_world.dtype
        )


CG_STEPS = 60
CG_TOLERANCE = 1e-3
MAX_ELIMINATED = 300
"""Unknowns of the frames up to which the scale's deviation is solved by elimination."""
MAX_STRETCH = 3.0
"""Near the poles of a panorama pixels are narrow. J is limited to this multiple of the lens's median resolution."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations of points by cameras that stand fixed on moving frames: a rig at an instant, or a view."""

    frame: Int[Tensor, "observation"]
    point: Int[Tensor, "observation"]
    cam_from_frame: Float[Tensor, "observation 4 4"]
    ray: Float[Tensor, "observation 3"]
    jacobian: Float[Tensor, "observation 3 3"]
    """∂π/∂d in working pixels, and the row that keeps points in front."""

    def select(self, keep: Tensor) -> "Problem":
        parts = (self.frame, self.point, self.cam_from_frame, self.ray, self.jacobian)
        return Problem(*(part[keep] for part in parts))


@dataclass(frozen=True, eq=False)
class State:
    """What is adjusted."""

    frame_from_world: Float[Tensor, "frame 4 4"]
    points: Float[Tensor, "point 3"]


def make_problem(
    tracks: Tracks,
    cameras: Sequence[Camera],
    pixel_scales: Sequence[float],
    frame_of_view: Int[Tensor, "view"] | None = None,
    cam_from_frame: Float[Tensor, "view 4 4"] | None = None,
) -> Problem:
    """Linearize the lenses at all observations; without frames every view is one."""
    count = len(cameras)
    frame_of_view = torch.arange(count) if frame_of_view is None else frame_of_view
    if cam_from_frame is None:
        cam_from_frame = torch.eye(4, dtype=torch.float64).expand(count, 4, 4)
    ray = torch.zeros(len(tracks), 3, dtype=torch.float64)
    jacobian = torch.zeros(len(tracks), 3, 3, dtype=torch.float64)
    for index in tracks.view.unique().tolist():
        rows = (tracks.view == index).nonzero()[:, 0]
        ray[rows], slope = linearize_lens(cameras[index], tracks.pixel[rows])
        ahead = torch.linalg.matrix_norm(slope)[:, None] / math.sqrt(2) * ray[rows]
        jacobian[rows] = torch.cat([slope, ahead[:, None]], 1) * pixel_scales[index]
    return Problem(frame_of_view[tracks.view], tracks.point, cam_from_frame[tracks.view], ray, jacobian)


def linearize_lens(
    camera: Camera, pixels: Float[Tensor, "n 2"]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 2 3"]]:
    """Rays of pixels, and the derivatives of the pixels by them."""
    with torch.no_grad():
        rays, _ = camera.unproject(pixels)
    with torch.enable_grad():
        leaf = rays.clone().requires_grad_()
        projected, _ = camera.project(leaf)
        rows = [
            torch.autograd.grad(projected[:, axis].sum(), leaf, retain_graph=axis == 0)[0] for axis in (0, 1)
        ]
    left, size, right = torch.linalg.svd(torch.stack(rows, 1), full_matrices=False)
    limit = MAX_STRETCH * float(size[:, 1].median())
    return rays, (left * size.clamp(max=limit)[:, None]) @ right


def adjust(
    problem: Problem,
    state: State,
    free: Bool[Tensor, "frame"],
    *,
    move_points: bool = True,
    loss_px: float = 1.0,
    iterations: int = 25,
    tolerance: float = 1e-5,
    prior: PosePrior | None = None,
) -> State:
    """Minimize Σ ρ(‖r‖) with Cauchy's ρ, and the prior of the poses, over the free frames and the points."""
    damping = 1e-4
    cost = compute_cost(problem, state, loss_px, prior)
    for _ in range(iterations):
        system = linearize(problem, state, loss_px, prior)
        # Levenberg–Marquardt: the damping grows until a step lowers the cost, and shrinks after each success.
        while True:
            proposal = _step(system, problem, state, free, move_points, damping)
            new_cost = compute_cost(problem, proposal, loss_px, prior)
            if new_cost < cost or damping > 1e8:
                break
            damping *= 8
        if not new_cost < cost:
            break
        gain = (cost - new_cost) / max(cost, 1e-300)
        state, cost, damping = proposal, new_cost, max(damping / 5, 1e-10)
        if gain < tolerance:
            break
    return state


def compute_cost(problem: Problem, state: State, loss_px: float, prior: PosePrior | None = None) -> float:
    square = compute_residuals(problem, state).square().sum(-1)
    cost = float((loss_px**2 * torch.log1p(square / loss_px**2)).sum())
    return cost if prior is None else cost + prior.compute_cost(state.frame_from_world)


def compute_residuals(problem: Problem, state: State) -> Float[Tensor, "observation 3"]:
    """Reprojection errors in working pixels."""
    _, in_camera = _transform(problem, state)
    direction = torch.nn.functional.normalize(in_camera, dim=-1)
    return (problem.jacobian @ (direction - problem.ray)[..., None])[..., 0]


def triangulate_rays(problem: Problem, state: State) -> Float[Tensor, "point 3"]:
    """The points nearest to their rays: Σ (I − dᵢdᵢᵀ)(X − cᵢ) = 0."""
    cam_from_world = problem.cam_from_frame @ state.frame_from_world[problem.frame]
    world_from_cam = Pose(cam_from_world).inverse()
    direction = (world_from_cam.rotation @ problem.ray[..., None])[..., 0]
    across = torch.eye(3, dtype=torch.float64) - direction[..., None] * direction[..., None, :]
    count = len(state.points)
    left = torch.zeros(count, 3, 3, dtype=torch.float64).index_add_(0, problem.point, across)
    right = torch.zeros(count, 3, dtype=torch.float64).index_add_(
        0, problem.point, (across @ world_from_cam.translation[..., None])[..., 0]
    )
    # Parallel rays leave the distance open; a tiny pull to the origin keeps the system regular.
    left = left + 1e-9 * torch.eye(3, dtype=torch.float64)
    return torch.linalg.solve(left, right)


# The linear system of one iteration


@dataclass(frozen=True, eq=False)
class System:
    pose_blocks: Float[Tensor, "frame 6 6"]
    point_blocks: Float[Tensor, "point 3 3"]
    mixed: Float[Tensor, "observation 6 3"]
    pose_gradient: Float[Tensor, "frame 6"]
    point_gradient: Float[Tensor, "point 3"]


def _transform(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """Points in their frames and in their cameras."""
    frame = state.frame_from_world[problem.frame]
    in_frame = (frame[:, :3, :3] @ state.points[problem.point][..., None])[..., 0] + frame[:, :3, 3]
    mount = problem.cam_from_frame
    return in_frame, (mount[:, :3, :3] @ in_frame[..., None])[..., 0] + mount[:, :3, 3]


def linearize(problem: Problem, state: State, loss_px: float, prior: PosePrior | None = None) -> System:
    by_pose, by_point = differentiate(problem, state)
    residual = compute_residuals(problem, state)
    weight = 1 / (1 + residual.square().sum(-1) / loss_px**2)
    weighted_pose, weighted_point = (part.mT * weight[:, None, None] for part in (by_pose, by_point))
    frames, points = len(state.frame_from_world), len(state.points)
    pose_blocks = _add_rows(frames, problem.frame, weighted_pose @ by_pose)
    pose_gradient = _add_rows(frames, problem.frame, _multiply(weighted_pose, residual))
    if prior is not None:
        blocks, gradient = prior.linearize(state.frame_from_world)
        pose_blocks, pose_gradient = pose_blocks + blocks, pose_gradient + gradient
    return System(
        pose_blocks,
        _add_rows(points, problem.point, weighted_point @ by_point),
        weighted_pose @ by_point,
        pose_gradient,
        _add_rows(points, problem.point, _multiply(weighted_point, residual)),
    )


def differentiate(
    problem: Problem, state: State
) -> tuple[Float[Tensor, "observation 3 6"], Float[Tensor, "observation 3 3"]]:
    """Derivatives of the residuals by increments of their poses and by their points."""
    in_frame, in_camera = _transform(problem, state)
    distance = torch.linalg.vector_norm(in_camera, dim=-1, keepdim=True).clamp(min=1e-12)
    direction = in_camera / distance
    across = torch.eye(3, dtype=torch.float64) - direction[..., None] * direction[..., None, :]
    by_frame_point = problem.jacobian @ (across / distance[..., None]) @ problem.cam_from_frame[:, :3, :3]
    # dX_frame = ω × X_frame + v
    by_pose = torch.cat([-by_frame_point @ _cross_matrix(in_frame), by_frame_point], -1)
    return by_pose, by_frame_point @ state.frame_from_world[problem.frame][:, :3, :3]


def _step(
    system: System, problem: Problem, state: State, free: Tensor, move_points: bool, damping: float
) -> State:
    """One damped Gauss–Newton step."""
    schur = _Schur(
        problem.frame,
        problem.point,
        system.mixed,
        _damp(system.pose_blocks, damping),
        torch.linalg.inv(_damp(system.point_blocks, damping)) * float(move_points),
        free,
    )
    poses, points = schur.solve(-system.pose_gradient, -system.point_gradient, CG_STEPS, CG_TOLERANCE)
    return State(exponentiate(poses) @ state.frame_from_world, state.points + points)


@dataclass(frozen=True, eq=False)
class _Schur:
    """The normal equations with points eliminated: S = A − W V⁻¹ Wᵀ over the free frames."""

    frame: Int[Tensor, "observation"]
    point: Int[Tensor, "observation"]
    mixed: Float[Tensor, "observation 6 3"]
    pose_blocks: Float[Tensor, "frame 6 6"]
    point_inverses: Float[Tensor, "point 3 3"]
    free: Bool[Tensor, "frame"]

    def solve(
        self,
        pose_right: Float[Tensor, "frame 6"],
        point_right: Float[Tensor, "point 3"],
        steps: int,
        tolerance: float,
    ) -> tuple[Float[Tensor, "frame 6"], Float[Tensor, "point 3"]]:
        right = pose_right - self._to_poses(_multiply(self.point_inverses, point_right))
        poses = self._solve_poses(right * self.free[:, None], steps, tolerance)
        return poses, _multiply(self.point_inverses, point_right - self._to_points(poses))

    def solve_exactly(
        self, pose_right: Float[Tensor, "frame 6"], point_right: Float[Tensor, "point 3"]
    ) -> tuple[Float[Tensor, "frame 6"], Float[Tensor, "point 3"]]:
        """Solve by elimination: one product per unknown of the frames, however badly they are determined."""
        right = (pose_right - self._to_poses(_multiply(self.point_inverses, point_right))) * self.free[
            :, None
        ]
        units = torch.eye(right.numel(), dtype=right.dtype).unflatten(-1, right.shape)
        matrix = torch.stack([self._apply(unit * self.free[:, None]).flatten() for unit in units])
        held = (~self.free).repeat_interleave(6).to(right.dtype)
        poses = torch.linalg.solve(matrix + torch.diag(held), right.flatten()).unflatten(0, right.shape)
        return poses, _multiply(self.point_inverses, point_right - self._to_points(poses))

    def _solve_poses(self, right: Tensor, steps: int, tolerance: float) -> Float[Tensor, "frame 6"]:
        """Conjugate gradients, preconditioned by the blocks of single frames."""
        preconditioner = torch.linalg.inv(self.pose_blocks)
        solution, residual = torch.zeros_like(right), right
        scaled = _multiply(preconditioner, residual)
        direction, energy = scaled, (residual * scaled).sum()
        stop = tolerance**2 * float(energy)
        for _ in range(steps):
            if float(energy) <= stop or float(energy) == 0.0:
                break
            product = self._apply(direction)
            length = energy / (direction * product).sum().clamp(min=1e-300)
            solution, residual = solution + length * direction, residual - length * product
            scaled = _multiply(preconditioner, residual)
            new_energy = (residual * scaled).sum()
            direction, energy = scaled + new_energy / energy * direction, new_energy
        return solution

    def _apply(self, poses: Tensor) -> Tensor:
        through_points = self._to_poses(_multiply(self.point_inverses, self._to_points(poses)))
        return (_multiply(self.pose_blocks, poses) - through_points) * self.free[:, None]

    def _to_points(self, poses: Tensor) -> Tensor:
        return _add_rows(len(self.point_inverses), self.point, _multiply(self.mixed.mT, poses[self.frame]))

    def _to_poses(self, points: Tensor) -> Tensor:
        return _add_rows(len(self.pose_blocks), self.frame, _multiply(self.mixed, points[self.point]))


def estimate_scale_deviation(
    problem: Problem, state: State, free: Bool[Tensor, "frame"], loss_px: float
) -> float:
    """Standard deviation of the logarithm of the world's scale where mounted cameras with a baseline fix it.

    Enlarging the world is the same as shrinking the baselines: s in X_cam = R X_frame + s t. With the way between the
    first fixed frame and the one farthest from it held, the information on s is what the other poses and the points
    leave of it, I = JₛᵀJₛ − bᵀH⁻¹b with b = JᵀJₛ. The noise is that of the residuals if these are independent. Errors
    of one track are not: a feature sits at the same wrong place in views that look alike. The variance Σ g² / I² over
    the gradients g of whole tracks allows for it, and the larger of the two deviations counts.
    """
    first = Pose(state.frame_from_world[(~free).nonzero()[0, 0]])
    state = State(state.frame_from_world @ first.inverse().world_from_cam, first.apply(state.points))
    system = linearize(problem, state, loss_px)
    _, in_camera = _transform(problem, state)
    distance = torch.linalg.vector_norm(in_camera, dim=-1, keepdim=True).clamp(min=1e-12)
    direction, shift = in_camera / distance, problem.cam_from_frame[:, :3, 3]
    across = shift - direction * (direction * shift).sum(-1, keepdim=True)
    by_scale = _multiply(problem.jacobian, across / distance)
    residual = compute_residuals(problem, state)
    weight = 1 / (1 + residual.square().sum(-1) / loss_px**2)
    by_pose, by_point = differentiate(problem, state)
    count = len(state.frame_from_world)
    pose_right = _add_rows(count, problem.frame, _multiply(by_pose.mT, by_scale * weight[:, None]))
    point_right = _add_rows(
        len(state.points), problem.point, _multiply(by_point.mT, by_scale * weight[:, None])
    )
    schur = _Schur(
        problem.frame,
        problem.point,
        system.mixed,
        hold_farthest(_damp(system.pose_blocks, 1e-12), state, free),
        invert_points(system),
        free,
    )
    # Few frames are quick to eliminate; a rig that moves little needs a thousand steps of conjugate gradients.
    if 6 * count <= MAX_ELIMINATED:
        poses, points = schur.solve_exactly(pose_right, point_right)
    else:
        poses, points = schur.solve(pose_right, point_right, 20 * CG_STEPS, 1e-6)
    direct = float((weight * by_scale.square().sum(-1)).sum())
    information = direct - float((pose_right * poses).sum() + (point_right * points).sum())
    if not information > 1e-9 * direct:  # also where the equations have no finite solution
        return math.inf
    freedom = max(1.0, 2 * len(problem.frame) - 6.0 * int(free.sum()) - 3.0 * len(state.points))
    independent = float(residual.square().sum()) / freedom * information
    # Residuals are smaller than errors, by what the fit has absorbed.
    absorbed = 2 * len(problem.frame) / freedom
    slope = by_scale - _multiply(by_pose, poses[problem.frame]) - _multiply(by_point, points[problem.point])
    gradient = _add_rows(len(state.points), problem.point, weight * (slope * residual).sum(-1))
    clustered = absorbed * float(gradient.square().sum())
    deviation = math.sqrt(max(independent, clustered)) / information
    return deviation if math.isfinite(deviation) else math.inf


def invert_points(system: System) -> Float[Tensor, "point 3 3"]:
    """Invert the blocks of the points."""
    return torch.linalg.inv(_damp(system.point_blocks, 1e-12))


def hold_farthest(blocks: Tensor, state: State, free: Tensor) -> Float[Tensor, "frame 6 6"]:
    """Blocks that keep the frame farthest from the origin at its distance, against the freedom of scale."""
    way = state.frame_from_world[:, :3, 3] * free[:, None]
    farthest = int(torch.linalg.vector_norm(way, dim=-1).argmax())
    along = torch.nn.functional.pad(torch.nn.functional.normalize(way[farthest], dim=0), (3, 0))
    stiff = blocks.clone()
    stiff[farthest] += 1e6 * blocks[farthest].diagonal().max() * along[:, None] * along
    return stiff


def exponentiate(increment: Float[Tensor, "*n 6"]) -> Float[Tensor, "*n 4 4"]:
    """A rotation vector and a shift as a rigid motion: X ↦ exp([ω]×) X + v."""
    motion = torch.eye(4, dtype=increment.dtype).repeat(*increment.shape[:-1], 1, 1)
    motion[..., :3, :3] = torch.linalg.matrix_exp(_cross_matrix(increment[..., :3]))
    motion[..., :3, 3] = increment[..., 3:]
    return motion


def _damp(blocks: Tensor, damping: float) -> Tensor:
    diagonal = blocks.diagonal(dim1=-2, dim2=-1)
    return blocks + torch.diag_embed(damping * diagonal + 1e-9)


def _add_rows(count: int, index: Tensor, values: Tensor) -> Tensor:
    return torch.zeros(count, *values.shape[1:], dtype=values.dtype).index_add_(0, index, values)


def _multiply(matrices: Float[Tensor, "n rows columns"], vectors: Float[Tensor, "n columns"]) -> Tensor:
    return (matrices @ vectors[..., None])[..., 0]


def _cross_matrix(vector: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 3 3"]:
    """[v]× with [v]× w = v × w."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
