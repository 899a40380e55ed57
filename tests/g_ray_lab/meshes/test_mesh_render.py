"""Rendered meshes against what can be computed without a renderer."""

import numpy as np
import pytest
import torch
import trimesh

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.meshes.mesh_files import (
    LINEAR_OF_BYTE,
    Mesh,
    linear_to_srgb_bytes,
    read_meshes,
    scale_to_unit_size,
)
from g_ray_lab.meshes.textured_scene import AMBIENT, DIFFUSE, SUN, MeshScene

IDENTITY = Pose.identity(dtype=torch.float64)


def painted(vertices, faces, colour=(0.2, 0.5, 0.8)) -> Mesh:
    tint = np.tile(np.array(colour, np.float32), (len(vertices), 1))
    return Mesh(np.asarray(vertices, np.float64), np.asarray(faces, np.int64), tint)


def quad(texture: np.ndarray, uv=((0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)), repeat=True) -> Mesh:
    """Fills the view of `frontal` at depth 2: corners as seen, from the upper left one clockwise."""
    corners = np.array([[-1, -1, 2], [1, -1, 2], [1, 1, 2], [-1, 1, 2]], np.float64)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    return Mesh(corners, faces, np.ones((4, 3), np.float32), np.array(uv, np.float32), texture, repeat)


def frontal(size: int) -> Pinhole:
    return Pinhole.make(size, size, fx=size, fy=size, cx=size / 2, cy=size / 2, dtype=torch.float64)


