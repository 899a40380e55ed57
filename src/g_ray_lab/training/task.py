"""Tasks: what the engine trains (a curve, view synthesis, reconstruction), seeds of steps, and batches in order."""

import hashlib
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from g_ray.models.lvsm_config import LVSMConfig
from g_ray.models.reconstruction_config import RANDOM_ENCODER, ReconstructionConfig, ReconstructionNetwork
from g_ray_lab.losses import ReconstructionWeights
from g_ray_lab.sources.batches import BatchSource, NVSBatch, ReconstructionBatch
from g_ray_lab.sources.draws import BROKEN_SAMPLE, UnreadableFolder, describe_error
from g_ray_lab.training.recipe import CurveRecipe

if TYPE_CHECKING:
    from g_ray.models.frozen_features import FrozenFeatures
    from g_ray.models.lvsm import LVSM
    from g_ray.models.reconstruction_network import ReconstructionModel


def make_step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of one step of one rank; it is hashed, so that neighboring steps and ranks are independent.

    No random state has to be saved: a resumed run computes the seeds again.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch takes 63 bits


class Task(ABC):
    """A model, its data and its objective.

    `make_batch` is a pure function of (step, rank, world), with the seed inside the task: a resumed run sees the
    same data as an uninterrupted one, and no state of the data has to be saved.
    """

    batch_size: int = 1
    """Samples per step and rank, for the throughput that is shown."""

    def use_cache(self, folder: Path, max_bytes: int) -> None:
        """Keep what can be computed again in a folder, before the model is built; ValueError if there is nothing."""
        raise ValueError("--cache: nothing to keep; it is for reconstruction with --model.freeze-encoder")

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Build a new model on the CPU; the engine has seeded torch before."""

    @abstractmethod
    def make_batch(self, step: int, rank: int, world: int) -> Any:
        """Make the batch of one of `world` ranks at a step; a broken file raises an error, and the step is skipped."""

    @abstractmethod
    def compute_loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar to minimize, and scalars to log. Call `model(…)`, which may be wrapped."""

    def describe_batch(self, batch: Any) -> str:
        """Return the files or scenes of a batch, for the message when its loss is not finite."""
        return ""

    def list_redrawn(self, batch: Any) -> tuple[str, ...]:
        """Return why parts of a batch were drawn again, one line each: files that cannot be read."""
        return ()

    def render_samples(self, model: nn.Module) -> Tensor | None:
        """Return pictures [n 3 h w] in [0, 1], or None. Every rank calls it, without gradients."""
        return None

    def validate(self, model: nn.Module) -> float | None:
        """Return a score on held-out data, lower is better, or None. Every rank calls it, without gradients."""
        return None


# A perceptron learns a curve: to try out a machine, and to test the engine.


