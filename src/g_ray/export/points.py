"""The point cloud of a result, each point with the pixel that it came from."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8

from g_ray.data.photos import read_photo
from g_ray.export.options import ExportOptions
from g_ray.export.result import Result, ResultView
from g_ray.export.selection import (
    compute_confidence_floor,
    find_depth_edges,
    find_sky,
    select_best_of_voxels,
    subsample_indices,
)

SAMPLES = 20_000
"""Pixels of a view that the confidence floor is estimated from."""
PER_KEPT = 4
"""Candidates per point that is kept at last, where voxels choose among them."""


@dataclass(frozen=True, eq=False)
class PointCloud:
    positions: Float[np.ndarray, "n 3"]
    """World, float64."""
    colors: UInt8[np.ndarray, "n 3"]
    confidence: Float[np.ndarray, "n"]
    view: Int[np.ndarray, "n"]
    """Index of the view that a point came from."""
    pixels: Float[np.ndarray, "n 2"]
    """Where it is there: u, v of a pixel's centre."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Int[np.ndarray, "m"]) -> "PointCloud":
        return PointCloud(**{name: values[index] for name, values in vars(self).items()})


def collect_points(result: Result, options: ExportOptions) -> PointCloud:
    """Points of all views, one view in memory at a time; ValueError if none is left."""
    floor = _compute_floor(result, options.confidence)
    budget = -(-options.max_points * (1 if options.voxel is None else PER_KEPT) // len(result.views))
    parts = [
        _collect_view(result, number, view, floor, budget, options)
        for number, view in enumerate(result.views)
    ]
    cloud = PointCloud(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])}
    )
    if not len(cloud):
        raise ValueError(
            f"{result.folder}: no point is left; lower the confidence or raise the edge threshold"
        )
    if options.voxel is not None:
        cloud = cloud[select_best_of_voxels(cloud.positions, cloud.confidence, options.voxel)]
    return cloud[subsample_indices(len(cloud), options.max_points)]


def _compute_floor(result: Result, share: float) -> float:
    """Over all views together, so that a view that is bad as a whole gives few points."""
    if share == 0:
        return -np.inf
    samples = []
    for view in result.views:
        values = view.confidence[view.valid].numpy(force=True)
        samples.append(values[:: max(1, len(values) // SAMPLES)])
    return compute_confidence_floor(np.concatenate(samples), share)


def _collect_view(
    result: Result, number: int, view: ResultView, floor: float, budget: int, options: ExportOptions
) -> PointCloud:
    image = read_photo(result.get_image_path(view.name)).movedim(0, -1).numpy()
    depth, confidence, valid = (x.numpy(force=True) for x in (view.ray_depth, view.confidence, view.valid))
    keep = valid & (depth > 0) & np.isfinite(depth) & (confidence >= floor)
    if options.edges is not None:
        keep &= ~find_depth_edges(depth, valid, options.edges)
    if options.sky:
        keep &= ~find_sky(image, confidence)
    rows, columns = np.nonzero(keep)
    chosen = subsample_indices(len(rows), budget, seed=number)
    rows, columns = rows[chosen], columns[chosen]
    pixels = np.stack([columns, rows], -1) + 0.5
    positions, valid_rays = _unproject(view, pixels, depth[rows, columns])
    return PointCloud(
        positions,
        (255 * image[rows, columns]).round().astype(np.uint8),
        confidence[rows, columns].astype(np.float32),
        np.full(len(rows), number),
        pixels,
    )[np.nonzero(valid_rays)[0]]


def _unproject(view: ResultView, pixels: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World points of some pixels in float64, and whether the camera has rays there."""
    rays, valid = view.camera.to(torch.float64).unproject(torch.from_numpy(pixels))
    pose = view.pose.to(torch.float64)
    points = (rays * torch.from_numpy(depth).double()[:, None]) @ pose.rotation.mT + pose.translation
    return points.numpy(force=True), valid.numpy(force=True)