def noise(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def photograph(parts: list[Mesh], camera=None, pose=IDENTITY, light=False, antialias=1) -> np.ndarray:
    camera = camera or frontal(8)
    return MeshScene(parts, light).render_color(camera, pose, antialias).movedim(-3, -1).numpy()


# Depth


def test_the_depth_of_a_box_is_that_of_its_slabs():
    box = trimesh.creation.box(extents=(1.0, 0.6, 0.8))
    pose = Pose.look_at([1.1, -1.4, 0.7], [0.0, 0.1, 0.0], down=(0.0, 0.0, -1.0)).to(torch.float64)
    camera = Pinhole.from_fov(50.0, 60, 44, dtype=torch.float64)
    seen = MeshScene([painted(box.vertices, box.faces)]).render(camera, pose)
    rays = RayMap.from_camera(camera).to_world(pose)
    ends = (
        torch.tensor([[-0.5, -0.3, -0.4], [0.5, 0.3, 0.4]])[:, None, None] - rays.origins
    ) / rays.directions
    enter, leave = ends.amin(0).amax(-1), ends.amax(0).amin(-1)
    inside = leave - enter  # rays that only graze an edge may be missed
    assert (seen.mask == (inside > 0))[inside.abs() > 1e-4].all()
    assert 0.2 < seen.mask.double().mean() < 0.9
    assert torch.allclose(seen.ray_depth[seen.mask], enter[seen.mask], atol=3e-6)
    axis = RayMap.from_camera(camera).directions[..., 2]
    assert torch.allclose(seen.z_depth, seen.ray_depth * axis, atol=1e-12)
    assert (seen.ray_depth[~seen.mask] == 0).all()


def test_the_depth_of_a_ball():
    ball = trimesh.creation.icosphere(subdivisions=5)
    pose = Pose.look_at([0.0, -3.0, 0.5], [0.0, 0.0, 0.0], down=(0.0, 0.0, -1.0)).to(torch.float64)
    camera = Pinhole.from_fov(40.0, 64, 64, dtype=torch.float64)
    seen = MeshScene([painted(ball.vertices, ball.faces)]).render(camera, pose)
    rays = RayMap.from_camera(camera).to_world(pose)
    along = -(rays.origins * rays.directions).sum(-1)
    missed_by = (rays.origins + along[..., None] * rays.directions).norm(dim=-1)
    middle = missed_by < 0.9
    truth = along - (1 - missed_by**2).clamp(min=0).sqrt()
    assert seen.mask[middle].all() and not seen.mask[missed_by > 1].any()
    assert (seen.ray_depth - truth)[middle].abs().max() < 3e-3  # what 20,480 flat triangles leave


def first_hit(triangles, origin, directions):
    """Every ray with every triangle, in double precision (Möller and Trumbore)."""
    a, ab, ac = triangles[:, 0], triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    p = np.cross(directions[:, None], ac)
    volume = (ab * p).sum(-1)
    s = origin - a
    u = (s * p).sum(-1) / volume
    q = np.cross(s, ab)
    v = (directions[:, None] * q).sum(-1) / volume
    distance = (ac * q).sum(-1) / volume
    edge = np.minimum(np.minimum(u, v), 1 - u - v)
    hit = np.where((edge >= 0) & (distance > 0), distance, np.inf)
    unsure = (np.abs(edge) < 1e-4).any(-1)
    return hit.min(-1), hit.argmin(-1), unsure


def test_a_soup_of_triangles_is_hit_where_double_precision_says():
    random = np.random.default_rng(3)
    centres = random.uniform(-0.5, 0.5, (60, 1, 3))
    vertices = (centres + random.normal(0, 0.15, (60, 3, 3))).reshape(-1, 3)
    scene = MeshScene([painted(vertices, np.arange(180).reshape(-1, 3))])
    origin = np.array([0.2, -2.0, 0.4])
    directions = random.normal(0, 0.3, (2000, 3)) - origin
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    hits = scene.cast(origin, directions)
    distance, triangle, unsure = first_hit(vertices.reshape(-1, 3, 3), origin, directions)
    found = np.full(len(directions), np.inf)
    found[hits.ray] = hits.distance
    assert 500 < len(hits.ray) < 1900
    assert (np.isfinite(found) == np.isfinite(distance))[~unsure].all()
    sure = ~unsure & np.isfinite(distance)
    assert np.abs(found[sure] - distance[sure]).max() < 2e-5
    faces = np.full(len(directions), -1)
    faces[hits.ray] = hits.face
    assert (faces == triangle)[sure].mean() > 0.999
    corners = vertices.reshape(-1, 3, 3)[hits.face]
    points = (corners * hits.weights[..., None]).sum(1)
    assert np.abs(points - origin - hits.distance[:, None] * directions[hits.ray]).max() < 2e-5


def test_a_fisheye_sees_behind_itself():
    ball = trimesh.creation.icosphere(subdivisions=5)
    camera = OpenCVFisheye.make(64, 64, fx=13.0, fy=13.0, cx=32.0, cy=32.0, dtype=torch.float64)
    seen = MeshScene([painted(ball.vertices, ball.faces)]).render(camera, IDENTITY)
    rays = RayMap.from_camera(camera)
    assert (seen.mask == rays.valid).all() and not rays.valid.all()
    assert (seen.ray_depth[seen.mask] - 1).abs().max() < 3e-3
    assert seen.z_depth.min() < -0.2
    assert (seen.rgb[:, ~rays.valid] == 0).all()


# Texture


def test_a_texture_appears_unflipped_pixel_by_pixel():
    texture = noise(8)
    assert (photograph([quad(texture)]) == texture).all()


@pytest.mark.parametrize("repeat", [True, False])
def test_between_texel_centres_light_is_interpolated(repeat):
    """Against torch's grid_sample, whose corners are not aligned: half a texel of border is as it should be."""
    texture, size = noise(6, seed=1), 23
    light = torch.from_numpy(LINEAR_OF_BYTE[texture]).movedim(-1, 0)
    if repeat:  # one more texel of each neighbour
        light = torch.nn.functional.pad(light[None], (1, 1, 1, 1), mode="circular")[0]
    steps = (torch.arange(size) + 0.5) / size * 2 - 1
    steps = steps * (6 / 8 if repeat else 1)
    grid = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)[None]
    sampled = torch.nn.functional.grid_sample(light[None], grid, padding_mode="border", align_corners=False)[
        0
    ]
    shown = photograph([quad(texture, repeat=repeat)], frontal(size)).astype(int)
    expected = linear_to_srgb_bytes(sampled.movedim(0, -1).numpy()).astype(int)
    assert np.abs(shown - expected).max() <= 1


@pytest.mark.parametrize(("repeat", "mode"), [(True, "wrap"), (False, "edge")])
def test_beyond_its_border_a_texture_repeats_or_goes_on(repeat, mode):
    texture = noise(4)
    uv = ((-1.0, 2.0), (2.0, 2.0), (2.0, -1.0), (-1.0, -1.0))
    expected = np.pad(texture, ((4, 4), (4, 4), (0, 0)), mode=mode)
    assert (photograph([quad(texture, uv, repeat)], frontal(12)) == expected).all()


