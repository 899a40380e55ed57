"""Seeds that follow from where a run is: nothing random has to be saved."""

import hashlib
from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


def make_step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for one step of one rank; neighbours share nothing."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # torch takes 63 bits


# What the engine asks of anything it trains.


class Task(ABC):
    """A model, its data and its objective.

    `make_batch` is a pure function of (step, rank, world), with the seed inside the task: a run that is continued sees
    the same data as one that was never stopped, and nothing about data has to be saved.
    """

    batch_size: int = 1
    """Samples per step and rank, for the throughput that is shown."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A new model on the CPU; the engine has seeded torch before."""

    @abstractmethod
    def make_batch(self, step: int, rank: int, world: int) -> Any:
        """What `rank` of `world` sees at `step`. A broken file is an exception that names it; the step is skipped."""

    @abstractmethod
    def compute_loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar to minimise, and scalars to log. Call `model(…)`, which may be wrapped."""

    def describe_batch(self, batch: Any) -> str:
        """Files or scenes of a batch, for the message when its loss is not a number."""
        return ""

    def render_samples(self, model: nn.Module) -> Tensor | None:
        """Pictures [n 3 h w] in [0, 1]; None for none. Every rank calls it, without gradients."""
        return None

    def validate(self, model: nn.Module) -> float | None:
        """A score on held-out data, lower is better; None for none. Every rank calls it, without gradients."""
        return None
