"""Select the pixels that become points, and collect the point cloud of a reconstruction."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8

from g_ray.export.export_options import ExportOptions
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction
from g_ray.geometry.similarity import Similarity
from g_ray.media.images import read_reduced_photo

SKY_LUMINANCE = 0.5
"""Sky is at least this bright …"""
SKY_WHITE = 0.8
"""… and blue, or this bright in all channels (clouds) …"""
SKY_CONFIDENCE = 0.5
"""… and among this share of the least confident pixels."""


def compute_confidence_floor(confidence: Float[np.ndarray, "n"], share: float) -> float:
    """Return the confidence that all but a `share` of the pixels reach; equal ones are kept together."""
    return float(np.quantile(confidence, share)) if len(confidence) and share > 0 else -np.inf


def find_depth_edges(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], jump: float
) -> Bool[np.ndarray, "h w"]:
    """Find pixels on either side of a jump |d − d'| > jump · min(d, d') to a neighbor in the row or the column."""
    edges = np.zeros(depth.shape, dtype=bool)
    for near, far in (((slice(None), slice(1, None)), (slice(None), slice(None, -1))),
                      ((slice(1, None), slice(None)), (slice(None, -1), slice(None)))):  # fmt: skip
        a, b = depth[near], depth[far]
        jumps = (np.abs(a - b) > jump * np.minimum(a, b)) & valid[near] & valid[far]
        edges[near] |= jumps
        edges[far] |= jumps
    return edges


def find_sky(
    image: Float[np.ndarray, "h w 3"], confidence: Float[np.ndarray, "h w"]
) -> Bool[np.ndarray, "h w"]:
    """Guess which pixels are sky: bright, blue or white, less confident than most, and connected with the image's top
    row through such pixels, going down and sideways. Wrong on white walls and at night."""
    red, green, blue = np.moveaxis(image, -1, 0)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    bluish = (blue >= green) & (green >= 0.9 * red) & (blue > red)
    doubtful = confidence <= np.quantile(confidence, SKY_CONFIDENCE)
    candidates = (luminance > SKY_LUMINANCE) & (bluish | (image.min(-1) > SKY_WHITE)) & doubtful
    return _grow_from_top(candidates)


def _grow_from_top(candidates: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Return candidates reached from the top: in each row, runs that touch a reached pixel of the row above."""
    reached = np.zeros_like(candidates)
    above = np.ones(candidates.shape[1], dtype=bool)
    for row, reached_row in zip(candidates, reached, strict=True):
        starts = row & ~np.concatenate([[False], row[:-1]])
        run = np.cumsum(starts) * row  # 0 outside of runs
        touched = np.unique(run[above & row])
        reached_row[:] = row & np.isin(run, touched)
        above = reached_row
        if not reached_row.any():
            break
    return reached


def select_best_of_voxels(
    points: Float[np.ndarray, "n 3"], confidence: Float[np.ndarray, "n"], size: float
) -> Int[np.ndarray, "m"]:
    """Return the indices, in order, of the most confident point of each cube of side `size`."""
    if not len(points):
        return np.zeros(0, dtype=np.int64)
    cells = np.floor((points - points.min(0)) / size)
    if cells.max() >= 2**62:
        raise ValueError(f"voxels of {size} are too small for a scene of {np.ptp(points, axis=0).max():.3g}")
    order = np.argsort(-confidence, kind="stable")
    counts = cells.max(0) + 1
    if counts.prod() < 2**62:
        a, b, c = cells[order].astype(np.int64).T
        keys = (a * int(counts[1]) + b) * int(counts[2]) + c
        _, first = np.unique(keys, return_index=True)
    else:
        _, first = np.unique(cells[order], axis=0, return_index=True)
    return np.sort(order[first])


def subsample_indices(count: int, limit: int, seed: int = 0) -> Int[np.ndarray, "m"]:
    """Return the indices of all of `count` things, or of `limit` drawn at random; always the same ones, in order."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))


# The point cloud of a reconstruction


SAMPLES = 20_000
"""Pixels of a view that the confidence floor is estimated from."""
PER_KEPT = 4
"""Candidates per point that is kept, where voxels choose among them."""


COLLECTED = ("positions", "colors", "confidence", "view", "pixels", "filled")
"""Fields of a `PointCloud` that pixels of depth maps have."""


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Points with color and confidence, and the pixel that each came from."""

    positions: Float[np.ndarray, "n 3"]
    """World, float64."""
    colors: UInt8[np.ndarray, "n 3"]
    confidence: Float[np.ndarray, "n"]
    view: Int[np.ndarray, "n"]
    """Index of the view that a point came from."""
    pixels: Float[np.ndarray, "n 2"]
    """u, v in the photograph of that view, from its top-left corner."""
    normals: Float[np.ndarray, "n 3"] | None = None
    """Unit, towards the views; None: unknown."""
    filled: Bool[np.ndarray, "n"] | None = None
    """Points of pixels whose depth was filled in, not measured; None: none."""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Int[np.ndarray, "m"]) -> "PointCloud":
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: array[index] for name, array in arrays.items() if array is not None})

    def select_measured(self) -> "PointCloud":
        """Return the points that were not filled in."""
        return self if self.filled is None else self[np.nonzero(~self.filled)[0]]

    def add_filled(self, filled: "PointCloud", centers: Float[np.ndarray, "view 3"]) -> "PointCloud":
        """Return these points with others that were filled in, whose normals point to their view."""
        joined = {
            name: np.concatenate([getattr(self, name), getattr(filled, name)]) for name in COLLECTED[:-1]
        }
        normals = None
        if self.normals is not None:
            towards = centers[filled.view] - filled.positions
            towards /= np.linalg.norm(towards, axis=1, keepdims=True).clip(1e-12)
            normals = np.concatenate([self.normals, towards.astype(self.normals.dtype)])
        marks = np.arange(len(self) + len(filled)) >= len(self)
        return PointCloud(**joined, normals=normals, filled=marks)

    def transform(self, similarity: Similarity) -> "PointCloud":
        """Return the points in another world."""
        positions = similarity.apply(torch.from_numpy(self.positions)).numpy()
        rotation = similarity.rotation.double().numpy(force=True)
        normals = None if self.normals is None else (self.normals @ rotation.T).astype(self.normals.dtype)
        return replace(self, positions=positions, normals=normals)


