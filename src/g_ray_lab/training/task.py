"""The interface of what the engine trains, and seeds that are functions of the step."""

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from torch import Tensor, nn


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
