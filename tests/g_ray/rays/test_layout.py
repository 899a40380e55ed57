"""Layouts: which token belongs to which view, and where its patch is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.rays.layout import Layout, Segment

grids = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4)
counts = st.integers(0, 2)


@given(grids, counts, counts, counts)
def test_everything_counts_the_same_tokens(sizes, special, leading, trailing):
    layout = Layout.from_grids(sizes, special=special, leading=leading, trailing=trailing)
    patches = sum(rows * columns for rows, columns in sizes)
    assert len(layout) == patches + special * len(sizes) + leading + trailing
    assert layout.get_patch_mask().sum() == patches
    assert layout.view_count == len(sizes)
    owner = layout.get_view_of_token()
    assert len(owner) == len(layout)
    assert (owner == -1).sum() == leading + trailing
    covered = [index for _, span in layout.iterate_spans() for index in range(span.start, span.stop)]
    assert covered == list(range(len(layout)))
    for view, span in layout.find_runs():
        assert (owner[span] == (-1 if view is None else view)).all()


def test_neighbouring_segments_of_a_view_form_one_run():
    layout = Layout.from_grids([(1, 2), (1, 3)], special=1, leading=1)
    assert layout.find_runs() == [(None, slice(0, 1)), (0, slice(1, 4)), (1, slice(4, 8))]
    apart = Layout((Segment(0, 1, 2), Segment(None, special=1), Segment(0, special=1)))
    assert apart.find_runs() == [(0, slice(0, 2)), (None, slice(2, 3)), (0, slice(3, 4))]


def test_positions_inside_patches():
    layout = Layout.from_grids([(1, 2)], special=1)
    samples = ((0.5, 0.5), (1.0, 0.0))
    patches = layout.compute_grid_positions(samples, normalized=False)
    assert patches.tolist() == [[[0, 0], [0, 0]], [[0.5, 0.5], [1, 0]], [[1.5, 0.5], [2, 0]]]
    normalised = layout.compute_grid_positions(samples, normalized=True)
    assert normalised[1:].tolist() == [[[-0.25, 0], [0, -0.5]], [[0.25, 0], [0.5, -0.5]]]


def test_selecting_views_keeps_their_numbers():
    layout = Layout.from_grids([(1, 1), (1, 2), (1, 3)], special=1)
    selected = layout.select([2, 0])
    assert [segment.view for segment in selected.segments] == [0, 0, 2, 2]
    assert len(selected) == 1 + 1 + 1 + 3


@pytest.mark.parametrize("patch", [8, (4, 16)])
def test_patch_centres_and_corners(patch, mixed_views):
    """Patch i of size p has its centre at p·i + p/2, from the image's top-left corner."""
    views = mixed_views(lenses=("wide",), poses=False)
    camera = views.cameras[0]
    high, wide = (patch, patch) if isinstance(patch, int) else patch
    tokens = views.tokens(patch)
    rays = tokens.rays(((0.5, 0.5), (0.0, 0.0), (1.0, 0.0)))
    columns = camera.width // wide
    for index in (0, 1, columns, len(tokens) - 1):
        row, column = divmod(index, columns)
        for sample, (x, y) in enumerate([(0.5, 0.5), (0.0, 0.0), (1.0, 0.0)]):
            pixel = torch.tensor([(column + x) * wide, (row + y) * high], dtype=torch.float64)
            assert torch.allclose(rays.directions[0, index, sample], camera.unproject(pixel)[0])


def test_validity_marks_tokens_that_no_ray_reaches(mixed_views):
    from g_ray.cameras import OpenCVFisheye
    from g_ray.rays.views import Views

    camera = OpenCVFisheye.make(
        128, 128, fx=15.0, fy=15.0, cx=64.0, cy=64.0
    )  # the circle ends at 15·π = 47 px
    tokens = Views([camera]).tokens(16, special=1)
    valid = tokens.valid()[0]
    assert valid[0]  # the special token
    assert not valid[1]  # the corner
    assert valid[1 + 3 * 8 + 3]  # the centre
    assert tokens.rays().directions.isfinite().all()


def test_views_know_their_batch_and_precision(mixed_views):
    assert mixed_views(batch=3).batch == 3
    assert mixed_views(poses=False).batch == 1
    assert mixed_views(dtype=torch.float32).dtype == torch.float32
    assert mixed_views().tokens(16).rays().directions.dtype == torch.float64