class Perceptron(nn.Module):
    """x → y through `layers` hidden layers; the layers are a ModuleList, so FSDP2 shards them one by one."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(1, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def forward(self, x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1"]:
        x = self.first(x)
        for layer in self.hidden:
            x = x + self.dropout(torch.tanh(layer(x)))
        return self.last(self.norm(x))


@dataclass(frozen=True)
class CurveBatch:
    x: Float[Tensor, "batch 1"]
    y: Float[Tensor, "batch 1"]


@dataclass
class CurveTask(Task):
    """y = sin 3x + ½ cos 7x on [−1, 1]. Dropout shows that random noise is resumed exactly."""

    recipe: CurveRecipe

    def __post_init__(self) -> None:
        self.batch_size = self.recipe.batch

    def build_model(self) -> nn.Module:
        return Perceptron(self.recipe.width, self.recipe.layers, self.recipe.dropout)

    def make_batch(self, step: int, rank: int, world: int) -> CurveBatch:
        time.sleep(self.recipe.pause_s)
        generator = torch.Generator().manual_seed(make_step_seed(self.recipe.seed, step, rank))
        x = 2 * torch.rand(self.batch_size, 1, generator=generator) - 1
        return CurveBatch(x, evaluate_curve(x))

    def compute_loss(self, model: nn.Module, batch: CurveBatch) -> tuple[Tensor, dict[str, Tensor]]:
        error = F.mse_loss(model(batch.x), batch.y)
        return error, {"mse": error}

    def validate(self, model: nn.Module) -> float:
        x = torch.linspace(-1, 1, 64, device=next(model.parameters()).device)[:, None]
        return float(F.mse_loss(model(x).float(), evaluate_curve(x)))

    def render_samples(self, model: nn.Module) -> Float[Tensor, "1 3 32 64"]:
        """Draw the learned curve, black on white."""
        x = torch.linspace(-1, 1, 64, device=next(model.parameters()).device)[:, None]
        rows = (15.5 - 10 * model(x).float()[:, 0]).round().clamp(0, 31).long()
        picture = torch.ones(1, 3, 32, 64)
        picture[:, :, rows.cpu(), torch.arange(64)] = 0.0
        return picture


def evaluate_curve(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1"]:
    return torch.sin(3 * x) + 0.5 * torch.cos(7 * x)


# Novel-view synthesis and multi-view reconstruction: a network, a stream of batches and a loss

MAX_SHOWN = 2
"""Scenes in a picture."""


@dataclass(kw_only=True)
class ViewTask(Task):
    """A task on batches of views, which name what they show and what had to be drawn again."""

    data: BatchSource[Any]
    batch_size: int

    def make_batch(self, step: int, rank: int, world: int) -> Any:
        return self.data.make_batch(step, rank)

    def describe_batch(self, batch: Any) -> str:
        return ", ".join(batch.names)

    def list_redrawn(self, batch: Any) -> tuple[str, ...]:
        return batch.redrawn

    def validate(self, model: nn.Module) -> float:
        return float(self.compute_loss(model, self._get_held_out(model))[0])

    def _get_held_out(self, model: nn.Module) -> Any:
        """Return the held-out batch, rendered in full precision although the engine validates under autocast."""
        with torch.autocast("cpu", enabled=False):
            return self.data.make_held_out().to(next(model.parameters()).device)


@dataclass(kw_only=True)
class NVSTask(ViewTask):
    """LVSM learns to render targets: squared error + `weight` · LPIPS (`perceptual`)."""

    config: LVSMConfig
    perceptual: nn.Module | None
    weight: float

    def build_model(self) -> "LVSM":
        from g_ray.models.lvsm import LVSM

        return LVSM(self.config)

    def compute_loss(self, model: nn.Module, batch: NVSBatch) -> tuple[Tensor, dict[str, Tensor]]:
        from g_ray_lab.losses.view_losses import nvs_loss

        predicted, truth = model(batch.context_images, batch.contexts, batch.targets), batch.target_images
        perceptual = None if self.perceptual is None else self.perceptual.to(truth.device)
        # In fp32 even under autocast: squares of small errors underflow in fp16.
        with torch.autocast(truth.device.type, enabled=False):
            terms = nvs_loss(truth, predicted.float(), perceptual=perceptual, weight=self.weight)
        logged = {"mse": terms.mse.mean(), "psnr": -10 * terms.mse.detach().log10().mean()}
        if perceptual is not None:
            logged["lpips"] = terms.perceptual.mean()
        return terms.total.mean(), logged

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"] | None:
        """Return for each scene the contexts, the true and the predicted targets."""
        batch = self._get_held_out(model)
        if batch.context_images.shape[-2:] != batch.target_images.shape[-2:]:
            return None
        predicted = model(batch.context_images, batch.contexts, batch.targets).to(batch.target_images)
        rows = torch.cat([batch.context_images, batch.target_images, predicted], 1)
        return rows[:MAX_SHOWN].flatten(0, 1)


@dataclass(kw_only=True)
class ReconstructionTask(ViewTask):
    """The reconstruction network learns points, depths and poses; features of a frozen encoder may be cached."""

    config: ReconstructionConfig
    network: ReconstructionNetwork
    weights: ReconstructionWeights
    features: "FrozenFeatures | None" = None

    def __post_init__(self) -> None:
        from g_ray.models.frozen_features import FrozenFeatures

        network = self.network
        if network.trained_blocks and not network.freeze_encoder:
            raise ValueError("--model.trained-blocks is for frozen encoders: add --model.freeze-encoder")
        if network.freeze_encoder and not network.trained_blocks:
            self.features = FrozenFeatures()

    def use_cache(self, folder: Path, max_bytes: int) -> None:
        from g_ray.models.frozen_features import FrozenFeatures

        if self.features is None:
            super().use_cache(folder, max_bytes)
        self.features = FrozenFeatures(folder, max_bytes)

    def build_model(self) -> "ReconstructionModel":
        from g_ray.models.reconstruction_network import ReconstructionModel

        model, network = ReconstructionModel(self.config), self.network
        if network.encoder not in (None, RANDOM_ENCODER):
            from g_ray.models.foreign_weights import load_encoder

            load_encoder(model, network.encoder)
        if network.freeze_encoder:
            model.freeze_encoder(self.features, network.trained_blocks)
        return model

    def compute_loss(self, model: nn.Module, batch: ReconstructionBatch) -> tuple[Tensor, dict[str, Tensor]]:
        from g_ray_lab.losses.view_losses import reconstruction_loss

        terms = reconstruction_loss(model(batch.images, batch.views), batch, self.weights)
        logged = {name: value.detach() for name, value in terms.named_terms().items() if name != "total"}
        return terms.total, logged

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"]:
        """Return the images of the first set, then its true and predicted ray depth, where near is bright."""
        batch = self._get_held_out(model)
        truth = batch.ray_depth[0]
        predicted = model(batch.images, batch.views).ray_depth[0].to(truth)
        valid = truth > 0
        scaled = predicted * (truth[valid].median() / predicted[valid].median())  # predictions have no unit
        bright = [(1 - depth / truth.max()).clamp(0, 1) * valid for depth in (truth, scaled)]
        return torch.cat([batch.images[0], *(depth[:, None].expand(-1, 3, -1, -1) for depth in bright)])


# Batches in order, made by the training process or ahead of time by workers


@dataclass(frozen=True)
class BrokenBatch:
    """Stands in for a batch that could not be made."""

    reason: str
    is_final: bool = False
    """Whether the step after it would fail as well: a whole folder cannot be read."""


@dataclass(frozen=True)
class LostLoader:
    """Stands in for all further batches once a worker has died, e.g. killed by the system for lack of memory."""

    reason: str


@dataclass(frozen=True)
class StepDataset(Dataset[Any]):
    """step → batch, or `BrokenBatch`. Workers make whole batches: their number changes neither order nor content."""

    task: Task
    rank: int
    world: int

    def __getitem__(self, step: int) -> Any:
        try:
            return self.task.make_batch(step, self.rank, self.world)
        except BROKEN_SAMPLE as error:
            is_final = isinstance(error, UnreadableFolder)
            return BrokenBatch(str(error) if is_final else describe_error(error), is_final)


MAX_WORKERS = 8
"""Per rank, if their number is not given: more processes mostly hold more scenes in memory."""


def choose_workers(wanted: int | None, device: str, cores: int, ranks: int) -> int:
    """Return how many processes make batches for one of `ranks` on a machine, on a device of the given type."""
    if wanted is not None:
        return wanted
    # One core is left to the rank itself, which launches the GPU's work.
    return 0 if device == "cpu" else min(MAX_WORKERS, max(1, cores // ranks - 1))


def count_local() -> tuple[int, int]:
    """Return the cores that this process may use, and the ranks of torchrun on this machine."""
    return len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def iterate_batches(
    task: Task, first: int, last: int, rank: int, world: int, workers: int, pin: bool = False
) -> Iterator[Any]:
    """Return batches of the steps first … last − 1; `LostLoader` is the last one if a worker dies.

    With `pin` workers' batches are in page-locked memory.
    """
    steps = StepDataset(task, rank, world)
    if workers == 0:
        return (steps[step] for step in range(first, last))
    loader = DataLoader(
        steps,
        batch_size=None,
        sampler=range(first, last),
        num_workers=workers,
        pin_memory=pin,
        collate_fn=_collate_identity,
        worker_init_fn=_ignore_signals,
    )
    return _iterate_until_lost(_start_workers(loader))


def _start_workers(loader: DataLoader[Any]) -> Iterator[Any]:
    """Start the workers without torch's handler of SIGCHLD.

    With it the death of a worker raises wherever the training process is, even in half an optimizer step, after which
    nothing could be saved. Without it the next request for a batch raises.
    """
    before = signal.getsignal(signal.SIGCHLD)
    batches = iter(loader)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
    return batches


def _iterate_until_lost(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (RuntimeError, OSError, EOFError) as error:
        # Broken samples come as values: this is about a worker itself, or the pipe that it no longer serves.
        yield LostLoader(f"a loader worker died ({' '.join(str(error).split())[:160]})")


def _collate_identity(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    """Ctrl-C and a cluster's SIGTERM reach every process; the parent still needs batches until it has saved."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
