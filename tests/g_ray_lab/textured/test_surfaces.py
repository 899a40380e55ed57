"""Views of textured surfaces against what can be computed without a renderer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh
from g_ray_lab.meshes.texel_table import TexelTable
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.textured.walk_writer import draw_sky

LOW, HIGH = np.array([-2.0, -3.0, -1.0]), np.array([3.0, 2.0, 2.0])
CHECKS = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, -1)


def make_box(texture: np.ndarray = CHECKS) -> Mesh:
    """A room with corners LOW and HIGH, its fronts inside."""
    x, y, z = np.meshgrid(*np.stack([LOW, HIGH], -1), indexing="ij")
    corners = np.stack([x, y, z], -1).reshape(-1, 3)
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    vertices = np.concatenate([corners[list(side)] for side in sides])
    faces = np.concatenate([np.array([[2, 1, 0], [3, 2, 0]]) + 4 * i for i in range(6)])
    uv = np.tile(np.array([[0, 0], [0, 1], [1, 1], [1, 0]], np.float32) * 4, (6, 1))
    return Mesh(vertices, faces, np.ones((24, 3), np.float32), uv, texture)


def make_floor(size_m: float, texture: np.ndarray, texels_per_m: float) -> Mesh:
    """A square at z = 0 around the origin, seen from above."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float64) * size_m
    uv = (corners[:, :2] * texels_per_m / len(texture)).astype(np.float32)
    return Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]), np.ones((4, 3), np.float32), uv, texture)


def look_down(height: float) -> Pose:
    return Pose.look_at((0.0, 0.0, height), (0.0, 0.0, 0.0), down=(0.0, -1.0, 0.0))


LENSES = {
    "pinhole": Pinhole.from_fov(100.0, 40, 30),
    "fisheye": OpenCVFisheye.make(40, 30, fx=11.0, fy=11.0, cx=20.0, cy=15.0),
    "panorama": Equirectangular.panorama(40, 20),
}


@pytest.mark.parametrize("lens", LENSES)
def test_depth_and_normals_of_a_room_for_any_lens(lens):
    camera, eye = LENSES[lens], torch.tensor([0.5, -0.2, 0.3])
    pose = Pose.look_at(eye, eye + torch.tensor([1.0, 0.4, -0.2]), down=(0.0, 0.0, -1.0))
    seen = MeshScene([make_box()], light=False, prefilter=True).view(camera, pose)
    local, has_ray = camera.unproject_grid()
    rays = pose.rotate(local).double()
    # The first of the three planes ahead, by the slab method.
    ahead = torch.where(rays > 0, torch.tensor(HIGH), torch.tensor(LOW))
    distances = (ahead - eye.double()) / rays
    truth, axis = distances.min(-1)
    expected = torch.nn.functional.one_hot(axis, 3) * -rays.sign()
    clear = has_ray & (distances.sort(-1).values.diff(dim=-1)[..., 0] > 1e-3)  # not on the edge of two planes
    assert (seen.valid == has_ray).all() and clear.float().mean() > 0.5
    assert torch.allclose(seen.ray_depth[clear].double(), truth[clear], atol=1e-5)
    assert torch.allclose(seen.normals[clear].double(), expected[clear], atol=1e-6)
    assert seen.back_share == 0 and (seen.sky == 0).all()


def test_a_batch_of_views_is_its_views():
    scene = MeshScene([make_box()], light=False, prefilter=True)
    poses = [Pose.look_at((0.0, 0.0, z), (1.0, 0.2, 0.0), down=(0.0, 0.0, -1.0)) for z in (0.1, 0.4)]
    both = Pose(torch.stack([pose.world_from_cam for pose in poses]))
    camera = LENSES["pinhole"]
    together = scene.view(Pinhole.stack([camera, camera]), both)
    for number, pose in enumerate(poses):
        alone = scene.view(camera, pose)
        assert (together.light[number] == alone.light).all()
        assert (together.ray_depth[number] == alone.ray_depth).all()


def test_far_checks_are_gray_with_one_ray_per_pixel():
    """16 checks per pixel: without reduced textures each pixel would be black or white."""
    floor, camera = make_floor(20, CHECKS, texels_per_m=100), Pinhole.from_fov(60.0, 40, 40)
    gray = MeshScene([floor], light=False, prefilter=True).view(camera, look_down(5.5)).light
    assert (gray - 0.5).abs().max() < 0.02
    plain = MeshScene([floor], light=False).view(camera, look_down(5.5)).light
    assert plain.std() > 0.1


