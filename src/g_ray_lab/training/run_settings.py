"""How a recipe is run: where, on which device, how often to save. Nothing here changes the resulting weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


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
    """Processes per rank that make batches ahead of time; 0 makes them in the training process. If not given: beside a
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
