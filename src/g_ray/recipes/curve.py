"""A recipe that runs in seconds anywhere: is this machine, this cluster, this torchrun line in order?"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from g_ray.training.recipe import OptimizerSettings, Recipe, Schedule

if TYPE_CHECKING:
    from g_ray.training.task import Task


@dataclass(frozen=True, kw_only=True)
class CurveRecipe(Recipe):
    """A perceptron learns a curve."""

    schedule: Schedule = field(default_factory=lambda: Schedule(lr=3e-3, steps=300, warmup=20, start=3e-5))
    optimiser: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(weight_decay=0.01))
    width: int = 64
    """Channels of a hidden layer."""
    layers: int = 2
    """Hidden layers."""
    dropout: float = 0.05
    """Share of channels that are switched off while training."""
    batch: int = 64
    """Samples per process and step."""
    pause_s: float = 0.0
    """Seconds to wait for each batch, to try out interrupting."""

    def build_task(self) -> "Task":
        from g_ray.training.tasks.curve import CurveTask

        return CurveTask(
            width=self.width,
            layers=self.layers,
            dropout=self.dropout,
            batch_size=self.batch,
            seed=self.seed,
            pause_s=self.pause_s,
        )
