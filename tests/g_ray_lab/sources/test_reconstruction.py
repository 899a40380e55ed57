"""Rooms for reconstruction: pure batches, exact geometry, views that overlap, lenses that never fold."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from room_scenes import compute_covisibility

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.cameras.distortion import critical_angle, rho_slope
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.random_lenses import MONOTONE_RAD, STRENGTH, draw_fisheye_coefficients
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import (
    PER_STEP,
    START,
    RoomsReconstruction,
    SetDraws,
    make_walk,
    reflect_into,
)

SMALL = RoomsReconstruction(RoomsViews(28, 28, 3, step_m=0.5))
LENSES = [("pinhole", 1.0), ("pinhole", 3.0), ("mixed", 1.0), ("fisheye", 1.0), ("fisheye", 2.0)]
TENSORS = ("images", "world_points", "camera_points", "ray_depth", "z_depth", "valid")


def change(source, **settings):
    """The same source with other settings."""
    return replace(source, settings=replace(source.settings, **settings))


def same(first: ReconstructionBatch, second: ReconstructionBatch) -> bool:
    cameras = zip(first.views.cameras, second.views.cameras, strict=True)
    return (
        all(torch.equal(getattr(first, name), getattr(second, name)) for name in TENSORS)
        and all(torch.equal(a.params, b.params) for a, b in cameras)
        and torch.equal(first.poses.world_from_cam, second.poses.world_from_cam)
    )


def overlap(batch: ReconstructionBatch) -> torch.Tensor:
    shares = compute_covisibility(batch.views.cameras, batch.poses, batch.camera_points, batch.valid)
    return (shares + shares.mT) / 2


# Purity


def test_a_batch_is_a_function_of_seed_step_and_rank():
    first = SMALL.make_batch(5, 1)
    assert same(first, SMALL.make_batch(5, 1))
    assert same(first, pickle.loads(pickle.dumps(SMALL)).make_batch(5, 1))
    others = [
        SMALL.make_batch(6, 1),
        SMALL.make_batch(5, 0),
        replace(SMALL, seed=1).make_batch(5, 1),
        SMALL.make_held_out(),
    ]
    others.append(replace(SMALL, split="test").make_batch(5, 1))
    assert not any(torch.equal(first.images, other.images) for other in others)


def test_nobody_elses_random_numbers_are_touched():
    torch.manual_seed(0)
    np.random.seed(0)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    change(SMALL, color=True).make_batch(0)
    assert torch.equal(states[0], torch.get_rng_state()) and (states[1] == np.random.get_state()[1]).all()


def test_sets_do_not_depend_on_their_neighbours():
    whole = SMALL.make_sets(range(4))
    pairs = [change(SMALL, batch=2).make_batch(step) for step in (0, 1)]
    assert torch.allclose(whole.images, torch.cat([pair.images for pair in pairs]), atol=1e-4)
    assert torch.equal(whole.poses.world_from_cam[2:], pairs[1].poses.world_from_cam)


def test_more_views_continue_the_walk_of_fewer():
    few, many = SMALL.make_sets(range(2), views=2), SMALL.make_sets(range(2), views=6)
    assert torch.equal(few.poses.world_from_cam, many.poses.world_from_cam[:, :2])
    assert torch.allclose(few.images, many.images[:, :2], atol=1e-4)


def test_the_four_settings_show_the_same_rooms_from_the_same_places():
    base = SMALL.make_batch(2)
    for lens, zoom in LENSES:
        other = SMALL.with_lens(lens, zoom).make_batch(2)
        assert torch.equal(base.poses.world_from_cam, other.poses.world_from_cam)
        assert torch.equal(base.images[:, 0], other.images[:, 0]) == (lens != "fisheye")


# Exact ground truth


@pytest.mark.parametrize(("lens", "zoom"), LENSES)
def test_points_depths_rays_and_poses_are_of_one_world(lens, zoom):
    batch = SMALL.with_lens(lens, zoom).make_batch(1).to(torch.float64)
    rays, seen = batch.rays(), batch.valid
    assert torch.equal(rays.valid, seen) and seen.float().mean() > 0.9
    along = batch.ray_depth[..., None] * rays.directions
    assert (along - batch.camera_points)[seen].abs().max() < 1e-5
    assert (batch.camera_points[..., 2] - batch.z_depth)[seen].abs().max() < 1e-5
    assert (batch.poses.apply(batch.camera_points) - batch.world_points)[seen].abs().max() < 1e-5
    assert torch.allclose(batch.poses.world_from_cam[:, 0], torch.eye(4).double().expand(3, 4, 4), atol=1e-6)
    for view, camera in enumerate(batch.views.cameras):
        pixels, valid = camera.project(batch.camera_points[:, view])
        columns, rows = torch.meshgrid(torch.arange(28) + 0.5, torch.arange(28) + 0.5, indexing="xy")
        gap = (pixels - torch.stack([columns, rows], -1)).norm(dim=-1)
        assert valid[seen[:, view]].all() and gap[seen[:, view]].max() < 1e-3


def test_images_are_what_the_room_shows_there():
    data = SMALL.with_lens("mixed")
    batch = data.make_batch(3)
    for group in range(3):
        draw = SetDraws(data, 9 + group, 0, 4)
        first = make_walk(draw.start[None], draw.steps[None], 18.0, 0.5)[0, 0].to(torch.float32)
        room = make_random_room(draw.room, data.settings.solids, coarse=True)
        for view, camera in enumerate(batch.views.cameras):
            alone = room.render(camera[group], first @ batch.poses[group, view])
            assert torch.allclose(alone.ray_depth, batch.ray_depth[group, view], atol=1e-3)
            different = (alone.rgb.movedim(-1, 0) - batch.images[group, view]).abs().amax(0) > 1e-2
            assert different.float().mean() < 0.01  # a pixel on an edge may fall on the other side


def test_pixels_without_a_ray_are_empty():
    """A lens that is imaged whole: its corners see nothing."""
    batch = replace(SMALL, lens="fisheye", fisheye_deg=(230.0, 235.0)).make_batch(0)
    blind = ~batch.valid
    assert 0.01 < blind.float().mean() < 0.5 and blind[..., 0, 0].any()
    assert batch.images.movedim(2, -1)[blind].abs().max() == 0
    assert batch.world_points[blind].abs().max() == 0 and batch.camera_points[blind].abs().max() == 0
    assert batch.z_depth.min() < 0


def test_views_tell_nothing_of_poses():
    assert SMALL.make_batch(0).views.poses is None


def test_no_camera_stands_in_a_wall_or_a_solid():
    data = change(SMALL, views=(24, 24))
    for number in range(40):
        draw = SetDraws(data, number, 0, 24)
        room = make_random_room(draw.room, 5, coarse=True, dtype=torch.float64)
        eyes = make_walk(draw.start[None], draw.steps[None], 18.0, 0.5)[0].translation
        matrices, centres = room.solids.solid_from_world[:, None], room.solids.center[:, None]
        local = (matrices @ (eyes - centres)[..., None])[..., 0].abs()
        assert (local[0] < 0.95).all() and (local[1:].amax(-1) > 1).all()


# Overlap


def test_a_step_is_small():
    generator = torch.Generator().manual_seed(0)
    start = torch.rand(50, START, generator=generator, dtype=torch.float64)
    steps = torch.rand(50, 24, PER_STEP, generator=generator, dtype=torch.float64)
    poses = make_walk(start, steps, 18.0, 0.5)
    assert torch.allclose(poses.rotation @ poses.rotation.mT, torch.eye(3).double(), atol=1e-12)
    apart = poses.translation.diff(dim=1)
    assert apart[..., (0, 2)].abs().max() <= 0.5 and apart[..., 1].abs().max() <= 0.2
    forward = poses.rotation[..., 2]
    yaw = torch.atan2(forward[..., 0], forward[..., 2]).diff(dim=1)
    yaw = torch.rad2deg((yaw + torch.pi).remainder(2 * torch.pi) - torch.pi)
    assert yaw.abs().max() <= 18.001 and yaw.abs().max() > 15


@given(st.floats(-50, 50), st.floats(-3, 0), st.floats(0.1, 4))
def test_folding_reflects_at_the_ends(value, low, high):
    folded = reflect_into(torch.tensor(value, dtype=torch.float64), low, high).item()
    assert low - 1e-9 <= folded <= high + 1e-9
    if low <= value <= high:
        assert folded == pytest.approx(value, abs=1e-9)
    mirrored = reflect_into(torch.tensor(2 * high - value, dtype=torch.float64), low, high).item()
    assert folded == pytest.approx(mirrored, abs=1e-9)


@pytest.mark.parametrize(
    ("lens", "zoom", "least"),
    [("pinhole", 1.0, 0.6), ("pinhole", 3.0, 0.45), ("mixed", 1.0, 0.55), ("fisheye", 1.0, 0.7)],
)
def test_views_overlap(lens, zoom, least):
    shares = overlap(change(replace(SMALL, split="test"), batch=24).with_lens(lens, zoom).make_batch(0))
    assert torch.allclose(shares.diagonal(dim1=1, dim2=2), torch.ones(24, 4), atol=0.02)
    neighbours = shares.diagonal(1, 1, 2)
    assert neighbours.mean() > least and shares[:, 0, 1:].mean() > least - 0.1


def test_covisibility_by_hand():
    """Two cameras a metre before a wall, half an image apart; and a third with its back to it."""
    camera = Pinhole.make(8, 8, fx=8.0, fy=8.0, cx=4.0, cy=4.0)
    directions = RayMap.from_camera(camera).directions
    points = (directions / directions[..., 2:]).expand(1, 3, 8, 8, 3)
    eyes = torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [0, 0, 0]])
    poses = Pose.look_at(eyes, eyes + torch.tensor([[0.0, 0, 1], [0, 0, 1], [0, 0, -1]]))
    poses = Pose(poses.world_from_cam[None])
    shares = compute_covisibility([camera] * 3, poses, points, torch.ones(1, 3, 8, 8).bool())
    wanted = torch.tensor([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    assert torch.allclose(shares[0], wanted)
    hidden = points.clone()
    hidden[:, 1] *= 0.5  # something stands before the second camera
    assert compute_covisibility([camera] * 3, poses, hidden, torch.ones(1, 3, 8, 8).bool())[0, 0, 1] == 0
    none = compute_covisibility([camera] * 3, poses, points, torch.zeros(1, 3, 8, 8).bool())
    assert none.abs().max() == 0


# Lenses


def test_every_view_has_a_field_of_view_and_principal_point_of_its_own():
    cameras = change(SMALL, batch=20).make_batch(0).views.cameras
    params = torch.stack([camera.params for camera in cameras], 1)
    assert params[..., 0].flatten().unique().numel() == 80
    fov = torch.rad2deg(2 * torch.atan(14 / params[..., 0]))
    assert fov.min() >= 50 and fov.max() <= 90 and fov.std(1).min() > 0.5
    centre = params[..., 2:4] / 28 - 0.5
    assert centre.abs().max() <= 0.1 and centre.abs().max() > 0.08 and centre.mean().abs() < 0.02


def test_zoom_keeps_the_first_view_and_crops_the_middle_of_the_others():
    native, zoomed = (change(SMALL, batch=16).with_lens("pinhole", zoom).make_batch(0) for zoom in (1.0, 3.0))
    before, after = (torch.stack([c.params for c in batch.views.cameras], 1) for batch in (native, zoomed))
    ratio = after[..., 0] / before[..., 0]
    assert torch.allclose(ratio[:, 0], torch.ones(16)) and ratio.min() >= 1 and 2.5 < ratio.max() <= 3
    assert torch.allclose(after[..., 2] - 14, ratio * (before[..., 2] - 14), atol=1e-4)


def test_mixed_sets_are_half_fisheye():
    kinds = [type(camera) for camera in SMALL.with_lens("mixed").make_batch(0).views.cameras]
    assert kinds == [Pinhole, OpenCVFisheye, Pinhole, OpenCVFisheye]


def test_random_fisheyes_are_monotone():
    unit = torch.rand(20_000, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = torch.cat([unit, torch.eye(5).double(), 1 - torch.eye(5).double(), torch.zeros(1, 5).double()])
    k = draw_fisheye_coefficients(unit)
    psi = torch.linspace(0, MONOTONE_RAD, 50, dtype=torch.float64)
    slope = rho_slope(psi, k[:, None])
    assert slope.min() >= 1 - STRENGTH - 1e-9 and slope.max() <= 1 + STRENGTH + 1e-9
    assert (critical_angle(k[:500]) >= MONOTONE_RAD - 1e-9).all()
    assert (k[:20_000].std(0) > torch.tensor([5e-3, 1e-3, 1e-4, 1e-5])).all()  # all four take part


def test_fisheyes_of_many_seeds_see_what_was_asked():
    data = change(SMALL.with_lens("fisheye"), batch=200, width=14, height=14, off_center=0.0, views=(2, 2))
    batch = data.make_batch(0)
    for camera in batch.views.cameras:
        OpenCVFisheye(camera.params, 14, 14)  # refuses lenses that fold
        edges = torch.tensor([[0.0, 7.0], [14.0, 7.0]]).expand(200, 2, 2)
        rays, valid = camera.unproject(edges)
        swept = torch.rad2deg(2 * torch.acos(rays[:, 0, 2]))
        assert valid.all() and swept.min() > 99.9 and swept.max() < 140.1
        assert swept.std() > 5


# Colours


def test_color_changes_images_and_nothing_else():
    plain, colored = SMALL.make_batch(0), change(SMALL, color=True).make_batch(0)
    assert (plain.images - colored.images).abs().mean() > 0.02
    assert colored.images.min() >= 0 and colored.images.max() <= 1
    assert torch.equal(plain.world_points, colored.world_points)


# Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fov_deg": (90.0, 60.0)}, "fov_deg .* must be a range"),
        ({"off_center": 0.5}, "off_center 0.5"),
        ({"width": 30}, "cannot be cut into patches of 14 px"),
        ({"views": (5, 4)}, "must be a range"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        change(SMALL, **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"split": "val"}, "unknown split 'val'"),
        ({"lens": "wide"}, "wide"),
        ({"fisheye_deg": (100.0, 250.0)}, "between 0° and 240°"),
        ({"zoom_max": 0.5}, "is below 1"),
    ],
)
def test_wrong_tests_are_refused(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(SMALL, **wrong)
