"""Which pairs are matched."""

import numpy as np

from g_ray.sfm import SfMOptions
from g_ray.sfm.features import Features
from g_ray.sfm.pairs import choose_pairs, find_similar_pairs, make_sequential_pairs


def _make_features(place: int, seed: int) -> Features:
    """Descriptors of one of several places, with noise."""
    base = np.random.default_rng(place).integers(0, 200, (60, 128))
    noise = np.random.default_rng(1000 + seed).integers(0, 40, (60, 128))
    count = len(base)
    colors = np.zeros((count, 3), np.uint8)
    return Features(np.zeros((count, 2), np.float32), (base + noise).astype(np.uint8), colors)


def test_few_views_are_all_matched():
    features = [_make_features(0, seed) for seed in range(5)]
    assert len(choose_pairs(features, SfMOptions())) == 10


def test_views_without_features_are_in_no_pair():
    empty = Features(np.zeros((0, 2), np.float32), np.zeros((0, 128), np.uint8), np.zeros((0, 3), np.uint8))
    assert choose_pairs([_make_features(0, 0), empty, _make_features(0, 1)], SfMOptions()) == [(0, 2)]


def test_similar_views_find_each_other():
    """Twelve views of three places in turn: each is paired with the three others of its place."""
    features = [_make_features(index % 3, index) for index in range(12)]
    pairs = find_similar_pairs(features, 3, seed=0)
    assert pairs == {(i, j) for i in range(12) for j in range(i + 1, 12) if (j - i) % 3 == 0}


def test_sequences_reach_far():
    pairs = make_sequential_pairs(100, 4)
    assert {(0, 1), (0, 4), (0, 8), (0, 16)} <= pairs
    assert (0, 5) not in pairs and (0, 64) not in pairs


def test_many_views_are_not_all_matched():
    features = [_make_features(index, index) for index in range(30)]
    options = SfMOptions(exhaustive_views=10, overlap=2, similar=3)
    assert 30 < len(choose_pairs(features, options)) < 30 * 29 / 2
