"""The smallest task: a perceptron learns a curve. It serves to try out a machine, and to test the engine."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray_lab.training.recipe import CurveRecipe
from g_ray_lab.training.task import Task, make_step_seed


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
