"""Which photographs to match: all pairs of few, neighbors and look-alikes of many."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.sfm.features import Features, normalize_descriptors
from g_ray.sfm.sfm_options import SMALL_SET, SfMOptions

Pair = tuple[int, int]

MIN_PARTNERS = 3
"""Verified pairs of a view with which it counts as connected."""
WORDS = 64
"""Cluster centers of descriptors in the retrieval vector."""
SAMPLES = 20000
"""Descriptors that the centers are computed from."""
ROUNDS = 10
FEATURES_PER_VIEW = 2000


def choose_pairs(features: Sequence[Features], options: SfMOptions) -> list[Pair]:
    """Return pairs (i, j) with i < j, sorted."""
    count = len(features)
    if count <= options.exhaustive_views:
        pairs = {(i, j) for i in range(count) for j in range(i + 1, count)}
    else:
        share = 2 if count <= SMALL_SET else 1
        pairs = find_similar_pairs(features, -(-options.similar // share), options.seed)
        pairs |= make_sequential_pairs(count, -(-options.overlap // share))
    return sorted(pair for pair in pairs if all(len(features[i]) for i in pair))


def estimate_pair_count(count: int, options: SfMOptions) -> float:
    """Estimate how many pairs are chosen: those of look-alikes and of neighbors coincide in part."""
    every = count * (count - 1) / 2
    if count <= options.exhaustive_views:
        return every
    share = 2 if count <= SMALL_SET else 1
    return min(every, count * (0.6 * options.similar + 1.2 * options.overlap) / share)


def choose_further_pairs(
    features: Sequence[Features], matched: Collection[Pair], good: Iterable[Pair]
) -> list[Pair]:
    """Return pairs of a small set that could connect it, where the verified ones, `good`, do not.

    These are all pairs of views with fewer than MIN_PARTNERS verified ones, and all between unconnected groups.
    """
    count = len(features)
    if count > SMALL_SET:
        return []
    good = list(good)
    group, partners = list(range(count)), [0] * count
    for first, second in good:
        partners[first] += 1
        partners[second] += 1
        old, new = group[second], group[first]
        group = [new if label == old else label for label in group]
    return [
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if (i, j) not in matched
        and len(features[i])
        and len(features[j])
        and (group[i] != group[j] or min(partners[i], partners[j]) < MIN_PARTNERS)
    ]


def make_sequential_pairs(count: int, overlap: int) -> set[Pair]:
    """Each view with the next `overlap` ones and, beyond them, with those at distances of powers of two."""
    steps = set(range(1, overlap + 1)) | {2**k for k in range(count.bit_length()) if 2**k < 8 * overlap}
    return {(i, i + step) for i in range(count) for step in steps if i + step < count}


def find_similar_pairs(features: Sequence[Features], similar: int, seed: int) -> set[Pair]:
    """Each view with the `similar` views of nearest retrieval vectors."""
    vectors = compute_retrieval_vectors(features, seed)
    likeness = vectors @ vectors.mT
    likeness.fill_diagonal_(-torch.inf)
    best = likeness.topk(min(similar, len(features) - 1), -1).indices
    return {(min(i, j), max(i, j)) for i, row in enumerate(best.tolist()) for j in row}


def compute_retrieval_vectors(features: Sequence[Features], seed: int) -> Float[Tensor, "view vector"]:
    """VLAD: per cluster center the sum of the offsets of a photograph's descriptors, normalized per center and in all.

    The centers are computed from the photographs at hand, so no vocabulary has to be downloaded.
    """
    generator = np.random.default_rng(seed)
    chosen = [_choose_rows(part.descriptors, FEATURES_PER_VIEW, generator) for part in features]
    centers = _cluster(_choose_rows(np.concatenate(chosen), SAMPLES, generator), generator)
    return torch.stack([_aggregate(normalize_descriptors(part), centers) for part in chosen])


def _choose_rows(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    if len(rows) <= count:
        return rows
    return rows[generator.choice(len(rows), count, replace=False)]


def _cluster(descriptors: np.ndarray, generator: np.random.Generator) -> Float[Tensor, "word 128"]:
    """k-means from random members."""
    points = normalize_descriptors(descriptors)
    centers = points[torch.from_numpy(generator.permutation(len(points))[:WORDS])]
    for _ in range(ROUNDS):
        nearest = torch.cdist(points, centers).argmin(-1)
        total = torch.zeros_like(centers).index_add_(0, nearest, points)
        count = torch.bincount(nearest, minlength=len(centers))
        centers = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], centers)
    return centers


def _aggregate(descriptors: Tensor, centers: Tensor) -> Float[Tensor, "vector"]:
    nearest = torch.cdist(descriptors, centers).argmin(-1)
    offsets = torch.zeros_like(centers).index_add_(0, nearest, descriptors - centers[nearest])
    offsets = torch.nn.functional.normalize(offsets, dim=-1)
    return torch.nn.functional.normalize(offsets.flatten(), dim=0)
