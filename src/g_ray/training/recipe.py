"""A recipe: everything that decides the weights of a training run, as frozen dataclasses without torch.

What a run may change from one start to the next without changing its weights is in `g_ray.training.run`.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from g_ray.training.task import Task

PrecisionName = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW. Matrices decay; biases, norms and other vectors do not."""

    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.05
    """Decoupled weight decay, multiplied by the learning rate at each step."""
    clip: float | None = 1.0
    """Largest norm of the whole gradient; None leaves it as it is."""


@dataclass(frozen=True)
class Schedule:
    """Learning rate: a line from `start` to `lr`, then half a cosine down to `final`, reached after the last step."""

    lr: float
    """Peak learning rate."""
    steps: int
    """Gradient updates in all."""
    warmup: int = 0
    """Updates of the linear rise; they are part of `steps`."""
    start: float = 0.0
    """Learning rate of the first update when there is a warm-up."""
    final: float = 0.0
    """Learning rate that the cosine ends at."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"schedule.steps must be at least 1, got {self.steps}")
        if not 0 <= self.warmup < self.steps:
            raise ValueError(
                f"schedule.warmup is {self.warmup} and schedule.steps {self.steps}: the warm-up must be shorter"
            )


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """What decides the weights. Subclasses add what their task needs and build it."""

    schedule: Schedule
    optimiser: OptimizerSettings = field(default_factory=OptimizerSettings)
    precision: PrecisionName = "fp32"
    """Arithmetic of the forward and backward pass; weights, moments and geometry stay in fp32."""
    seed: int = 0
    """Seed of initial weights and data."""
    init: Path | None = None
    """Start from these weights, a .safetensors file or the name of shipped ones, instead of random ones."""

    @abstractmethod
    def build_task(self) -> "Task":
        """The model, the data and the objective; torch is imported here, not before."""

    def to_settings(self) -> dict[str, Any]:
        """Every setting as plain JSON values."""
        return to_plain(asdict(self))


def to_plain(value: Any) -> Any:
    """What a value is after a round trip through JSON."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