@pytest.mark.parametrize("texels_per_px", [0.2, 1.0, 4.0])
def test_textures_are_as_sharp_as_pixels_allow(texels_per_px):
    """Against the mean of 8 × 8 rays per pixel: nearer to it than a gray image is."""
    texture = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    camera = Pinhole.make(48, 48, fx=48.0, fy=48.0, cx=24.0, cy=24.0)
    floor = make_floor(4, texture, texels_per_m=48 * texels_per_px / 2)
    seen = MeshScene([floor], light=False, prefilter=True).view(camera, look_down(2.0)).light
    fine = MeshScene([floor], light=False).view(camera.resize(384, 384), look_down(2.0)).light
    truth = fine.reshape(48, 8, 48, 8, 3).mean((1, 3))
    assert (seen - truth).std() < 0.85 * truth.std()


def test_edges_mix_what_is_on_both_sides():
    """A white sheet covers a quarter of the pixels' column: one ray would see all or nothing of it."""
    white = np.full((1, 1, 3), 255, np.uint8)
    black = make_floor(9, np.zeros((1, 1, 3), np.uint8), 1)
    sheet = make_floor(1, white, 1)
    sheet = replace(sheet, vertices=sheet.vertices * [1.25, 4, 0] + np.array([0, 0, 1.0]))
    camera = Pinhole.make(8, 8, fx=8.0, fy=8.0, cx=4.0, cy=4.0)
    # From 5 m above, a pixel is half a meter at the sheet's height of 1 m; its edge at 1.25 m is at 6.5 px.
    light = MeshScene([black, sheet], light=False, prefilter=True).view(camera, look_down(5.0)).light[..., 0]
    assert (light[:, 2:6] > 0.999).all() and (light[:, [0, 7]] == 0).all()
    assert ((light[:, [1, 6]] - 0.5).abs() <= 0.11).all()


def test_the_sky_has_no_depth():
    box = make_box()
    room = replace(box, faces=box.faces[:-2])  # without its ceiling
    sky = replace(box, faces=box.faces[-2:], sky=True)
    camera = Equirectangular.panorama(32, 16)
    pose = Pose.look_at((0.0, 0.0, 0.5), (1.0, 0.0, 0.5), down=(0.0, 0.0, -1.0))
    scene = MeshScene([room, sky], light=False, prefilter=True)
    seen = scene.view(camera, pose)
    assert (seen.valid == (seen.ray_depth > 0)).all()
    assert not seen.valid[0].any() and seen.valid[-1].all()
    assert (seen.sky[0] == 1).all() and (seen.sky[-1] == 0).all()
    assert (seen.light[0] == 0).all() and (seen.normals[0] == 0).all()


def test_light_maps_multiply():
    box = make_box(np.full((1, 1, 3), 188, np.uint8))
    light = np.array([[[10, 20, 30], [200, 210, 220]]], np.uint8)  # left, right
    for u, expected in ((0.0, light[0, 0]), (1.0, light[0, 1])):
        lit = replace(box, light_map=light, light_uv=np.full((24, 2), u, np.float32))
        seen = MeshScene([lit], light=False).view(LENSES["pinhole"], look_down(1.0)).light
        assert np.allclose(seen.numpy(), LINEAR_OF_BYTE[188] * LINEAR_OF_BYTE[expected], rtol=1e-5)


# Texels


def test_reduced_copies_keep_the_mean_light():
    image = np.random.default_rng(3).integers(0, 256, (48, 20, 3), dtype=np.uint8)
    table = TexelTable([CHECKS, image], levels=8)
    last = table.sample(np.array([1]), np.zeros((1, 2), np.float32), np.array([True]), np.array([7]))
    assert np.allclose(last, LINEAR_OF_BYTE[image].mean((0, 1)), atol=0.01)
    assert table.size[1, -1].tolist() == [1, 1] and table.size[0, 3].tolist() == [8, 8]


def test_random_skies_shine_everywhere():
    random = np.random.default_rng(0)
    directions = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(200, 3))).float(), dim=-1)
    light = torch.stack([draw_sky(random).shine(directions) for _ in range(20)])
    assert torch.isfinite(light).all() and light.min() > 0 and light.max() < 3
    assert light.mean((1, 2)).std() > 0.1
