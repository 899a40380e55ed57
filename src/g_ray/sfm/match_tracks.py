"""Tracks from matches alone, whatever the poses are: connected features of verified pairs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from g_ray.sfm.pairs import Pair
from g_ray.sfm.scene import Tracks
from g_ray.sfm.workspace import Workspace


def build_match_tracks(space: Workspace, geometries: Mapping[Pair, Any]) -> Tracks:
    """Number connected features as points; tracks with two features in one view are wrong somewhere and left out."""
    counts = np.array([len(features) for features in space.features])
    starts = np.concatenate([[0], np.cumsum(counts)])
    edges = [
        np.asarray(geometry.inlier_matches, dtype=np.int64) + starts[list(pair)]
        for pair, geometry in geometries.items()
    ]
    if not edges:
        return Tracks.make_empty()
    labels = _label_components(int(starts[-1]), np.concatenate(edges))
    matched = np.unique(np.concatenate(edges))
    view = np.searchsorted(starts, matched, side="right") - 1
    label = labels[matched]
    # A label that occurs more often than it has views sees one of them twice.
    pairs = np.unique(np.stack([label, view], 1), axis=0)
    occurrences = np.bincount(label, minlength=len(labels))
    views = np.bincount(pairs[:, 0], minlength=len(labels))
    keep = occurrences[label] == views[label]
    matched, view, label = matched[keep], view[keep], label[keep]
    point = np.unique(label, return_inverse=True)[1].reshape(-1)
    row = matched - starts[view]
    pixels = np.zeros((len(row), 2))
    descriptors = np.zeros((len(row), 128), np.uint8)
    for index in np.unique(view):
        mine = view == index
        pixels[mine] = space.features[index].pixels[row[mine]]
        descriptors[mine] = space.features[index].descriptors[row[mine]]
    return Tracks(*(torch.from_numpy(part) for part in (view, point, pixels, descriptors)))


def _label_components(count: int, edges: Int[np.ndarray, "edge 2"]) -> Int[np.ndarray, "node"]:
    """The smallest member of each node's component: labels sink along edges, and jump to the labels of their labels."""
    labels = np.arange(count)
    first, second = edges[:, 0], edges[:, 1]
    while True:
        least = np.minimum(labels[first], labels[second])
        sunk = labels.copy()
        np.minimum.at(sunk, first, least)
        np.minimum.at(sunk, second, least)
        sunk = sunk[sunk]
        if np.array_equal(sunk, labels):
            return labels
        labels = sunk
