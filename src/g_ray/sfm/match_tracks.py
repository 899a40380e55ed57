"""Tracks from matches alone, whatever the poses are: connected features of verified pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from g_ray.geometry.pose import Pose
from g_ray.sfm.bundle import State, make_problem, triangulate_rays
from g_ray.sfm.pairs import Pair
from g_ray.sfm.sparse_scene import SparseScene, Tracks
from g_ray.sfm.workspace import Workspace


def make_track_scene(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> SparseScene:
    """All tracks of views with poses, their points triangulated with these, whether they fit or not."""
    posed = {index for index, pose in enumerate(poses) if pose is not None}
    usable = {pair: geometry for pair, geometry in geometries.items() if posed.issuperset(pair)}
    view, row, point = connect_features(space, usable)
    features = space.features
    tracks = Tracks(
        torch.from_numpy(view),
        torch.from_numpy(point),
        torch.tensor(_gather([part.pixels for part in features], view, row), dtype=torch.float64),
        torch.from_numpy(_gather([part.descriptors for part in features], view, row)),
    )
    count = int(point.max()) + 1 if len(point) else 0
    colors = torch.zeros(count, 3, dtype=torch.uint8)
    colors[tracks.point] = torch.from_numpy(_gather([part.colors for part in features], view, row))
    eye = torch.eye(4, dtype=torch.float64)
    cam_from_world = torch.stack([eye if pose is None else pose.cam_from_world for pose in poses])
    cameras = tuple(view.camera for view in space.views)
    problem = make_problem(tracks, cameras, [lens.scale for lens in space.lenses])
    nowhere = torch.zeros(count, 3, dtype=torch.float64)
    return SparseScene(
        names=tuple(view.name for view in space.views),
        cameras=cameras,
        poses=tuple(poses),
        reasons=tuple("no pose was given" if pose is None else None for pose in poses),
        points=triangulate_rays(problem, State(cam_from_world, nowhere)),
        colors=colors,
        tracks=tracks,
    )


def connect_features(
    space: Workspace, geometries: Mapping[Pair, Any]
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """View, feature and point of every matched feature; points are connected features.

    Points with two features in one view are wrong somewhere and left out.
    """
    starts = np.cumsum([0, *(len(features) for features in space.features)])
    edges = np.concatenate(
        [np.zeros((0, 2), np.int64)]
        + [
            np.asarray(geometry.inlier_matches, dtype=np.int64) + starts[list(pair)]
            for pair, geometry in geometries.items()
        ]
    )
    matched = np.unique(edges)
    view = np.searchsorted(starts, matched, side="right") - 1
    label = _label_components(int(starts[-1]), edges)[matched]
    members = np.bincount(label, minlength=starts[-1])
    views = np.bincount(np.unique(np.stack([label, view], 1), axis=0)[:, 0], minlength=starts[-1])
    keep = members[label] == views[label]
    point = np.unique(label[keep], return_inverse=True)[1].reshape(-1)
    return view[keep], (matched - starts[view])[keep], point.astype(np.int64)


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


def _gather(tables: Sequence[np.ndarray], view: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows of the tables of their views."""
    starts = np.cumsum([0, *(len(table) for table in tables)])
    return np.concatenate(tables)[starts[view] + row]
