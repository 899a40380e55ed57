"""Boxes, floor plans and free space, against distances that were worked out by hand or sampled."""

from math import pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g_ray_lab.textured.plan import Box, FloorPlan, RoomSpace, fits

L_SHAPE = FloorPlan(((0.0, 0.0, 6.0, 2.0), (0.0, 0.0, 2.0, 5.0)), 2.5)


def box_at(center, size, low, high, yaw_rad=0.0):
    (x, y), (width, depth) = center, size
    return Box((float(x), float(y)), (float(width), float(depth)), float(low), float(high), float(yaw_rad))


def test_distance_to_a_box():
    box = box_at((1, 2), (2, 4), 0, 1)
    points = np.array([[1, 2, 0.5], [3, 2, 0.5], [1, 2, 3], [3, 5, 2], [1.9, 2, 0.5]], float)
    expected = [-0.5, 1, 2, sqrt(3), -0.1]
    np.testing.assert_allclose(box.measure_distance(points), expected, atol=1e-12)


def test_a_turned_box_has_turned_corners():
    corners = box_at((0, 0), (4, 2), 0, 1, pi / 2).compute_corners()
    np.testing.assert_allclose(corners, [(1, -2), (1, 2), (-1, 2), (-1, -2)], atol=1e-12)


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-pi, pi))
def test_boxes_overlap_if_and_only_if_they_share_points(x, y, yaw):
    """A fine grid of points in one box decides, up to the size of its cells."""
    a, b = box_at((0, 0), (1.2, 0.8), 0, 1), box_at((x, y), (1.0, 0.6), 0.5, 2, yaw)
    axis = np.linspace(-0.5, 0.5, 41)
    grid = np.stack(np.meshgrid(axis * 1.2, axis * 0.8), -1).reshape(-1, 2)
    inside = b.measure_distance(np.concatenate([grid, np.full((len(grid), 1), 0.75)], -1))
    if inside.min() < -0.03:
        assert a.overlaps(b) and b.overlaps(a)
    if inside.min() > 0.03:
        assert not a.overlaps(b)


def test_boxes_above_each_other_do_not_overlap():
    low, high = box_at((0, 0), (1, 1), 0, 1), box_at((0, 0), (1, 1), 1, 2)
    assert not low.overlaps(high)
    assert low.overlaps(box_at((0, 0), (1, 1), 0.9, 2)) and not low.overlaps(
        box_at((0, 0), (1, 1), 0.9, 2), slack=0.2
    )


def test_an_l_shape():
    assert L_SHAPE.area == 6 * 2 + 2 * 5 - 2 * 2
    points = np.array([[1, 1], [5, 1], [1, 4.5], [4, 4]], float)
    np.testing.assert_allclose(L_SHAPE.measure_distance(points), [1, 1, 0.5, -2])
    assert L_SHAPE.contains_box(box_at((5, 1), (1, 1), 0, 1))
    assert not L_SHAPE.contains_box(box_at((2, 2), (1, 1), 0, 1))  # across the inner corner
    assert not L_SHAPE.contains_box(box_at((1, 1), (1, 1), 2, 2.6))  # through the ceiling


def test_a_box_fits_where_nothing_else_is():
    table = box_at((1, 1), (1, 1), 0, 0.8)
    assert fits(box_at((4, 1), (1, 1), 0, 1), L_SHAPE, [table])
    assert not fits(box_at((1.4, 1), (1, 1), 0, 1), L_SHAPE, [table])
    assert fits(box_at((1, 1), (0.2, 0.2), 0.8, 1), L_SHAPE, [table])  # on top of it


def test_clearance_is_the_distance_to_the_nearest_thing():
    space = RoomSpace(L_SHAPE, (box_at((4, 1), (1, 1), 0, 0.8),))
    points = np.array([[4, 1, 1.2], [3, 1, 0.4], [1, 1, 1.0], [4, 1, 0.4], [1, 4, 2.4], [9, 9, 1]], float)
    expected = [0.4, 0.4, 1.0, -0.4, 0.1]
    clearance = space.measure_clearance(points)
    np.testing.assert_allclose(clearance[:5], expected, atol=1e-12)
    assert clearance[5] < 0
    assert space.is_free(points, 0.3).tolist() == [True, True, True, False, False, False]


def test_places_are_free_and_none_are_found_in_a_full_room():
    space = RoomSpace(L_SHAPE, (box_at((1, 1), (2, 2), 0, 2.5),))
    random = np.random.default_rng(0)
    places = space.draw_places(random, 50, 0.4, (0.8, 1.8))
    assert len(places) == 50 and space.is_free(places, 0.4).all()
    assert places[:, 2].min() >= 0.8 and places[:, 2].max() <= 1.8
    full = RoomSpace(FloorPlan(((0.0, 0.0, 2.0, 2.0),), 2.5), (box_at((1, 1), (1.6, 1.6), 0, 2.5),))
    assert len(full.draw_places(random, 50, 0.4, (0.8, 1.8))) == 0


@pytest.mark.parametrize("yaw", [0.0, 0.7])
def test_distance_agrees_with_points_on_the_surface(yaw):
    box = box_at((0.3, -0.2), (1.0, 0.5), 0.2, 0.9, yaw)
    random = np.random.default_rng(1)
    inside = random.uniform(-0.5, 0.5, (200_000, 3)) * np.array([1.0, 0.5, 0.7])
    cos, sin = np.cos(yaw), np.sin(yaw)
    x, y = cos * inside[:, 0] - sin * inside[:, 1] + 0.3, sin * inside[:, 0] + cos * inside[:, 1] - 0.2
    cloud = np.stack([x, y, inside[:, 2] + 0.55], -1)
    for point in random.uniform(-2, 2, (6, 3)):
        sampled = np.linalg.norm(cloud - point, axis=-1).min()
        measured = float(box.measure_distance(point[None])[0])
        assert measured <= sampled + 1e-9 and sampled - max(measured, 0) < 0.05
