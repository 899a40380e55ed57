"""Similarities: found again from points and from poses, composed, refused where nothing fixes them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import (
    Similarity,
    fit_similarity,
    fit_similarity_robustly,
    fit_similarity_to_poses,
)


def random_similarity(random: np.random.Generator) -> Similarity:
    rotation = Rotation.random(random_state=int(random.integers(2**31))).as_matrix()
    return Similarity(
        torch.tensor(random.uniform(0.1, 10), dtype=torch.float64),
        torch.from_numpy(rotation),
        torch.from_numpy(random.normal(size=3)),
    )


def random_poses(random: np.random.Generator, count: int) -> Pose:
    turns = Rotation.random(count, random_state=int(random.integers(2**31))).as_matrix()
    return Pose.from_parts(torch.from_numpy(turns), torch.from_numpy(random.normal(size=(count, 3))))


def assert_same(found: Similarity, true: Similarity) -> None:
    for name in ("scale", "rotation", "translation"):
        torch.testing.assert_close(getattr(found, name), getattr(true, name), rtol=1e-8, atol=1e-8)


@given(st.integers(0, 10**6), st.integers(4, 30))
@settings(max_examples=30, deadline=None)
def test_points_give_it_back(seed, count):
    random = np.random.default_rng(seed)
    true, points = random_similarity(random), torch.from_numpy(random.normal(size=(count, 3)))
    weight = torch.from_numpy(random.uniform(0.1, 1, count))
    assert_same(fit_similarity(points, true.apply(points), weight), true)


def test_rigid_keeps_lengths():
    source = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fitted = fit_similarity(source, 3 * source + 1, rigid=True)
    assert float(fitted.scale) == 1
    torch.testing.assert_close(fitted.rotation, torch.eye(3, dtype=torch.float64))


def test_a_robust_fit_ignores_points_that_are_far_off():
    random = torch.Generator().manual_seed(1)
    source = torch.randn(200, 3, dtype=torch.float64, generator=random)
    target = 2 * source + torch.tensor([1.0, 2.0, 3.0])
    target[:40] += 5
    ones = torch.ones(200, dtype=torch.float64)
    plain, robust = fit_similarity(source, target), fit_similarity_robustly(source, target, ones)
    off = [float((fit.apply(source) - target)[40:].norm(dim=-1).mean()) for fit in (plain, robust)]
    assert off[1] < 0.01 * off[0]


@given(st.integers(0, 10**6), st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_poses_give_it_back_even_two(seed, count):
    random = np.random.default_rng(seed)
    true, poses = random_similarity(random), random_poses(random, count)
    assert_same(fit_similarity_to_poses(poses, true.transform_pose(poses)), true)


def test_it_moves_what_a_camera_sees():
    """A point at depth d along a ray is at depth s·d in the other world."""
    random = np.random.default_rng(0)
    true, pose = random_similarity(random), random_poses(random, 1)[0]
    local = torch.tensor([0.3, -0.2, 2.0], dtype=torch.float64)
    here, there = pose.apply(local), true.transform_pose(pose).apply(true.scale * local)
    torch.testing.assert_close(true.apply(here), there)


def test_one_after_the_other():
    random = np.random.default_rng(1)
    first, second = random_similarity(random), random_similarity(random)
    points = torch.from_numpy(random.normal(size=(5, 3)))
    torch.testing.assert_close((second @ first).apply(points), second.apply(first.apply(points)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: fit_similarity(torch.zeros(2, 3), torch.zeros(2, 3)),
        lambda: fit_similarity(torch.ones(5, 3), torch.rand(5, 3)),
        lambda: fit_similarity(torch.rand(5, 3), torch.rand(5, 3), torch.zeros(5)),
        lambda: fit_similarity_to_poses(Pose.identity(3), Pose.identity(3)),
    ],
)
def test_what_fixes_nothing_is_refused(call):
    with pytest.raises(ValueError, match="fix"):
        call()
