"""A recipe: everything that determines the weights of a training run, as frozen dataclasses without torch.

What a run may change from one start to the next without changing its weights is in `g_ray_lab.training.recipe`.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

    from g_ray_lab.training.task import Task

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
    """Settings that determine the weights. Subclasses add those of their task, and build it."""

    schedule: Schedule
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    precision: PrecisionName = "fp32"
    """Arithmetic of the forward and backward pass; weights, moments and geometry stay in fp32."""
    tf32: bool = False
    """On a GPU, round the factors of fp32 matrix products to 10 bits of mantissa: the heads, which are always fp32, get
    faster. Batches are made on the CPU and stay exact."""
    compile: bool = False
    """Compile the transformer's blocks with torch.compile: minutes at the start, then faster on a GPU. Numbers
    differ in their last bits."""
    seed: int = 0
    """Seed of initial weights and data."""
    init: Path | None = None
    """Start from these weights, a .safetensors file or the name of shipped ones, instead of random ones."""

    @abstractmethod
    def build_task(self) -> "Task":
        """Build the model, the data and the objective; torch is imported here, not before."""

    def build_model(self) -> "nn.Module":
        """Build the network alone; subclasses may do so without their data."""
        return self.build_task().build_model()

    def to_settings(self) -> dict[str, Any]:
        """Return every setting as plain JSON values."""
        return to_plain(asdict(self))


@dataclass(frozen=True, kw_only=True)
class CurveRecipe(Recipe):
    """A perceptron learns a curve in seconds: to try out a machine, a cluster or a torchrun command."""

    schedule: Schedule = field(default_factory=lambda: Schedule(lr=3e-3, steps=300, warmup=20, start=3e-5))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(weight_decay=0.01))
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

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.batch) < 1:
            raise ValueError(
                f"width {self.width}, {self.layers} layers, batch {self.batch}: give positive numbers"
            )

    def build_task(self) -> "Task":
        from g_ray_lab.training.task import CurveTask

        return CurveTask(self)


def to_plain(value: Any) -> Any:
    """Return what a value is after a round trip through JSON."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# How a recipe is run: where, on which device, how often to save. Nothing here changes the resulting weights.


@dataclass(frozen=True)
class Run:
    """How to run a recipe; may differ each time that a run is resumed."""

    out: Path | None = None
    """Folder of the run, out/train/RECIPE if not given. A run that is already there is resumed."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With torchrun: a whole model per process (DDP), or its shards (FSDP2)."""
    workers: int | None = None
    """Processes per rank that make batches ahead of time; 0 makes them in the training process. If not given: with a
    GPU its rank's share of the cores, at most 8; without a GPU, where training itself takes the cores, 0."""
    cache: Path | None = None
    """Folder for features of a frozen encoder, each computed once; runs can share it. None computes them every time."""
    cache_gb: float = 20.0
    """Most that the folder may hold; what finds no room is computed every time."""
    save_every: int = 1000
    """Steps between checkpoints; one is also written at the end and on Ctrl-C."""
    keep: int = 2
    """Newest checkpoints to keep; the best validated one stays as well."""
    milestone_every: int | None = None
    """Keep every checkpoint at a multiple of this many steps permanently."""
    milestones: tuple[int, ...] = ()
    """Further steps whose checkpoints are written and kept permanently."""
    log_every: int = 50
    """Steps between entries of metrics.jsonl and TensorBoard; each is the mean since the last."""
    sample_every: int | None = 1000
    """Steps between pictures of what the model does; None for none."""
    tensorboard: bool = True
    """Write event files, if TensorBoard is installed."""
    max_skipped: int = 1000
    """Stop when this many steps in all had to be skipped (NaN loss, broken sample)."""
    max_skipped_in_a_row: int = 10
    """Stop when this many consecutive steps had to be skipped."""
    allow_changes: bool = False
    """Resume a run although its recipe or number of processes differs from what it was started with."""

    def __post_init__(self) -> None:
        for name in ("save_every", "keep", "log_every", "max_skipped", "max_skipped_in_a_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        for name in ("milestone_every", "sample_every"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1 or None, got {value}")
        if any(step < 1 for step in self.milestones):
            raise ValueError(f"--milestones must be at least 1, got {min(self.milestones)}")
        if not self.cache_gb > 0:
            raise ValueError(f"--cache-gb must be positive, got {self.cache_gb}")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"--workers must not be negative, got {self.workers}")
