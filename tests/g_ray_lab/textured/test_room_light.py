"""Light of rooms: a small lamp against the inverse square law, shadows, bounds, and sides that face the room."""

import numpy as np
import pytest
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene

from g_ray_lab.textured.light import (
    MAX_LIGHT,
    AreaLight,
    Lighting,
    Sun,
    convert_temperature,
    light_surfaces,
    trace_direct_light,
)
from g_ray_lab.textured.panels import Surface, make_box, make_panel, space_evenly
from g_ray_lab.textured.patterns import Material

WHITE = Material(np.full((4, 4, 3), 255, np.uint8), 1.0)


def make_lamp(x=0.0, y=0.0, z=2.0, side=0.02, radiance=1.0):
    halves = np.array([[side / 2, 0, 0], [0, side / 2, 0]])
    return AreaLight(np.array([x, y, z]), halves, np.array([0, 0, -1.0]), np.full(3, radiance))


def make_lighting(*lamps, sun=None, ambient=0.0, level=0.5):
    return Lighting(lamps, sun, np.full(3, ambient), level)


def make_scene(*meshes):
    scene = EmbreeScene(robust=True)
    for mesh in meshes:
        TriangleMesh(scene, mesh.vertices.astype(np.float32), mesh.faces.astype(np.int32))
    return scene


def make_floor(half=3.0, cell=0.25):
    steps = space_evenly(-half, half, cell)
    return make_panel((0, 0, 0), (1, 0, 0), (0, 1, 0), (steps, steps), WHITE)


def trace(scene, places, lighting):
    places = np.array(places, float)
    normals = np.broadcast_to([0, 0, 1.0], places.shape)
    return trace_direct_light(scene, places, normals, lighting, np.random.default_rng(0))


def test_a_small_lamp_follows_the_inverse_square_law():
    """Irradiance below it is L · A · cos² θ / r², with both cosines h / r at height h."""
    scene = make_scene(make_floor())
    vector = trace(scene, [(0, 0, 0), (1, 0, 0), (2, 1, 0)], make_lighting(make_lamp(radiance=5.0)))
    height = 2 - 0.012  # rays start a little above the floor
    distance2 = height**2 + np.array([0, 1, 5])
    expected = 5.0 * 0.02**2 * height**2 / distance2**2
    np.testing.assert_allclose(vector[:, 0, 2], expected, rtol=2e-3)
    np.testing.assert_allclose(vector[:, 0], vector[:, 1])  # white light


def test_a_board_casts_a_shadow_with_a_soft_edge():
    board = make_box((-0.5, -0.5, 1.0), (0.5, 0.5, 1.02), WHITE)
    scene = make_scene(make_floor(), board)
    lamp = make_lighting(make_lamp(side=0.5))
    below, edge, far = trace(scene, [(0, 0, 0), (1.0, 0, 0), (2.5, 0, 0)], lamp)[:, 0, 2]
    bare = trace(make_scene(make_floor()), [(0, 0, 0), (1.0, 0, 0), (2.5, 0, 0)], lamp)[:, 0, 2]
    assert below == 0 and far == pytest.approx(bare[2], rel=0.05)
    assert 0 < edge < 0.95 * bare[1]


def test_the_sun_enters_through_a_hole():
    steps = space_evenly(-3.0, 3.0, 0.5)
    middle = (steps[1:] + steps[:-1]) / 2
    hole = (np.abs(middle) < 0.6)[:, None] & (np.abs(middle) < 0.6)
    roof = make_panel((0, 0, 2), (1, 0, 0), (0, 1, 0), (steps, steps), WHITE, ~hole)
    sun = Sun(np.array([0.6, 0, 0.8]), np.array([3.0, 2.0, 1.0]))
    scene = make_scene(make_floor(), roof)
    inside, outside = trace(scene, [(-1.5, 0, 0), (0, 0, 0)], make_lighting(sun=sun))
    np.testing.assert_allclose(inside, np.outer([3, 2, 1], [0.6, 0, 0.8]))
    assert not outside.any()


@pytest.fixture(scope="module")
def lit():
    """A closed room with a lamp, a box whose triangles are inside out, and a glowing panel."""
    room = make_box((-2, -2, 0), (2, 2, 2.5), WHITE, cell=0.25)
    box = make_box((-0.5, -0.5, 0.0), (0.5, 0.5, 0.8), WHITE)
    box = type(box)(box.vertices, box.faces[:, ::-1].copy(), box.tint * 0.4, box.uv, box.texture)
    lamp = make_box((-0.2, -0.2, 2.45), (0.2, 0.2, 2.5), WHITE)
    surfaces = [Surface(room), Surface(box), Surface(lamp, glows=True)]
    lighting = make_lighting(make_lamp(z=2.4, side=0.4, radiance=4.0), ambient=0.02, level=0.6)
    return surfaces, light_surfaces(surfaces, lighting, np.random.default_rng(0))


def test_light_is_bounded_and_has_the_wanted_level(lit):
    _, (room, box, _) = lit
    for mesh, albedo in ((room, 1.0), (box, 0.4)):
        assert np.isfinite(mesh.tint).all() and mesh.tint.min() > 0
        assert mesh.tint.max() <= albedo * MAX_LIGHT
    assert 0.3 < room.tint.mean() < 0.7


def test_glowing_surfaces_keep_their_color(lit):
    surfaces, meshes = lit
    np.testing.assert_array_equal(meshes[2].tint, surfaces[2].mesh.tint)


def test_the_top_of_a_box_is_brighter_than_the_floor_beside_it(lit):
    _, (room, box, _) = lit
    top = box.tint[np.isclose(box.vertices[:, 2], 0.8)].mean() / 0.4
    x, y, z = room.vertices.T
    beside = room.tint[(z < 1e-6) & (np.abs(x) < 0.8) & (np.abs(y) < 0.8) & (np.abs(x) > 0.5)].mean()
    assert top > 1.1 * beside


def test_fronts_face_the_open_side(lit):
    _, (room, box, _) = lit
    for mesh, sign in ((room, -1), (box, 1)):
        a, b, c = mesh.vertices[mesh.faces].swapaxes(0, 1)
        outward = (a + b + c) / 3 - np.array([0, 0, 0.4 if sign > 0 else 1.25])
        away = np.einsum("fk,fk->f", np.cross(b - a, c - a), outward) * sign
        # What stands on the floor hides the floor's front and its own underside.
        hidden = (np.abs(a[:, :2]).max(-1) <= 0.8) & (a[:, 2] < 1e-6)
        assert (away[~hidden] > 0).mean() > 0.97


def test_warm_light_is_red_and_cold_light_is_blue():
    warm, neutral, cold = (convert_temperature(kelvin) for kelvin in (2700.0, 6500.0, 10000.0))
    assert warm[0] > warm[1] > warm[2] and cold[2] > cold[1] > cold[0]
    np.testing.assert_allclose(neutral, 1, atol=0.02)
    assert all(color.mean() == pytest.approx(1) for color in (warm, neutral, cold))
