"""Which pixels become points: pure functions of arrays, each on its own."""

import numpy as np
from jaxtyping import Bool, Float, Int

SKY_LUMINANCE = 0.5
"""Sky is at least this bright …"""
SKY_WHITE = 0.8
"""… and blue, or this bright in all channels (clouds) …"""
SKY_CONFIDENCE = 0.5
"""… and among this share of the least confident pixels."""


def compute_confidence_floor(confidence: Float[np.ndarray, "n"], share: float) -> float:
    """The confidence that all but a `share` of the pixels reach; equal ones are kept together."""
    return float(np.quantile(confidence, share)) if len(confidence) and share > 0 else -np.inf


def find_depth_edges(
    depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], jump: float
) -> Bool[np.ndarray, "h w"]:
    """Pixels on either side of a jump |d − d'| > jump · min(d, d') to a neighbour in the row or the column."""
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
    """A simple guess, wrong on white walls and at night: pixels that are bright, blue or white, less confident than
    most, and reached from the image's top row through such pixels, going down and sideways."""
    red, green, blue = np.moveaxis(image, -1, 0)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    bluish = (blue >= green) & (green >= 0.9 * red) & (blue > red)
    doubtful = confidence <= np.quantile(confidence, SKY_CONFIDENCE)
    candidates = (luminance > SKY_LUMINANCE) & (bluish | (image.min(-1) > SKY_WHITE)) & doubtful
    return _grow_from_top(candidates)


def _grow_from_top(candidates: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """In each row, runs of candidates that touch a reached pixel of the row above; the first row counts as touched."""
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
    """Indices, in their order, of the most confident point of each cube of side `size`."""
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
    """Indices of all of `count` things, or of `limit` of them drawn evenly; always the same ones, in their order."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))
