"""Which views a reference view is compared with, and between which distances."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.media.view import View
from g_ray.stereo.depth_map import SparsePoints
from g_ray.stereo.expected_error import Uncertainty, predict_match_px
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions

GOOD_ANGLE_DEG = (5.0, 20.0)
"""Triangulation angles that are wide enough for precise depth and narrow enough for patches to look alike."""
POINTS_PER_VIEW = 2000
MIN_SHARED = 8
"""Fewer shared points are treated as false matches."""
MIN_DIVERSITY = 0.2
"""Weight of a source that stands where another one does."""
GUESSED_RANGE = (2.0, 1000.0)
"""Distances in units of the typical baseline, where nothing else is known."""


def choose_sources(
    views: Sequence[View],
    points: SparsePoints | None = None,
    options: StereoOptions = DEFAULTS,
    uncertainty: Uncertainty | None = None,
) -> list[list[int]]:
    """List the best source views of each view, best first; a view that shares nothing gets an empty list.

    Pairs are scored by their shared points: each counts by the inverse square of the error to expect of its depth, and
    by how equally large both views see it. Sources that stand close to one already chosen count less, as they see and
    miss the same. Without points, samples along the rays of each view stand in for them.
    """
    if points is not None and points.visible is not None and len(points.visible) != len(views):
        raise ValueError(
            f"visibility of {len(points.visible)} views for {len(views)} views: give one row per view"
        )
    centers = torch.stack([view.get_pose().translation for view in views]).float()
    match_px = torch.ones(len(views))
    if uncertainty is not None:
        match_px = torch.tensor([predict_match_px(noise) for noise in uncertainty.noise_px])
    coarseness = (match_px / match_px.median()).to(centers)
    resolution = torch.tensor([_measure_resolution(view) for view in views], device=centers.device)
    chosen = []
    for index in range(len(views)):
        positions, visible = _collect_points(views, points, index, options)
        # Of many views few see the same: only these are scored.
        near = ((visible & visible[index]).sum(-1) >= MIN_SHARED).nonzero()[:, 0]
        if not len(near):
            chosen.append([])
            continue
        own = int(torch.searchsorted(near, index))
        scores = _score_pairs(
            centers[near], own, positions, visible[near], coarseness[near], resolution[near]
        )
        best = _pick_diverse(scores, centers[near], positions, options.sources)
        chosen.append(near[best].tolist())
    return chosen


def choose_range(
    views: Sequence[View],
    points: SparsePoints | None,
    index: int,
    options: StereoOptions = DEFAULTS,
) -> tuple[float, float]:
    """Near and far ray distance of a view: as given, else by the points that it sees, else by the baselines."""
    near, far = options.near, options.far
    if near is None or far is None:
        found = None if points is None else _measure_range(views, points, index)
        low, high = found or guess_range(views)
        near, far = near or min(low, 0.5 * (far or torch.inf)), far or max(high, 2 * (near or 0))
    return near, far


def guess_range(views: Sequence[View]) -> tuple[float, float]:
    """Multiples of the distance of each camera to its nearest neighbors."""
    centers = torch.stack([view.get_pose().translation for view in views]).double()
    distance = torch.cdist(centers, centers)
    apart = distance[distance > 1e-6 * distance.amax().clamp_min(1e-30)]
    if not len(apart):
        raise ValueError("all views stand in one place: there is no parallax, and no depth without it")
    nearest = distance.masked_fill(distance <= 1e-6 * distance.amax(), torch.inf).amin(-1)
    typical = float(nearest[torch.isfinite(nearest)].median())
    return GUESSED_RANGE[0] * typical, GUESSED_RANGE[1] * typical


def find_visible(view: View, positions: Float[Tensor, "point 3"]) -> Bool[Tensor, "point"]:
    """Whether points fall into the frame of a view, onto a usable pixel; occlusion is not considered."""
    local = view.get_pose().to(torch.float64).inverse().apply(positions.double())
    pixels, imaged = view.camera.to(torch.float64).project(local)
    seen = imaged & view.camera.contains(pixels)
    mask = view.load_mask()
    if mask is None:
        return seen
    height, width = view.size
    column, row = pixels[..., 0].long().clamp(0, width - 1), pixels[..., 1].long().clamp(0, height - 1)
    return seen & mask[row, column]


def _measure_range(views: Sequence[View], points: SparsePoints, index: int) -> tuple[float, float] | None:
    view = views[index]
    seen = find_visible(view, points.positions) if points.visible is None else points.visible[index]
    if int(seen.sum()) < MIN_SHARED:
        return None
    distance = (points.positions[seen].double() - view.get_pose().translation.double()).norm(dim=-1)
    nearest, farthest = torch.quantile(distance, distance.new_tensor([0.01, 0.99])).tolist()
    return 0.75 * nearest, 1.5 * farthest


def _collect_points(
    views: Sequence[View], points: SparsePoints | None, index: int, options: StereoOptions
) -> tuple[Float[Tensor, "point 3"], Bool[Tensor, "view point"]]:
    """Points that a view sees, evenly thinned, and which views see them."""
    if points is None:
        positions = _sample_rays(views[index], *choose_range(views, None, index, options))
        return positions, torch.stack([find_visible(view, positions) for view in views])
    if points.visible is None:
        seen = find_visible(views[index], points.positions).nonzero()[:, 0]
        positions = points.positions[_thin(seen)].float()
        return positions, torch.stack([find_visible(view, positions) for view in views])
    picked = _thin(points.visible[index].nonzero()[:, 0])
    return points.positions[picked].float(), points.visible[:, picked]


def _thin(indices: Tensor) -> Tensor:
    return indices[:: max(1, len(indices) // POINTS_PER_VIEW)]


def _sample_rays(view: View, near: float, far: float) -> Float[Tensor, "point 3"]:
    """Points along a few hundred rays of a view, uniform in inverse distance."""
    camera = view.camera.to(torch.float32).resize(20, 15)
    rays, valid = camera.unproject_grid()
    inverse = torch.linspace(1 / far, 1 / near, 6, device=rays.device)[1:-1]
    local = (rays[valid] / inverse[:, None, None]).flatten(0, 1)
    return view.get_pose().to(torch.float32).apply(local)


def _score_pairs(
    centers: Float[Tensor, "view 3"],
    index: int,
    positions: Float[Tensor, "point 3"],
    visible: Bool[Tensor, "view point"],
    coarseness: Float[Tensor, "view"],
    resolution: Float[Tensor, "view"],
) -> Float[Tensor, "view"]:
    """Score views as sources of one; `coarseness` are their matching errors, relative to a typical view's, and
    `resolution` is in pixels per radian."""
    distance = (positions - centers[:, None]).norm(dim=-1).clamp_min(1e-12)
    angle_deg = _measure_angles_deg(centers, index, positions)
    low, high = GOOD_ANGLE_DEG
    # Below: the expected error grows as the angle falls, and with the matching error; above: patches look ever less
    # alike.
    precision = angle_deg / low / coarseness[:, None]
    weight = precision.clamp(max=1) ** 2 * torch.exp(-(((angle_deg - high).clamp_min(0) / 15) ** 2))
    size = resolution[:, None] / distance
    ratio = size / size[index]
    weight = weight * torch.minimum(ratio, 1 / ratio) ** 1.5
    score = (weight * (visible & visible[index])).sum(-1)
    score[index] = 0
    return score


def _measure_angles_deg(
    centers: Float[Tensor, "view 3"], index: int, positions: Float[Tensor, "point 3"]
) -> Float[Tensor, "view point"]:
    """Triangulation angles of points between one view and all others."""
    offsets = positions - centers[:, None]
    # atan2 of cross and dot keeps digits at small angles.
    cross = torch.linalg.cross(offsets, offsets[index].expand_as(offsets)).norm(dim=-1)
    return torch.rad2deg(torch.atan2(cross, (offsets * offsets[index]).sum(-1)))


def _pick_diverse(
    scores: Float[Tensor, "view"],
    centers: Float[Tensor, "view 3"],
    positions: Float[Tensor, "point 3"],
    count: int,
) -> list[int]:
    """Views in order of their scores, each weakened by the chosen ones that see the points from the same place."""
    chosen: list[int] = []
    scores = scores.clone()
    while len(chosen) < count and float(scores.amax()) > 0:
        best = int(scores.argmax())
        chosen.append(best)
        apart = _measure_angles_deg(centers, best, positions).median(-1).values
        scores *= (apart / GOOD_ANGLE_DEG[0]).clamp(MIN_DIVERSITY, 1)
        scores[best] = 0
    return chosen


def _measure_resolution(view: View) -> float:
    """Pixels per radian near the middle of the image."""
    height, width = view.size
    camera = view.camera.to(torch.float64)
    middle = torch.tensor([width / 2, height / 2], dtype=torch.float64, device=camera.device)
    steps = torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64, device=camera.device)
    (left, right), valid = camera.unproject(middle + 0.1 * width * steps)
    if not bool(valid.all()):
        return float(camera.params[0])
    angle = torch.atan2(torch.linalg.cross(left, right).norm(), (left * right).sum())
    return 0.1 * width / max(float(angle), 1e-9)
