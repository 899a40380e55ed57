"""Score novel-view synthesis: PSNR, SSIM and, if its weights are available, LPIPS; and references without a network."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray_lab.metrics.image_metrics import SceneScores
from g_ray_lab.metrics.lpips import LPIPS, SMALLEST, load_lpips
from g_ray_lab.scoring.nvs_protocols import NVSProtocol, Predict
from g_ray_lab.scoring.scored_runs import BatchScores, Scorer
from g_ray_lab.scoring.store import WHOLE, Shard
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.training.recipe import to_plain

Images = Float[Tensor, "scene target 3 h w"]


@dataclass(frozen=True)
class NVSScorer(Scorer):
    """Score images of a protocol's scenes; `lpips` is the file of LPIPS weights, None leaves that metric out."""

    protocol: NVSProtocol
    lpips: Path | None = None
    device: str = "cpu"
    """Where references are computed and scored; networks are scored where they are."""

    @property
    def settings(self) -> tuple[str, ...]:
        return self.protocol.settings

    @property
    def key(self) -> dict[str, str]:
        return {"protocol": self.protocol.digest, "lpips": str(self.lpips is not None)}

    def describe(self) -> dict[str, Any]:
        return {
            "protocol": to_plain(self.protocol.describe_settings()),
            "protocol_digest": self.protocol.digest,
            "ssim": "as torchmetrics",
            "lpips": f"images with a side below {SMALLEST} px are enlarged by a whole factor",
        }

    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        return self._score(make_predictor(network), shard, get_device(network))

    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        device = torch.device(self.device)
        return {name: self._score(predict, shard, device) for name, predict in REFERENCES.items()}

    def _score(self, predict: Predict, shard: Shard, device: torch.device) -> BatchScores:
        protocol = self.protocol.select(shard)
        scores = protocol.score_settings(predict, self._load(device), device)
        return {setting: [to_values(part) for part in parts] for setting, parts in scores.items()}

    def _load(self, device: torch.device) -> LPIPS | None:
        return None if self.lpips is None else _load_lpips(self.lpips, str(device))


@cache  # a table scores many networks with the same weights
def _load_lpips(lpips: Path, device: str) -> LPIPS:
    return load_lpips(lpips).to(device)


def to_values(scores: SceneScores) -> dict[str, list[float]]:
    """Return the values of each metric as numbers."""
    return {metric: values.tolist() for metric, values in scores.rows().items()}


def get_device(network: nn.Module) -> torch.device:
    """Return where the parameters of a network are."""
    return next(network.parameters()).device


def make_predictor(network: nn.Module) -> Predict:
    """Return a function that predicts on the network's device and moves images back to the device of the batch."""
    device = get_device(network)

    def predict(batch: NVSBatch) -> torch.Tensor:
        there = batch.to(device)
        return network(there.context_images, there.contexts, there.targets).to(batch.target_images)

    return predict


def predict_mean_color(batch: NVSBatch) -> Images:
    """Predict the mean color of the contexts at every pixel."""
    mean = batch.context_images.mean((1, 3, 4))
    return mean[:, None, :, None, None].expand_as(batch.target_images)


def copy_context(batch: NVSBatch) -> Images:
    """Predict a copy of the first context."""
    return batch.context_images[:, :1].expand_as(batch.target_images)


def warp_by_rotation(batch: NVSBatch) -> Images:
    """Predict what the contexts show in the directions of the target's rays, as if all cameras were at one point.

    Where several contexts show a direction the first one is used; where none does, the mean color.
    """
    warped = [_warp(batch, target) for target in range(batch.target_images.shape[1])]
    return torch.stack(warped, 1)


REFERENCES: dict[str, Callable[[NVSBatch], Images]] = {
    "mean_colour": predict_mean_color,
    "copy_context": copy_context,
    "rotation_warp": warp_by_rotation,
}
"""Predictions without a network, for scale: a method should beat them."""


def _warp(batch: NVSBatch, target: int) -> Float[Tensor, "scene 3 h w"]:
    """Warp the contexts into one target; later assignments overwrite, so the first context comes last."""
    image = predict_mean_color(batch)[:, target].clone()
    directions = _compute_world_directions(batch.targets, target)
    for context in reversed(range(len(batch.contexts))):
        pixels, visible = _look_up(batch.contexts, context, directions)
        colors = F.grid_sample(
            batch.context_images[:, context],
            pixels,
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        image = torch.where(visible[:, None], colors, image)
    return image


def _compute_world_directions(views: Views, index: int) -> Float[Tensor, "scene h w 3"]:
    """Return the directions of a view's rays in the world frame."""
    assert views.poses is not None
    rays = RayMap.from_camera(views.cameras[index])
    directions = rays.directions.expand(views.batch, *rays.directions.shape[-3:])
    return (views.poses.rotation[:, index, None, None] @ directions[..., None])[..., 0]


def _look_up(views: Views, index: int, directions: Float[Tensor, "scene h w 3"]) -> tuple[Tensor, Tensor]:
    """Return where a camera images world directions, in grid_sample's units, and whether it does."""
    assert views.poses is not None
    camera = views.cameras[index]
    # Rotations alone, on purpose: this reference knows lenses and headings, but no depth and no parallax.
    local = (views.poses.rotation[:, index, None, None].mT @ directions[..., None])[..., 0]
    pixels, valid = camera.project(local)
    size = pixels.new_tensor([camera.width, camera.height])
    return 2 * pixels / size - 1, valid & camera.contains(pixels)
