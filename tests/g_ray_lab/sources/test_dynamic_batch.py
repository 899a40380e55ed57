"""Shapes of batches: drawn per step, the same on all ranks, never more images than allowed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.sources.shaped_sets import BatchShape

SETTINGS = RoomsViews(224, 224, 120, (2, 24), (0.33, 1.0), 240)
PAPER = RoomsReconstruction(SETTINGS)


def test_the_paper_s_first_stage():
    shapes = [PAPER.draw_shape(step) for step in range(4000)]
    counts = Counter(shape.views for shape in shapes)
    assert set(counts) == set(range(2, 25)) and min(counts.values()) > 4000 / 23 / 2
    assert all(shape.sets == 240 // shape.views for shape in shapes)
    heights = Counter(shape.height for shape in shapes)
    assert set(heights) == set(range(70, 225, 14)) and all(shape.width == 224 for shape in shapes)


@given(st.integers(0, 2**40), st.integers(0, 1000))
def test_a_shape_is_a_function_of_seed_and_step(step, seed):
    first = RoomsReconstruction(SETTINGS, seed).draw_shape(step)
    assert first == RoomsReconstruction(SETTINGS, seed).draw_shape(step)
    assert 1 <= first.sets <= 120 and first.sets * first.views <= 240
    assert first.height % 14 == 0 and 70 <= first.height <= 224


def test_fixed_shapes_are_fixed():
    fixed = RoomsReconstruction(RoomsViews(56, 28, 3))
    assert {fixed.draw_shape(step) for step in range(50)} == {BatchShape(3, 4, 56, 28)}


def test_an_image_is_never_lower_than_a_patch():
    low = RoomsReconstruction(RoomsViews(56, 28, aspect=(0.1, 0.4)))
    assert {low.draw_shape(step).height for step in range(50)} == {14}


def test_all_ranks_get_batches_of_one_shape_and_other_scenes():
    data = RoomsReconstruction(RoomsViews(28, 28, 3, (2, 5), aspect=(0.33, 1.0), images_max=6))
    seen = set()
    for step in range(6):
        first, second = data.make_batch(step, 0), data.make_batch(step, 1)
        assert first.images.shape == second.images.shape
        assert not (first.images == second.images).all()
        sets, views, _, height, width = first.images.shape
        assert sets * views <= 6 and width == 28 and first.views.cameras[0].height == height
        seen.add((sets, views, height))
        assert first.names == tuple(f"room {step * 3 + i} of rank 0" for i in range(sets))
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"views": (0, 2)}, "from 1 or more"),
        ({"aspect": (0.0, 1.0)}, r"in \(0, 1\]"),
        ({"aspect": (0.5, 1.5)}, r"in \(0, 1\]"),
        ({"batch": 0}, "give positive numbers"),
        ({"height": 50}, "cannot be cut"),
        ({"images_max": 3}, "below the 4 views"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        RoomsReconstruction(RoomsViews(**{"width": 56, "height": 56, **wrong}))
