"""Chunks: every view is in one, neighbours share some, and true pieces in other worlds come back exactly."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.similarity import Similarity
from g_ray.predictors.chunks import join_chunk, split_into_chunks
from g_ray.reconstruction.alignment import align_to_poses
from g_ray.reconstruction.known_lengths import scale_to_length


@given(st.integers(1, 300), st.integers(4, 40), st.integers(1, 3))
def test_chunks_cover_all_views_and_overlap(count, size, overlap):
    chunks = split_into_chunks(count, size, overlap)
    assert sorted({view for chunk in chunks for view in chunk}) == list(range(count))
    assert all(len(chunk) == min(size, count) for chunk in chunks)
    for before, after in pairwise(chunks):
        assert len(set(before) & set(after)) >= overlap


@pytest.mark.parametrize(("count", "size", "overlap"), [(0, 4, 1), (9, 3, 3), (9, 4, 0)])
def test_chunks_that_cannot_be_joined_are_refused(count, size, overlap):
    with pytest.raises(ValueError, match="views"):
        split_into_chunks(count, size, overlap)


def true_views(room) -> list[ReconstructedView]:
    return [
        ReconstructedView(
            str(view),
            camera[0],
            room.poses[0, view],
            room.ray_depth[0, view],
            torch.ones_like(room.ray_depth[0, view]),
            room.valid[0, view],
        )
        for view, camera in enumerate(room.views.cameras)
    ]


def somewhere(seed: int) -> Similarity:
    random = np.random.default_rng(seed)
    turn = Rotation.random(random_state=seed).as_matrix()
    return Similarity(
        torch.tensor(random.uniform(0.3, 3)),
        torch.from_numpy(turn),
        torch.from_numpy(random.normal(size=3)),
    )


def test_chunks_of_other_worlds_come_together(room):
    true = true_views(room)
    found: dict[str, ReconstructedView] = {}
    before: tuple[ReconstructedView, ...] = ()
    for number, views in enumerate(split_into_chunks(len(true), 4, 2)):
        world = Similarity.identity() if number == 0 else somewhere(number)
        joined = join_chunk(before, [true[view].transform(world) for view in views])
        assert joined.disagreement < 1e-4
        before = joined.all
        found |= {piece.name: piece for piece in joined.new}
    for view, piece in found.items():
        torch.testing.assert_close(
            piece.pose.world_from_cam, true[int(view)].pose.world_from_cam, atol=2e-4, rtol=0
        )
        torch.testing.assert_close(piece.ray_depth, true[int(view)].ray_depth, atol=2e-3, rtol=1e-3)


def test_wrong_depths_at_edges_do_not_move_a_chunk(room):
    true = true_views(room)
    random = torch.Generator().manual_seed(0)
    spoilt = [piece.transform(somewhere(5)) for piece in true[2:6]]
    for piece in spoilt:
        wrong = torch.rand(piece.valid.shape, generator=random) < 0.1
        piece.ray_depth[wrong] *= 3.0
    joined = join_chunk(tuple(true[:4]), spoilt)
    for piece in joined.new:
        error = piece.pose.translation - true[int(piece.name)].pose.translation
        assert float(error.norm()) < 0.02


def test_chunks_without_a_common_view_are_refused(room):
    true = true_views(room)
    with pytest.raises(ValueError, match="share no view"):
        join_chunk(tuple(true[:2]), true[3:5])


def test_known_poses_align_and_score(room):
    true = true_views(room)
    world = somewhere(7)
    moved = [piece.transform(world).pose for piece in true]
    known = [piece.pose if int(piece.name) % 2 else None for piece in true]
    aligned = align_to_poses(moved, known)
    assert aligned.cameras == 4 and aligned.position_rmse < 1e-5 and aligned.rotation_deg < 0.01
    assert float(aligned.similarity.scale * world.scale) == pytest.approx(1, rel=1e-5)
    with pytest.raises(ValueError, match="two or more"):
        align_to_poses(moved, [known[1], *[None] * (len(moved) - 1)])


def test_a_known_distance_fixes_the_scale(room):
    views = true_views(room)[:2]
    scale = Similarity.from_scale(scale_to_length(0, 1, 7.5, views).factor)
    ends = [scale.transform_pose(piece.pose).translation for piece in views]
    assert float((ends[0] - ends[1]).norm()) == pytest.approx(7.5, rel=1e-5)
    with pytest.raises(ValueError, match="gives no scale"):
        scale_to_length(0, 0, 1.0, views)
