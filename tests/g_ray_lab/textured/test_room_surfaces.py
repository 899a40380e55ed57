"""Panels, boxes and cut meshes, and the materials on them."""

import numpy as np
import pytest

from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh
from g_ray_lab.textured import patterns
from g_ray_lab.textured.materials import DETAIL_LIGHT, is_even, make_detail
from g_ray_lab.textured.panels import (
    join_meshes,
    make_box,
    make_panel,
    make_picture,
    map_material,
    place_mesh,
    space_evenly,
    split_creases,
    subdivide,
)
from g_ray_lab.textured.patterns import Material, make_noise, mute_colors, set_mean_light

GRAY = Material(np.full((4, 4, 3), 128, np.uint8), 0.5)


def measure_areas(mesh):
    a, b, c = mesh.vertices[mesh.faces].swapaxes(0, 1)
    return np.cross(b - a, c - a) / 2


def test_values_are_spaced_evenly_with_all_stops():
    np.testing.assert_allclose(space_evenly(0.0, 1.0, 0.4, [0.5, 2.0]), [0, 0.25, 0.5, 0.75, 1])


def test_a_panel_shows_its_material_at_its_size_and_faces_along_cross_up():
    steps = (np.array([0, 1, 2.0]), np.array([0, 0.5]))
    keep = np.array([[True, False]])
    panel = make_panel((1, 0, 0), (0, 1, 0), (0, 0, 1), steps, GRAY, keep)
    np.testing.assert_allclose(measure_areas(panel).sum(0), (0.5, 0, 0))  # one cell of 1 m × 0.5 m, facing +x
    np.testing.assert_allclose(panel.vertices[5], (1, 2, 0.5))
    np.testing.assert_allclose(panel.uv[5], (4, 1))  # 2 m and 0.5 m in repetitions of 0.5 m


def test_a_picture_shows_the_whole_image():
    picture = make_picture((0, 0, 0), (1, 0, 0), (0, 0, 1), (0.8, 0.4), GRAY.image)
    np.testing.assert_allclose(picture.uv.max(0), (1, 1))
    np.testing.assert_allclose(np.linalg.norm(measure_areas(picture), axis=-1).sum(), 0.32)


def test_a_box_is_closed_and_faces_outward():
    """By Gauss's theorem the outward flux of x / 3 is the volume."""
    box = make_box((0, 0, 0), (1, 2, 3), GRAY)
    middles = box.vertices[box.faces].mean(1)
    assert np.einsum("fk,fk->", measure_areas(box), middles) / 3 == pytest.approx(6)
    assert np.linalg.norm(measure_areas(box), axis=-1).sum() == pytest.approx(2 * (2 + 3 + 6))
    edges = box.vertices[box.faces] - np.roll(box.vertices[box.faces], 1, 1)
    assert np.abs(edges).max() <= 0.35 + 1e-9


def test_placing_turns_about_the_origin_first():
    mesh = place_mesh(make_box((0, 0, 0), (1, 0.1, 0.1), GRAY), (5, 0, 0), np.pi / 2)
    np.testing.assert_allclose(mesh.vertices.max(0), (5, 1, 0.1), atol=1e-9)


def test_joining_keeps_triangles_apart():
    parts = [make_box((0, 0, 0), (1, 1, 1), GRAY), make_box((2, 0, 0), (3, 1, 1), GRAY)]
    joined = join_meshes(parts)
    assert np.linalg.norm(measure_areas(joined), axis=-1).sum() == pytest.approx(12)


@pytest.fixture
def cube():
    """A cube with eight shared vertices, as models have them."""
    corners = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([[(a, b, c), (a, c, d)] for a, b, c, d in quads]).reshape(-1, 3)
    return Mesh(corners, faces, np.full((8, 3), 0.5, np.float32))


def test_a_cube_is_split_into_six_sides(cube):
    split = split_creases(cube)
    assert len(split.vertices) == 24
    np.testing.assert_array_equal(split.vertices[split.faces], cube.vertices[cube.faces])


def test_materials_are_projected_along_the_axis_of_a_side(cube):
    covered = map_material(split_creases(cube), GRAY, np.ones((24, 3), np.float32))
    uv = covered.uv[covered.faces]
    a, b, c = uv.swapaxes(0, 1)
    area = np.abs(np.linalg.det(np.stack([b - a, c - a], 1))) / 2
    np.testing.assert_allclose(area, 0.5 / 0.5**2)  # every triangle has 0.5 m² at 4 repetitions per m²


def test_subdivision_keeps_the_surface_and_bounds_edges(cube):
    fine = subdivide(split_creases(cube), 0.3)
    np.testing.assert_allclose(np.linalg.norm(measure_areas(fine), axis=-1).sum(), 6)
    corners = fine.vertices[fine.faces]
    assert np.linalg.norm(corners - np.roll(corners, 1, 1), axis=-1).max() <= 0.3
    np.testing.assert_allclose(measure_areas(fine).sum(0), 0, atol=1e-12)
    assert len(subdivide(cube, 0.01, max_faces=100).faces) <= 200


ALL = tuple(dict.fromkeys((*patterns.FLOORS, *patterns.WALLS, *patterns.FURNITURE, *patterns.FABRICS)))


@pytest.mark.parametrize("draw", ALL, ids=lambda draw: draw.__name__)
def test_materials_repeat_without_a_seam_and_have_detail(draw):
    """The step from the last row or column to the first is no larger than the largest one inside."""
    material = draw(np.random.default_rng(5))
    assert material.image.shape == (patterns.SIZE, patterns.SIZE, 3) and 0.3 < material.meters < 6
    image = material.image.astype(float).mean(-1)
    for turned in (image, image.T):
        steps = np.abs(np.diff(turned, axis=0)).mean(1)
        seam = np.abs(turned[0] - turned[-1]).mean()
        assert seam <= 1.1 * steps.max() + 1
    assert image.std() > 2


def test_noise_is_periodic_with_unit_deviation():
    noise = make_noise(np.random.default_rng(0), 64, 1.2)
    assert noise.std() == pytest.approx(1, abs=1e-3) and abs(noise.mean()) < 1e-3
    rough = make_noise(np.random.default_rng(0), 64, 0.2)
    assert np.abs(np.diff(noise)).mean() < np.abs(np.diff(rough)).mean()  # steeper slopes are smoother


def test_light_of_images_is_set_in_linear_light():
    image = np.random.default_rng(0).integers(20, 90, (32, 32, 3)).astype(np.uint8)
    assert LINEAR_OF_BYTE[set_mean_light(image, 0.3)].mean() == pytest.approx(0.3, abs=0.01)
    assert LINEAR_OF_BYTE[set_mean_light(image, 0.9)].max() <= 1
    detail = make_detail(Material(image, 1.0)).image
    assert LINEAR_OF_BYTE[detail].mean() == pytest.approx(DETAIL_LIGHT, abs=0.02)
    assert np.ptp(detail, axis=-1).max() == 0


def test_strong_colors_are_muted():
    red = np.full((8, 8, 3), (200, 40, 40), np.uint8)
    mean = mute_colors(red).reshape(-1, 3).mean(0)
    assert 1 - mean.min() / mean.max() < 0.55
    gray = np.full((8, 8, 3), 90, np.uint8)
    np.testing.assert_array_equal(mute_colors(gray), gray)


def test_photographs_of_one_material_are_told_from_atlases():
    random = np.random.default_rng(0)
    wood = random.integers(100, 150, (256, 256, 3)).astype(np.uint8)
    atlas = wood.copy()
    atlas[:, 128:] = 10
    assert is_even(wood) and not is_even(atlas) and not is_even(wood[:64])
