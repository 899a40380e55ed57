"""Point clouds of one set, as predicted and as they are, seen from one viewpoint and cut to the truth's bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.viewer.viewpoint import Viewpoint, choose_viewpoint
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.scoring.set_prediction import PredictedSet
from g_ray_lab.scoring.set_scoring import build_truth, stack_geometry

WIDTH, HEIGHT, FOV_DEG = 480, 360, 60.0
QUANTILES = (0.02, 0.98)
"""Of the true points along each axis; between them lie the bounds, but for MARGIN."""
MARGIN = 0.1
SPLAT_PX = 2
"""Side of the square that a point of a dense map covers; points of LiDAR are drawn with twice of it."""
SPARSE = 0.25
"""Share of the pixels with true depth below which the truth is sparse."""

Picture = Float[np.ndarray, "_ _ 3"]
Points = Float[Tensor, "point 3"]


@dataclass(frozen=True, eq=False)
class PointCloudRow:
    """The pictures of one set."""

    title: str
    scene: str
    inputs: list[Picture]
    clouds: dict[str, Picture | None]
    """The truth first; None where a model has no prediction."""
    bounds: Float[np.ndarray, "end 3"]
    viewpoint: Viewpoint

    @staticmethod
    def from_set(
        title: str,
        scene: str,
        views: Sequence[EvaluationView],
        predictions: Mapping[str, PredictedSet | None],
    ) -> "PointCloudRow":
        """Align predictions as for the six metrics (first view, mean distance of points), and draw all alike."""
        truth = build_truth(views)
        colors = torch.stack([view.image for view in views]).movedim(1, -1)
        geometry = truth.geometry.to_first_view().normalize(truth.valid)
        points = geometry.world_points[truth.valid]
        bounds = compute_bounds(points)
        poses = [Pose(matrix) for matrix in geometry.poses.world_from_cam[0]]
        viewpoint = choose_viewpoint(poses, points.double().numpy(), 1.0)
        density = float(truth.valid.float().mean())
        splat = SPLAT_PX if density > SPARSE else 2 * SPLAT_PX
        clouds: dict[str, Picture | None] = {
            "truth": draw_points(points, colors[truth.valid[0]], bounds, viewpoint, splat)
        }
        for name, predicted in predictions.items():
            if predicted is None:
                clouds[name] = None
                continue
            found, tints = _collect_points(views, predicted, truth.valid)
            clouds[name] = draw_points(found, tints, bounds, viewpoint, SPLAT_PX)
        inputs = [view.image.movedim(0, -1).numpy() for view in views]
        return PointCloudRow(title, scene, inputs, clouds, bounds.numpy(), viewpoint)

    def describe(self) -> dict[str, Any]:
        """Return what fixes the pictures, as plain values."""
        eye = self.viewpoint
        return {
            "method": ", ".join(self.clouds),
            "setting": self.title,
            "scene": self.scene,
            "views": len(self.inputs),
            "bounds": self.bounds.tolist(),
            "viewpoint": {"position": eye.position.tolist(), "look_at": eye.look_at.tolist()},
        }


def _collect_points(
    views: Sequence[EvaluationView], predicted: PredictedSet, known: Bool[Tensor, "1 view h w"]
) -> tuple[Points, Points]:
    """Return the predicted points of placed views with their colors, normalized where the truth is known."""
    placed, predictions = predicted.select_placed(views)
    geometry = stack_geometry(placed, predictions)
    usable = torch.stack([one.valid for one in predictions])[None]
    covered = usable & known[:, list(predicted.placed)]
    points = geometry.to_first_view().normalize(covered).world_points
    colors = torch.stack([view.image for view in placed]).movedim(1, -1)
    return points[usable], colors[usable[0]]


def compute_bounds(points: Points) -> Float[Tensor, "end 3"]:
    """Compute a box around most points."""
    chosen = points[:: max(1, len(points) // 100_000)]
    low, high = torch.quantile(chosen, torch.tensor(QUANTILES, dtype=chosen.dtype), dim=0)
    grow = MARGIN * (high - low)
    return torch.stack([low - grow, high + grow])


def draw_points(
    points: Points, colors: Points, bounds: Float[Tensor, "end 3"], viewpoint: Viewpoint, splat: int
) -> Picture:
    """Draw the points within the bounds on white, the nearest one in every pixel."""
    inside = ((points > bounds[0]) & (points < bounds[1])).all(-1)
    points, colors = points[inside], colors[inside]
    camera = Pinhole.from_fov(FOV_DEG, WIDTH, HEIGHT)
    eye, target, up = (
        torch.from_numpy(np.asarray(part)).float()
        for part in (viewpoint.position, viewpoint.look_at, viewpoint.up)
    )
    local = Pose.look_at(eye, target, down=-up).inverse().apply(points.float())
    pixels, imaged = camera.project(local)
    picture = torch.ones(HEIGHT * WIDTH, 3)
    order = torch.argsort(local[:, 2], descending=True)
    order = order[imaged[order] & (local[order, 2] > 0)]
    column, row = pixels[order].floor().long().unbind(-1)
    nearest = torch.full((HEIGHT * WIDTH,), torch.inf)
    for down in range(splat):
        for right in range(splat):
            x, y = column + right, row + down
            keep = (x >= 0) & (x < WIDTH) & (y >= 0) & (y < HEIGHT)
            place, depth = (y * WIDTH + x)[keep], local[order, 2][keep]
            nearest.scatter_reduce_(0, place, depth, "amin")
            front = depth <= nearest[place]
            picture[place[front]] = colors[order][keep][front].float()
    return picture.reshape(HEIGHT, WIDTH, 3).numpy()
