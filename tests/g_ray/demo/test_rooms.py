"""Rooms: geometry is exact, the same world is seen through every lens, and a seed is a room."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.demo.textures import PATTERNS
from g_ray.geometry.pose import Pose

WIDE = Pinhole.from_fov(90.0, 48, 36).to(dtype=torch.float64)
TELE = Pinhole.from_fov(35.0, 48, 36).to(dtype=torch.float64)
FISHEYE = OpenCVFisheye.make(48, 36, fx=19.0, fy=19.0, cx=24.0, cy=18.0, k1=-0.01).to(dtype=torch.float64)


@pytest.fixture(scope="module")
def room():
    return make_random_room(3, dtype=torch.float64)


def standing(room, x=-0.7, z=-0.8):
    eye = room.half_size * torch.tensor([x, -0.1, z], dtype=torch.float64)
    return Pose.look_at(eye, torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64))


@pytest.mark.parametrize("camera", [WIDE, TELE, FISHEYE], ids=["wide", "tele", "fisheye"])
def test_points_lie_where_depth_and_camera_say(room, camera):
    pose = standing(room)
    seen = room.render(camera, pose)
    in_camera = pose.inverse().apply(seen.points.reshape(-1, 3))
    assert torch.allclose(in_camera.norm(dim=-1), seen.ray_depth.reshape(-1), atol=1e-12)
    assert torch.allclose(in_camera[:, 2], seen.z_depth.reshape(-1), atol=1e-12)
    pixels, valid = camera.project(in_camera)
    columns, rows = torch.meshgrid(torch.arange(48) + 0.5, torch.arange(36) + 0.5, indexing="xy")
    assert valid.all()
    assert torch.allclose(pixels, torch.stack([columns, rows], -1).reshape(-1, 2).double(), atol=1e-6)


def test_every_point_lies_on_a_surface(room):
    points = room.render(FISHEYE, standing(room)).points.reshape(-1, 3)
    local = room.solids.solid_from_world @ (points[:, None] - room.solids.center)[..., None]
    distance = local[..., 0].abs().amax(-1)
    distance[:, room.solids.is_ball] = local[..., 0].norm(dim=-1)[:, room.solids.is_ball]
    assert (distance - 1).abs().amin(-1).max() < 1e-9
    assert (points.abs() <= room.half_size + 1e-9).all()


def test_nothing_stands_between_camera_and_point(room):
    """Casting from halfway meets the same point."""
    pose = standing(room)
    points = room.render(WIDE, pose).points.reshape(-1, 3)
    half = (points + pose.translation) / 2
    step = torch.nn.functional.normalize(points - half, dim=-1)
    distance, _ = room.cast(half, step)
    assert torch.allclose(distance, (points - half).norm(dim=-1), atol=1e-9)


def test_two_views_agree_on_what_both_see(room):
    first, second = standing(room), standing(room, x=-0.55, z=-0.75)
    seen, other = room.render(WIDE, first), room.render(FISHEYE, second)
    points = other.points.reshape(-1, 3)
    direction = torch.nn.functional.normalize(points - first.translation, dim=-1)
    distance, solid = room.cast(first.translation.expand_as(points), direction)
    visible = (distance - (points - first.translation).norm(dim=-1)).abs() < 1e-9
    assert visible.double().mean() > 0.5
    again = room.compute_color(first.translation + distance[:, None] * direction, solid)
    difference = (again - other.rgb.reshape(-1, 3)).abs().amax(-1)[visible]
    # Rounding may put a point on the other side of a pattern's border: rare, never typical.
    assert (difference < 1e-6).double().mean() > 0.99
    assert seen.rgb.shape == (36, 48, 3)


def test_colours_fill_the_range_and_antialiasing_keeps_the_mean(room):
    rough, smooth = room.render(WIDE, standing(room)), room.render(WIDE, standing(room), antialias=3)
    assert smooth.rgb.min() >= 0 and smooth.rgb.max() <= 1
    assert smooth.rgb.std() > 0.1
    assert abs(float(rough.rgb.mean() - smooth.rgb.mean())) < 0.01
    assert torch.equal(rough.points, smooth.points)


def test_a_seed_is_a_room():
    same, again, other = make_random_room(5), make_random_room(5), make_random_room(6)
    assert torch.equal(same.solids.center, again.solids.center)
    assert torch.equal(same.materials.colors, again.materials.colors)
    assert not torch.equal(same.half_size, other.half_size)


def test_float32_and_float64_are_the_same_room():
    small, large = make_random_room(5, dtype=torch.float32), make_random_room(5, dtype=torch.float64)
    assert torch.allclose(small.solids.solid_from_world.double(), large.solids.solid_from_world, atol=1e-5)


def test_a_batch_of_cameras_renders_each(room):
    cameras = Pinhole.stack([WIDE, TELE])
    pose = standing(room)
    both = room.render(cameras, Pose(torch.stack([pose.world_from_cam] * 2)))
    alone = room.render(TELE, pose)
    assert torch.allclose(both.rgb[1], alone.rgb)
    assert torch.allclose(both.points[1], alone.points)


def test_an_empty_room_is_a_box_and_a_negative_one_is_refused():
    empty = make_random_room(0, solids=0, dtype=torch.float64)
    forward = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    distance, solid = empty.cast(torch.zeros(1, 3, dtype=torch.float64), forward)
    assert torch.allclose(distance[0], empty.half_size[2]) and solid[0] == 0
    with pytest.raises(ValueError, match="cannot hold -1 solids"):
        make_random_room(0, solids=-1)


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_blend_between_zero_and_one(name):
    points = 10 * torch.rand(5000, 3, generator=torch.Generator().manual_seed(0)) - 5
    blend = PATTERNS[name](points)
    assert blend.shape == (5000,)
    assert blend.min() >= -1e-6 and blend.max() <= 1 + 1e-6
    assert blend.std() > 0.02
