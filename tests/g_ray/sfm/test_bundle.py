"""Bundle adjustment on exact scenes through every camera model, against finite differences and the truth."""

import pytest
import torch
from torch import Tensor

from g_ray.cameras import CAMERAS, OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.sfm.bundle import (
    PosePrior,
    State,
    adjust,
    compute_residuals,
    estimate_scale_deviation,
    exponentiate,
    linearize_lens,
    make_problem,
    triangulate_rays,
)
from g_ray.sfm.sparse_scene import Tracks

FLOAT64 = torch.float64


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT64)


def _observe(cameras, world_from_cam: Pose, points: Tensor, noise_px: float = 0.0) -> Tracks:
    """Every point in every view that images it."""
    views, owners, pixels = [], [], []
    for index, camera in enumerate(cameras):
        seen, valid = camera.project(world_from_cam[index].inverse().apply(points))
        valid &= camera.contains(seen) & camera.unproject(seen)[1]
        rows = valid.nonzero()[:, 0]
        views.append(torch.full((len(rows),), index))
        owners.append(rows)
        pixels.append(seen[rows] + noise_px * _draw(len(rows), 2, seed=index))
    blank = torch.zeros(sum(map(len, views)), 128, dtype=torch.uint8)
    return Tracks(torch.cat(views), torch.cat(owners), torch.cat(pixels), blank)


