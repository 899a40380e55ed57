"""A result against what is known of its scene: the paper's metrics, over the pixels whose depth is known.

Rays are not among them: they come from the calibration and are right by construction.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from g_ray.export.result import ResultView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.metrics.reconstruction import SetGeometry, score_sets
from g_ray.reconstruction.truth import TrueView

MAX_PIXELS = 20_000
"""Of a view, evenly spread: more would not change a score."""
SCORES = {
    "points_rel": "points (relative error)",
    "depth_rel": "depth along the ray (relative error)",
    "points_inlier": "points within 3 %",
    "pose_ate": "poses (ATE, in units of the mean distance of points)",
    "depth_inlier": "depth within 3 %",
}


def score_views(views: Sequence[ResultView], truth: Sequence[TrueView | None]) -> dict[str, float]:
    """The paper's metrics over the views of which something is known, by names for people."""
    pairs = [(view, true) for view, true in zip(views, truth, strict=True) if true is not None]
    samples = [_sample_pixels(view, true) for view, true in pairs]
    rays, true_depth, found_depth = (
        pad_sequence(list(parts), batch_first=True) for parts in zip(*samples, strict=True)
    )
    valid = true_depth > 0  # views with fewer pixels are padded with zeros
    exact = _make_geometry(rays, true_depth, [true.pose for _, true in pairs])
    predicted = _make_geometry(rays, found_depth, [view.pose for view, _ in pairs])
    scores = score_sets(exact, predicted, valid[None, :, None], depth_kind="ray")
    named = {f"{title}, against truth": float(getattr(scores, name)) for name, title in SCORES.items()}
    return {**named, "pixels with known depth": float(valid.sum())}


def _sample_pixels(view: ResultView, true: TrueView) -> tuple[Tensor, Tensor, Tensor]:
    """Rays, true and found depth of pixels where both are known."""
    both = (true.valid & view.valid).flatten().nonzero()[:, 0]
    chosen = both[:: max(1, -(-len(both) // MAX_PIXELS))]
    rays = view.rays().double().flatten(0, 1)[chosen]
    return rays, true.ray_depth.double().flatten()[chosen], view.ray_depth.double().flatten()[chosen]


def _make_geometry(
    rays: Float[Tensor, "view pixel 3"], depth: Float[Tensor, "view pixel"], poses: Sequence[Pose]
) -> SetGeometry:
    camera_points = (rays * depth[..., None])[None, :, None]
    stacked = Pose(torch.stack([pose.world_from_cam.double() for pose in poses])[None])
    return SetGeometry(transform_points(camera_points, stacked), camera_points, rays[None, :, None], stacked)
