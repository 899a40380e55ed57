"""Score novel-view synthesis: what a protocol of test scenes is, the scorer, and references without a network.

A protocol yields the same scenes for every method and seed, under several settings, the columns of a table.
`NVSScorer` computes PSNR, SSIM and, if its weights are available, LPIPS for a network and for REFERENCES.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray.runtime.parts import hash_key
from g_ray_lab.metrics.image_metrics import Distance, SceneScores, score_scenes
from g_ray_lab.metrics.lpips import LPIPS, SMALLEST, load_lpips
from g_ray_lab.scoring.shard import Shard, split_range
from g_ray_lab.scoring.study import WHOLE, BatchScores, Scorer, Scores, join_batches
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.training.recipe import to_plain

PAPER_SHEET = "z2.0"
"""Setting of the paper's qualitative figure on RealEstate10K."""

Images = Float[Tensor, "scene target 3 h w"]
Predict = Callable[[NVSBatch], Tensor]


@dataclass(frozen=True)
class NVSProtocol(ABC):
    """Test scenes that are the same for every method and seed; `settings` are the columns of the table."""

    shard: Shard = field(default=WHOLE, kw_only=True)
    """Share of the batches of every setting; all of them by default."""
    limit: int | None = field(default=None, kw_only=True)
    """Only so many scenes, to try things out; all of them by default."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def is_ordered(self) -> bool:
        """Whether the settings are steps along one axis, and are to be drawn as curves."""
        return True

    @property
    def shown_setting(self) -> str:
        """The setting whose predictions are drawn as a contact sheet: the paper's z_max = 2.0 if it is one of them."""
        return PAPER_SHEET if PAPER_SHEET in self.settings else self.settings[-1]

    @abstractmethod
    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield all test scenes under a setting, always in the same order."""

    @property
    def digest(self) -> str:
        """Hash of everything that determines the test images; scores with another digest are not reused."""
        return hash_key(self.describe_settings(), default=str)

    def describe_settings(self) -> dict[str, Any]:
        """Return the fields that determine the test images; a share is no other protocol."""
        settings = asdict(self)
        settings.pop("shard")
        if self.limit is None:  # absent otherwise, so that scores stored before it existed are used
            settings.pop("limit")
        return settings

    def split_scenes(self, scenes: int, at_once: int) -> list[range]:
        """Return the scenes of each batch that belongs to this share."""
        count = scenes if self.limit is None else min(scenes, self.limit)
        batches = enumerate(split_range(count, at_once))
        return [batch for position, batch in batches if self.shard.takes(position)]

    def select(self, shard: Shard) -> "NVSProtocol":
        """Return the protocol with a share of its batches."""
        return self if shard == self.shard else replace(self, shard=shard)

    def limit_scenes(self, limit: int | None) -> "NVSProtocol":
        """Return the protocol with its first scenes only."""
        return self if limit == self.limit else replace(self, limit=limit)

    def score(self, predict: Predict, setting: str, lpips: LPIPS | None) -> SceneScores:
        """Return one value per scene and metric."""
        return SceneScores.concatenate(self.score_batches(predict, setting, lpips))

    @torch.no_grad()
    def score_batches(
        self, predict: Predict, setting: str, lpips: LPIPS | None, device: str | torch.device = "cpu"
    ) -> list[SceneScores]:
        """Return the scores of every batch; images are predicted and compared on the device."""
        distance = enlarge_for(lpips)
        batches = (batch.to(device) for batch in self.make_batches(setting))
        return [score_scenes(b.target_images, predict(b), lpips=distance) for b in batches]

    def score_settings(
        self, predict: Predict, lpips: LPIPS | None, device: str | torch.device = "cpu"
    ) -> dict[str, list[SceneScores]]:
        """Return the scores of every batch by setting. Protocols whose settings share images predict them once."""
        return {setting: self.score_batches(predict, setting, lpips, device) for setting in self.settings}


def enlarge_for(lpips: LPIPS | None) -> Distance | None:
    """Return LPIPS for images of any size."""
    return None if lpips is None else partial(measure_enlarged, lpips)


def measure_enlarged(lpips: Distance, truth: Images, predicted: Images) -> Float[Tensor, "scene target"]:
    """Return LPIPS of images that are repeated 2, 3, … times in both directions if they are too small for it."""
    factor = ceil(SMALLEST / min(truth.shape[-2:]))
    truth, predicted = (
        images.repeat_interleave(factor, -1).repeat_interleave(factor, -2) for images in (truth, predicted)
    )
    return lpips(truth, predicted)


@dataclass(frozen=True, kw_only=True)
class ZoomsProtocol(NVSProtocol):
    """The paper's protocol: the first context keeps its field of view, other views are zoomed by z ~ U[1, z_max]."""

    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"z{zoom:.1f}" for zoom in self.zooms)

    def get_zoom(self, setting: str) -> float:
        """Return z_max of a setting."""
        return dict(zip(self.settings, self.zooms, strict=True))[setting]


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

    def score_network(self, network: nn.Module, setting: str) -> dict[str, list[float]]:
        device = get_device(network)
        parts = self.protocol.score_batches(make_predictor(network), setting, self._load(device), device)
        return join_batches([to_values(part) for part in parts])

    def score_settings(self, network: nn.Module) -> Scores:
        return {setting: join_batches(parts) for setting, parts in self.score_share(network).items()}

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
    local = (views.poses.rotation[:, index, None, None].mT @ directions[..., None])[..., 0]
    pixels, valid = camera.project(local)
    size = pixels.new_tensor([camera.width, camera.height])
    return 2 * pixels / size - 1, valid & camera.contains(pixels)
