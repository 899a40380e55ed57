"""The interface of what the engine trains, seeds that are functions of the step, and the smallest task."""

import hashlib
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray_lab.training.recipe import CurveRecipe


def make_step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of one step of one rank; it is hashed, so that neighboring steps and ranks are independent.

    No random state has to be saved: a resumed run computes the seeds again.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch takes 63 bits


class Task(ABC):
    """A model, its data and its objective.

    `make_batch` is a pure function of (step, rank), with the seed inside the task: a resumed run sees the
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
    def make_batch(self, step: int, rank: int) -> Any:
        """Make the batch of one rank at a step. A broken file raises an error that names it; the step is skipped."""

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

    def make_batch(self, step: int, rank: int) -> CurveBatch:
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