def collect_points(reconstruction: Reconstruction, options: ExportOptions) -> PointCloud:
    """Collect the points of all views, one view in memory at a time; ValueError if the options leave none."""
    floor = _compute_floor(reconstruction, options.confidence)
    cloud = _collect_views(reconstruction, floor, options)
    if not len(cloud):
        if not any(bool(view.valid.any()) for view in reconstruction.views):
            return cloud  # poses alone are a result too
        raise ValueError(
            f"{reconstruction.saved_folder}: no point is left; lower the confidence or raise the edge threshold"
        )
    if options.voxel is not None:
        cloud = cloud[select_best_of_voxels(cloud.positions, cloud.confidence, options.voxel)]
    return cloud[subsample_indices(len(cloud), options.max_points)]


def add_filled_points(
    cloud: PointCloud, reconstruction: Reconstruction, options: ExportOptions
) -> PointCloud:
    """Return points with those of pixels that were filled in, as many as `max_points` leaves room for."""
    room = options.max_points - len(cloud)
    if room <= 0 or not any(view.filled is not None for view in reconstruction.views):
        return cloud
    pixels = _collect_views(reconstruction, -np.inf, replace(options, max_points=room), only_filled=True)
    centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
    return cloud.add_filled(pixels[subsample_indices(len(pixels), room)], centers)


def _collect_views(
    reconstruction: Reconstruction, floor: float, options: ExportOptions, only_filled: bool = False
) -> PointCloud:
    """Collect pixels of all views, about as many of each as is needed for `max_points`."""
    budget = -(-options.max_points * (1 if options.voxel is None else PER_KEPT) // len(reconstruction.views))
    parts = [
        _collect_view(reconstruction, number, view, floor, budget, options, only_filled)
        for number, view in enumerate(reconstruction.views)
    ]
    return PointCloud(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in COLLECTED})


def _compute_floor(reconstruction: Reconstruction, share: float) -> float:
    """Compute the confidence floor over all views together, so that a bad view gives few points."""
    if share == 0:
        return -np.inf
    samples = []
    for view in reconstruction.views:
        values = view.confidence[view.valid].numpy(force=True)
        samples.append(values[:: max(1, len(values) // SAMPLES)])
    return compute_confidence_floor(np.concatenate(samples), share)


def _collect_view(
    reconstruction: Reconstruction,
    number: int,
    view: ReconstructedView,
    floor: float,
    budget: int,
    options: ExportOptions,
    only_filled: bool,
) -> PointCloud:
    image = _read_image(reconstruction, view)
    depth, confidence, valid = (x.numpy(force=True) for x in (view.ray_depth, view.confidence, view.valid))
    filled = np.zeros_like(valid) if view.filled is None else view.filled.numpy(force=True)
    keep = valid & (filled | (not only_filled))
    keep &= (depth > 0) & np.isfinite(depth) & (confidence >= floor)
    if options.edges is not None:
        keep &= ~find_depth_edges(depth, valid, options.edges)
    if options.sky:
        keep &= ~find_sky(image, confidence)
    rows, columns = np.nonzero(keep)
    chosen = subsample_indices(len(rows), budget, seed=number)
    rows, columns = rows[chosen], columns[chosen]
    original = view.original_camera
    scale = (original.width / view.camera.width, original.height / view.camera.height)
    pixels = (np.stack([columns, rows], -1) + 0.5) * scale
    positions, valid_rays = _unproject(view, pixels, depth[rows, columns])
    return PointCloud(
        positions,
        (255 * image[rows, columns]).round().astype(np.uint8),
        confidence[rows, columns].astype(np.float32),
        np.full(len(rows), number),
        pixels,
        filled=filled[rows, columns],
    )[np.nonzero(valid_rays)[0]]


def _read_image(reconstruction: Reconstruction, view: ReconstructedView) -> Float[np.ndarray, "h w 3"]:
    """Read the photograph of a view at the size of its maps."""
    path, camera = reconstruction.get_image_path(view.name), view.camera
    return read_reduced_photo(path, camera.width, camera.height).clamp(0, 1).movedim(0, -1).numpy()


def _unproject(
    view: ReconstructedView, pixels: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return world points of some pixels in float64, and whether the camera has rays there."""
    rays, valid = view.original_camera.to(torch.float64).unproject(torch.from_numpy(pixels))
    pose = view.pose.to(torch.float64)
    points = (rays * torch.from_numpy(depth).double()[:, None]) @ pose.rotation.mT + pose.translation
    return points.numpy(force=True), valid.numpy(force=True)
