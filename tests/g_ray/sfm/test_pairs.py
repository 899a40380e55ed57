"""Which pairs are matched."""

import numpy as np

from g_ray.sfm import SfMOptions
from g_ray.sfm.features import Features
from g_ray.sfm.pairs import (
    choose_further_pairs,
    choose_pairs,
    estimate_pair_count,
    find_similar_pairs,
    make_sequential_pairs,
)


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


def test_a_medium_set_is_matched_by_look_alikes_and_neighbors():
    """Fifty views of five places in turn: all pairs of a place are found with less than half of all pairs."""
    features = [_make_features(index % 5, index) for index in range(50)]
    pairs = choose_pairs(features, SfMOptions())
    assert len(pairs) < 0.55 * 50 * 49 / 2
    assert {(i, j) for i in range(50) for j in range(i + 5, 50, 5)} <= set(pairs)
    assert abs(estimate_pair_count(50, SfMOptions()) / len(pairs) - 1) < 0.5


def test_what_stays_unconnected_is_matched_with_everything():
    features = [_make_features(0, seed) for seed in range(6)]
    matched = {(0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3), (4, 5)}
    good = sorted(matched)
    further = choose_further_pairs(features, matched, good)
    assert further == [(i, j) for i in range(4) for j in (4, 5)]
    assert choose_further_pairs(features[:4], matched, good[:6]) == []
    assert choose_further_pairs([_make_features(0, seed) for seed in range(70)], set(), []) == []
