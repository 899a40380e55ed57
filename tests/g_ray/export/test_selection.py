"""Which pixels become points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g_ray.export.export_options import ExportOptions
from g_ray.export.points import (
    collect_points,
    compute_confidence_floor,
    find_depth_edges,
    find_sky,
    select_best_of_voxels,
    subsample_indices,
)
from g_ray.export.result import write_views


def test_the_floor_leaves_out_a_share_and_keeps_equals_together():
    values = np.arange(100.0)
    assert (values >= compute_confidence_floor(values, 0.25)).sum() == 75
    assert (np.ones(10) >= compute_confidence_floor(np.ones(10), 0.9)).all()
    assert compute_confidence_floor(values, 0.0) == -np.inf == compute_confidence_floor(np.zeros(0), 0.5)


def test_edges_are_both_sides_of_a_jump_between_valid_neighbours():
    depth = np.full((4, 5), 2.0)
    depth[:, 3:] = 3.0
    found = find_depth_edges(depth, np.ones((4, 5), bool), 0.1)
    assert found.tolist() == [[False, False, True, True, False]] * 4
    assert not find_depth_edges(depth, np.ones((4, 5), bool), 0.6).any()
    valid = np.ones((4, 5), bool)
    valid[:, 3] = False
    assert not find_depth_edges(depth, valid, 0.1).any()
    assert find_depth_edges(depth.T, np.ones((5, 4), bool), 0.1).T.tolist() == found.tolist()


def test_sky_is_bright_blue_doubtful_and_reached_from_the_top():
    image = np.full((8, 9, 3), 0.3)
    image[:4] = (0.4, 0.6, 0.9)
    image[6, 4] = (0.4, 0.6, 0.9)  # a blue thing on the ground
    image[:4, 6] = 0.1  # a mast
    confidence = np.where(np.arange(8)[:, None] < 4, 0.1, 1.0) * np.ones((8, 9))
    confidence[6, 4] = 0.1
    found = find_sky(image, confidence)
    expected = np.zeros((8, 9), bool)
    expected[:4] = True
    expected[:4, 6] = False
    assert np.array_equal(found, expected)
    assert not find_sky(image, confidence[::-1]).any()
    below = image.copy()
    below[0] = 0.1  # a roof over everything: nothing is reached
    assert not find_sky(below, confidence).any()


@given(st.integers(0, 2**31), st.floats(0.05, 3.0))
def test_each_voxel_keeps_its_most_confident_point(seed, size):
    random = np.random.default_rng(seed)
    points, sure = random.normal(size=(60, 3)), random.integers(0, 5, 60).astype(float)
    kept = select_best_of_voxels(points, sure, size)
    cells = [tuple(cell) for cell in np.floor((points - points.min(0)) / size).astype(int)]
    assert (np.diff(kept) > 0).all() and len({cells[i] for i in kept}) == len(kept) == len(set(cells))
    for index in kept:
        assert sure[index] == max(sure[j] for j in range(60) if cells[j] == cells[index])


def test_voxels_of_a_vast_scene():
    points = np.array([[0.0, 0, 0], [0.1, 0, 0], [1e9, 1e9, 1e9], [1e9, 1e9, 1e9 + 0.1]])
    assert select_best_of_voxels(points, np.arange(4.0), 0.5).tolist() == [1, 3]
    assert len(select_best_of_voxels(np.zeros((0, 3)), np.zeros(0), 1.0)) == 0


def test_a_cap_is_even_repeatable_and_in_order():
    assert subsample_indices(5, 9).tolist() == [0, 1, 2, 3, 4]
    chosen = subsample_indices(10_000, 1000)
    assert (
        len(set(chosen)) == 1000
        and (np.diff(chosen) > 0).all()
        and np.array_equal(chosen, subsample_indices(10_000, 1000))
    )
    assert 400 < (chosen < 5000).sum() < 600


def test_the_cloud_of_a_result(tmp_path, room_results):
    views, images = room_results.mixed()
    write_views(tmp_path, views, images)
    result = room_results.result(tmp_path, views)
    everything = collect_points(result, ExportOptions(confidence=0.0, edges=None))
    assert len(everything) == sum(int(view.valid.sum()) for view in views)
    view = views[1]
    mine = everything[np.nonzero(everything.view == 1)[0]]
    rows, columns = (mine.pixels - 0.5).astype(int).T[::-1]
    assert np.allclose(mine.positions, view.points()[rows, columns].numpy(), atol=1e-4)
    assert np.allclose(mine.colors / 255, images[1].movedim(0, -1)[rows, columns].numpy(), atol=0.003)
    half = collect_points(result, ExportOptions(confidence=0.5, edges=None))
    assert (
        0.45 < len(half) / len(everything) < 0.55
        and half.confidence.min() >= np.median(everything.confidence) - 1e-3
    )
    assert len(collect_points(result, ExportOptions(max_points=500))) == 500
    coarse = collect_points(result, ExportOptions(voxel=0.5))
    assert 20 < len(coarse) < 1500
    assert len(collect_points(result, ExportOptions(confidence=0.0, edges=0.02))) < len(everything)
    with pytest.raises(ValueError, match="no point is left"):
        collect_points(result, ExportOptions(edges=1e-9))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 1.0),
        ("confidence", -0.1),
        ("edges", 0.0),
        ("voxel", -1.0),
        ("voxel", float("nan")),
        ("max_points", 0),
    ],
)
def test_wrong_options_are_refused(name, value):
    with pytest.raises(ValueError, match=r"give|allow"):
        ExportOptions(**{name: value})
