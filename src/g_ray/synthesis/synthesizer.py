"""Render new views with a trained LVSM network: load it, choose its working size, prepare contexts, render."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import LVSMConfig
from g_ray.models.weights import (
    check_config,
    load_weights,
    read_recipe_document,
    read_weights,
    resolve_weights,
    validate_settings,
)
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import fit_box, resample
from g_ray.rays.views import Views

KIND = "NVSRecipe"
"""What `g-ray train` calls a recipe of novel-view synthesis in the metadata of weights."""


@dataclass(frozen=True, eq=False)
class Network:
    """LVSM with its weights, and the views of its training as its recipe describes them."""

    model: LVSM
    encoding: str
    """Camera inside attention."""
    size: tuple[int, int]
    """Width and height that it was trained at."""
    baseline: float | None
    """Distance of the farthest context from the first in training; None: it takes poses in meters, as they are."""

    @property
    def patch(self) -> int:
        return self.model.config.patch

    @property
    def tokens(self) -> int:
        """Number of patches of a view in training."""
        return self.size[0] * self.size[1] // self.patch**2

    @property
    def device(self) -> torch.device:
        return self.model.pixels.weight.device


def load_network(weights: str | Path, device: str | torch.device = "cpu") -> Network:
    """Load a network from a file that `g-ray train` has written, or by the name of shipped weights."""
    path = resolve_weights(Path(weights))
    if not path.is_file():
        raise OSError(f"{path}: no such file; give weights from g-ray train (model.safetensors)")
    card = read_card(path)
    tensors = read_weights(path)
    try:
        check_config(card.config, tensors)
        model = LVSM(card.config)
    except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())[:300]}") from None
    load_weights(model, path, tensors)
    return Network(
        model.eval().to(device),
        card.config.encoding,
        (card.width, card.height),
        card.baseline,
    )


@dataclass(frozen=True)
class TrainedCard:
    """A synthesis network by the metadata of its weights: its config, and the views that it was trained on."""

    config: LVSMConfig
    width: int
    height: int
    baseline: float | None


def read_card(path: Path) -> TrainedCard:
    """Read the card of weights that `g-ray train` has written; ValueError in one line if it has none for synthesis."""
    recipe = read_recipe_document(path)
    if recipe.get("kind") != KIND:
        raise ValueError(f"{path} is a {recipe.get('kind')}: give weights of a novel-view synthesis recipe")
    try:
        data = recipe["settings"]["data"]
        config = validate_settings(LVSMConfig, recipe["settings"]["model"])
        return TrainedCard(config, int(data["width"]), int(data["height"]), get_trained_baseline(data))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path}: its recipe cannot be used ({reason}): use weights from g-ray train"
        ) from None


def get_trained_baseline(data: Mapping[str, Any]) -> float | None:
    """Return the baseline that contexts were scaled to in training; None for rooms and objects, which are in meters."""
    if data.get("kind") == "scene":
        return float(data["baseline"])
    return 1.0 if data.get("kind") == "re10k" else None


# Working sizes: views of another shape get about as many patches as in training.


def choose_working_size(width: int, height: int, tokens: int, patch: int) -> tuple[int, int]:
    """Choose width and height in whole patches, near the aspect of a view and near that many patches.

    Errors count by their logarithm: a tenth too wide is as bad as a tenth more patches. No side gets more patches than
    there are in all.
    """
    aspect = width / height

    def compute_error(columns: int, rows: int) -> float:
        return abs(math.log(columns / rows / aspect)) + abs(math.log(columns * rows / tokens))

    choices = [
        (min(max(1, columns), tokens), rows)
        for rows in range(1, tokens + 1)
        for columns in (math.floor(aspect * rows), math.ceil(aspect * rows))
    ]
    columns, rows = min(choices, key=lambda grid: compute_error(*grid))
    return columns * patch, rows * patch


def describe_size(camera: Camera, size: tuple[int, int]) -> str:
    return f"{camera.NAME} {camera.width}×{camera.height} → {size[0]}×{size[1]} px"


# Rendering


NO_BASELINE = 1e-9
"""Contexts closer together than this are one place: there is nothing to scale by."""


def compute_baseline_scale(relative: Pose, contexts: int, baseline: float | int) -> Float[Tensor, "*batch"]:
    """Compute the factor by which `scale_to_baseline` multiplies lengths."""
    apart = relative.translation[..., :contexts, :].norm(dim=-1).amax(-1)
    return torch.where(apart > NO_BASELINE, baseline / apart.clamp(min=NO_BASELINE), 1.0)


class Synthesizer:
    """Renders any camera from photographs with known cameras and poses.

    Sizes: the network works with about as many patches per view as in training. All contexts take the working size of
    the first one's shape, each cropped to it in its middle and resized with its camera; a target takes the working size
    of its own shape, is not cropped, and each axis is resized by its own factor (a few per cent apart). Poses become
    relative to the first context; with a `baseline` (the network's own, if it has one) they are scaled so that the
    farthest context is that far from the first, otherwise lengths stay as they are.
    """

    def __init__(
        self,
        network: Network,
        images: Sequence[Float[Tensor, "3 _ _"]],
        cameras: Sequence[Camera],
        poses: Pose,
        baseline: float | int | None = None,
    ) -> None:
        if not images or not len(images) == len(cameras) == poses.batch_shape[0]:
            raise ValueError(
                f"{len(images)} images, {len(cameras)} cameras and poses {poses.batch_shape}: give one each per context"
            )
        self.network = network
        self.size = choose_working_size(cameras[0].width, cameras[0].height, network.tokens, network.patch)
        fitted = [self._fit_to_network(image, camera) for image, camera in zip(images, cameras, strict=True)]
        self.images = torch.stack([image for image, _ in fitted])[None].to(network.device, torch.float32)
        baseline = network.baseline if baseline is None else baseline
        relative = poses.relative_to_first()
        self.scale = (
            1.0 if baseline is None else float(compute_baseline_scale(relative, len(images), baseline))
        )
        self._first = poses[0]
        self.contexts = Views([camera for _, camera in fitted], self._normalize_poses(poses)).to(
            network.device, torch.float32
        )

    def choose_target_size(self, camera: Camera) -> tuple[int, int]:
        """Return the width and height that a camera is rendered at."""
        return choose_working_size(camera.width, camera.height, self.network.tokens, self.network.patch)

    @torch.no_grad()
    def render(
        self, camera: Camera, pose: Pose, *, full_size: bool = False
    ) -> Float[Tensor, "3 height width"]:
        """Render what a camera sees, in [0, 1], at `choose_target_size` or at its own size; black without a ray."""
        small = camera.resize(*self.choose_target_size(camera))
        target = Views([small], self._normalize_poses(Pose(pose.world_from_cam[None])))
        target = target.to(self.network.device, torch.float32)
        picture = self.network.model(self.images, self.contexts, target)[0, 0].float().cpu()
        if full_size:
            picture = resample(picture, small, camera.width, camera.height)[0]
        shown = camera if full_size else small
        return picture * RayMap.from_camera(shown.to("cpu", torch.float32)).valid

    def _fit_to_network(self, image: Tensor, camera: Camera) -> tuple[Tensor, Camera]:
        return resample(image, camera, *self.size, fit_box(camera.width, camera.height, *self.size))

    def _normalize_poses(self, poses: Pose) -> Pose:
        """Express poses in the frame of the first context and the network's unit."""
        relative = Pose(self._first.inverse().world_from_cam @ poses.world_from_cam)
        return relative.scale_translation(torch.full(relative.batch_shape, self.scale, dtype=relative.dtype))