def _make_cluster(camera, count: int, seed: int) -> Tensor:
    """Points 3 m away along random valid rays."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([camera.width, camera.height], dtype=FLOAT64)
    pixels = size * (0.15 + 0.7 * torch.rand(count, 2, generator=generator, dtype=FLOAT64))
    rays, valid = camera.unproject(pixels)
    return rays[valid] * (3 + torch.rand(int(valid.sum()), 1, generator=generator, dtype=FLOAT64))


def _make_poses(count: int, size: float, seed: int) -> Pose:
    """Small motions about the origin; the first is the identity."""
    steps = size * _draw(count, 6, seed=seed)
    steps[0] = 0
    return Pose(exponentiate(steps))


@pytest.mark.parametrize("name", CAMERAS)
def test_lens_is_linearized_at_its_pixels(name: str):
    camera = CAMERAS[name].example(0)
    points = _make_cluster(camera, 20, seed=1)
    pixels, _ = camera.project(points)
    rays, jacobian = linearize_lens(camera, pixels)
    nudge = 1e-4 * _draw(len(rays), 3, seed=2)
    moved, _ = camera.project(torch.nn.functional.normalize(rays + nudge, dim=-1))
    predicted = (jacobian @ nudge[..., None])[..., 0]
    assert torch.allclose(moved - pixels, predicted, atol=2e-3 * float((moved - pixels).abs().max()))


@pytest.mark.parametrize("name", CAMERAS)
def test_poses_and_points_come_back(name: str):
    """From 5 % errors to the truth, through every lens."""
    camera = CAMERAS[name].example(0)
    points, truth = _make_cluster(camera, 60, seed=3), _make_poses(5, 0.1, seed=4)
    tracks = _observe([camera] * 5, truth, points)
    problem = make_problem(tracks, [camera] * 5, [1.0] * 5)
    wrong = State(truth.inverse().world_from_cam.clone(), points + 0.05 * _draw(*points.shape, seed=5))
    wrong.frame_from_world[1:] = exponentiate(0.02 * _draw(4, 6, seed=6)) @ wrong.frame_from_world[1:]
    free = torch.tensor([False, True, True, True, True])
    found = adjust(problem, wrong, free, iterations=60, tolerance=1e-12)
    # Pixels are linearized at the observations, so that the truth has residuals of 0 for every lens.
    assert float(compute_residuals(problem, found).abs().max()) < 1e-3
    found_pose = Pose(found.frame_from_world).inverse()
    scale = float(found_pose.translation[1:].norm() / truth.translation[1:].norm())
    assert torch.allclose(found_pose.translation / scale, truth.translation, atol=1e-3)
    assert torch.allclose(found_pose.rotation, truth.rotation, atol=1e-3)


def test_rays_meet_in_their_points():
    camera = OpenCVFisheye.example(1)
    points, truth = _make_cluster(camera, 30, seed=7), _make_poses(4, 0.1, seed=8)
    problem = make_problem(_observe([camera] * 4, truth, points), [camera] * 4, [1.0] * 4)
    met = triangulate_rays(problem, State(truth.inverse().world_from_cam, torch.zeros_like(points)))
    seen = torch.bincount(problem.point, minlength=len(points)) >= 2
    assert torch.allclose(met[seen], points[seen], atol=1e-5)


def test_fixed_frames_and_points_do_not_move():
    camera = Pinhole.example(2)
    points, truth = _make_cluster(camera, 30, seed=9), _make_poses(3, 0.1, seed=10)
    problem = make_problem(_observe([camera] * 3, truth, points, 0.5), [camera] * 3, [1.0] * 3)
    state = State(truth.inverse().world_from_cam, points)
    free = torch.tensor([False, False, True])
    moved = adjust(problem, state, free, move_points=False)
    assert torch.equal(moved.points, points)
    assert torch.equal(moved.frame_from_world[:2], state.frame_from_world[:2])
    assert not torch.equal(moved.frame_from_world[2], state.frame_from_world[2])


def test_prior_decides_what_the_pictures_leave_open():
    """Narrow views that pan: place and scale of the world are those of measured poses."""
    camera = Pinhole.make(64, 48, fx=60.0, fy=60.0, cx=32.0, cy=24.0, dtype=FLOAT64)
    points, truth = _make_cluster(camera, 60, seed=13), _make_poses(5, 0.1, seed=14)
    problem = make_problem(_observe([camera] * 5, truth, points, 0.1), [camera] * 5, [1.0] * 5)
    given = exponentiate(0.003 * _draw(5, 6, seed=15)) @ truth.inverse().world_from_cam
    prior = PosePrior(given, 0.003, 0.003)
    start = State(given, 1.3 * points)
    free = torch.ones(5, dtype=torch.bool)
    found = adjust(problem, start, free, prior=prior, loss_px=5.0, iterations=100, tolerance=1e-9)
    centers = Pose(found.frame_from_world).inverse().translation
    error = torch.linalg.vector_norm(centers - truth.translation, dim=-1)
    assert float(error.max()) < 0.01
    seen = torch.bincount(problem.point, minlength=len(points)) >= 3
    assert float((found.points[seen].norm(dim=-1) / points[seen].norm(dim=-1)).median()) == pytest.approx(
        1, abs=0.03
    )


def test_a_pose_that_is_altogether_wrong_hardly_pulls():
    given = _make_poses(2, 0.2, seed=16).world_from_cam
    prior = PosePrior(given, 0.01, 0.01)
    far, near = (
        exponentiate(torch.tensor([0.0, 0, 0, step, 0, 0], dtype=FLOAT64)) @ given for step in (1.0, 0.01)
    )
    pull = [float(prior.linearize(frames)[1].norm()) for frames in (far, near)]
    assert pull[0] < pull[1]


def test_prior_is_differentiated():
    given = _make_poses(3, 0.2, seed=16).world_from_cam
    prior = PosePrior(given, 0.02, 0.05)
    here = exponentiate(0.01 * _draw(3, 6, seed=17)) @ given
    _, gradient = prior.linearize(here)
    step = 1e-6 * _draw(3, 6, seed=18)
    change = prior.compute_cost(exponentiate(step) @ here) - prior.compute_cost(exponentiate(-step) @ here)
    # The cost is twice what the normal equations minimize, and both sides are counted.
    assert change == pytest.approx(4 * float((gradient * step).sum()), rel=0.02)


@pytest.mark.parametrize("shared_px", [0.0, 0.2])
def test_scale_deviation_is_that_of_repeated_trials(shared_px: float):
    """A stereo rig at four instants: the spread of the recovered scale over noisy trials is what was predicted.

    Also where the errors of a track in one camera have a part in common, as those of features do.
    """
    camera = Pinhole.make(64, 48, fx=60.0, fy=60.0, cx=32.0, cy=24.0, dtype=FLOAT64)
    mount = torch.eye(4, dtype=FLOAT64).repeat(8, 1, 1)
    mount[4:, 0, 3] = -0.4
    frame_of_view = torch.arange(4).repeat(2)
    frames = _make_poses(4, 0.15, seed=11)
    points = _make_cluster(camera, 40, seed=12)
    views = Pose(mount @ frames.inverse().world_from_cam[frame_of_view]).inverse()
    free = torch.tensor([False, True, True, True])
    exact = _observe([camera] * 8, views, points)
    scales, predicted = [], []
    for trial in range(30):
        shared = _draw(2, len(points), 2, seed=200 + trial)[exact.view // 4, exact.point]
        noisy = exact.pixel + 0.2 * _draw(len(exact), 2, seed=100 + trial) + shared_px * shared
        tracks = Tracks(exact.view, exact.point, noisy, exact.descriptor)
        problem = make_problem(tracks, [camera] * 8, [1.0] * 8, frame_of_view, mount)
        start = State(frames.inverse().world_from_cam, points)
        found = adjust(problem, start, free, loss_px=10.0, iterations=60, tolerance=1e-9)
        way = [torch.linalg.vector_norm(s.frame_from_world[:, :3, 3], dim=-1) for s in (found, start)]
        farthest = int(way[1].argmax())
        scales.append(float(torch.log(way[0][farthest] / way[1][farthest])))
        predicted.append(estimate_scale_deviation(problem, found, free, 10.0))
    spread = float(torch.tensor(scales).std())
    assert 0.72 < float(torch.tensor(predicted).mean()) / spread < 1.6
