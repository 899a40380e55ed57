"""Objects from seeds: different, closed, textured, and the same again."""

import numpy as np
import pytest
import torch
import trimesh

from g_ray.geometry.pose import Pose
from g_ray_lab.datasets.objaverse import NATIVE
from g_ray_lab.meshes.mesh_files import scale_to_unit_size
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.draws import make_object_random
from g_ray_lab.sources.procedural_meshes import SHAPES, make_random_object
from g_ray_lab.sources.render_objects import sample_cameras


def made(seed: int):
    return scale_to_unit_size(make_random_object(np.random.default_rng(seed)))


def test_every_seed_is_an_object_of_its_own_and_the_same_again():
    first, again, other = made(0), made(0), made(1)
    assert all(np.array_equal(a.vertices, b.vertices) for a, b in zip(first, again, strict=True))
    assert all(np.array_equal(a.texture, b.texture) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].texture, other[0].texture)
    numbers = {len(made(seed)) for seed in range(2, 7)}
    assert len(numbers) > 1 and numbers <= {1, 2, 3, 4}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_surfaces_close_around_the_axis(shape):
    surface = shape(np.random.default_rng(5))
    v = np.linspace(0, 1, 50)
    assert np.allclose(surface(np.zeros(50), v), surface(np.ones(50), v), atol=1e-9)
    u = np.linspace(0, 1, 50)
    ends = surface(u, np.zeros(50)), surface(u, np.ones(50))
    if shape.__name__ == "make_torus":
        assert np.allclose(*ends, atol=1e-9)
    else:
        assert all(np.allclose(end, end[0], atol=1e-9) for end in ends)


def test_solids_are_watertight_once_their_seams_are_joined():
    for part in made(3):
        surface = trimesh.Trimesh(part.vertices, part.faces, process=False)
        surface.merge_vertices(merge_tex=True, merge_norm=True, digits_vertex=6)
        surface.update_faces(surface.nondegenerate_faces())
        assert surface.is_watertight


def test_textures_have_something_to_match():
    contrast = [part.texture.astype(float).std((0, 1)).max() for seed in range(5) for part in made(seed)]
    assert min(contrast) > 4 and np.median(contrast) > 20


def test_two_views_see_the_same_colour_at_the_same_point():
    """Points of one view, projected into the next, show what they showed: pose, depth, texture and light agree."""
    name = "a"
    scene = MeshScene(scale_to_unit_size(make_random_object(make_object_random(name, 0, "mesh"))))
    views = sample_cameras(name, 0, 96)
    first, second = 3 * 2 + NATIVE, 3 * 3 + NATIVE
    seen = [scene.render(views.cameras[i], views.poses[i], antialias=3) for i in (first, second)]
    rays, _ = views.cameras[first].unproject_grid()
    points = views.poses[first].apply(rays[seen[0].mask] * seen[0].ray_depth[seen[0].mask][:, None])
    local = Pose(views.poses[second].cam_from_world).apply(points)
    pixels, _ = views.cameras[second].project(local)
    column, row = pixels.floor().long().clamp(0, 95).unbind(-1)
    visible = (seen[1].z_depth[row, column] - local[:, 2]).abs() < 5e-3
    here = seen[0].rgb[:, seen[0].mask].float()
    there = seen[1].rgb[:, row, column].float()
    difference = (here - there).abs().mean(0)
    assert visible.double().mean() > 0.3
    assert difference[visible].median() < 8
    mixed = there[:, visible][
        :, torch.randperm(int(visible.sum()), generator=torch.Generator().manual_seed(0))
    ]
    assert (here[:, visible] - mixed).abs().mean(0).median() > 2 * difference[visible].median()