@pytest.mark.parametrize("suffix", ["glb", "obj"])
def test_a_texture_from_a_file_appears_unflipped(tmp_path, suffix):
    """Files have y up and the quad faces +z, which becomes −y; it is looked at from there."""
    from PIL import Image

    texture = noise(8)
    vertices = [[-1, 1, 0], [1, 1, 0], [1, -1, 0], [-1, -1, 0]]
    uv = [[0, 1], [1, 1], [1, 0], [0, 0]]
    image = Image.fromarray(texture)
    material = (
        trimesh.visual.material.PBRMaterial(baseColorTexture=image)
        if suffix == "glb"
        else trimesh.visual.material.SimpleMaterial(image=image)
    )
    surface = trimesh.Trimesh(vertices, [[0, 2, 1], [0, 3, 2]], process=False)
    surface.visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    surface.export(tmp_path / f"quad.{suffix}")
    parts = scale_to_unit_size(read_meshes(tmp_path / f"quad.{suffix}"))
    pose = Pose.look_at([0.0, -1.0, 0.0], [0.0, 0.0, 0.0], down=(0.0, 0.0, -1.0)).to(torch.float64)
    assert (photograph(list(parts), frontal(8), pose) == texture).all()


def test_many_parts_keep_their_own_textures():
    """Three quads behind each other's cut-outs: a wrong offset into the table of texels would mix them up."""
    textures = [noise(4, seed) for seed in range(3)]
    parts = []
    for number, texture in enumerate(textures):
        whole = quad(texture)
        share = Mesh(
            whole.vertices * [1 / 3, 1, 1] + [(number - 1) * 2 / 3, 0, 0],
            whole.faces,
            whole.tint,
            whole.uv,
            texture,
        )
        parts.append(share)
    plain = painted([[-9, -9, 5], [9, -9, 5], [0, 9, 5]], [[0, 1, 2]])
    camera = Pinhole.make(12, 4, fx=12.0, fy=4.0, cx=6.0, cy=2.0, dtype=torch.float64)
    assert (photograph([parts[0], plain, *parts[1:]], camera) == np.concatenate(textures, axis=1)).all()


# Light


def test_light_depends_on_the_slope_of_the_side_that_is_seen():
    sun = SUN / np.linalg.norm(SUN)
    across = np.linalg.svd(sun[None])[2][1:]
    vertices = np.concatenate([across, -across.sum(0, keepdims=True)]).astype(np.float64)
    scene = MeshScene([painted(vertices, [[0, 1, 2]], (0.5, 0.5, 0.5))])
    for side, expected in ((1, AMBIENT + DIFFUSE), (-1, AMBIENT - DIFFUSE)):
        eye = side * (2 * sun + 0.3 * across[0]).astype(np.float64)
        direction = -(eye / np.linalg.norm(eye))[None].astype(np.float32)
        hits = scene.cast(eye, direction)
        assert np.allclose(scene.shade(hits, direction), 0.5 * expected, atol=1e-6)


def test_half_a_pixel_of_black_is_half_of_the_light():
    """Light is averaged, not stored values: 188 and not 128."""
    black = painted([[-9, -9, 2], [0, -9, 2], [0, 9, 2], [-9, 9, 2]], [[0, 1, 2], [0, 2, 3]], (0, 0, 0))
    camera = Pinhole.make(3, 3, fx=3.0, fy=3.0, cx=1.5, cy=1.5, dtype=torch.float64)
    image = photograph([black], camera, antialias=4)
    assert [int(value) for value in image[1, :, 0]] == [0, 188, 255]
    assert (photograph([black], camera, antialias=1)[:, 2] == 255).all()


def test_batches_of_cameras_are_rendered_one_by_one():
    ball = trimesh.creation.icosphere(subdivisions=2)
    scene = MeshScene([painted(ball.vertices, ball.faces)])
    eyes = torch.tensor([[[0.0, -3.0, 0.0], [3.0, 0.0, 1.0]]], dtype=torch.float64)
    poses = Pose.look_at(eyes, torch.zeros_like(eyes), down=(0.0, 0.0, -1.0))
    focal = torch.tensor([[9.0, 14.0]], dtype=torch.float64)
    cameras = Pinhole.make(10, 8, fx=focal, fy=focal, cx=5.0, cy=4.0)
    together = scene.render(cameras, poses, antialias=2)
    assert together.rgb.shape == (1, 2, 3, 8, 10) and together.z_depth.shape == (1, 2, 8, 10)
    alone = scene.render(cameras[0, 1], poses[0, 1], antialias=2)
    assert torch.equal(together.rgb[0, 1], alone.rgb) and torch.equal(
        together.ray_depth[0, 1], alone.ray_depth
    )


def test_stored_values_survive_the_way_through_light():
    values = np.arange(256, dtype=np.uint8)
    assert (linear_to_srgb_bytes(LINEAR_OF_BYTE[values]) == values).all()
