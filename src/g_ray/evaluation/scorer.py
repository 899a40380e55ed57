"""What a table is scored on, whatever its networks do."""

from abc import ABC, abstractmethod
from typing import Any

from torch import nn

from g_ray.evaluation.study import ScoredRun


class Scorer(ABC):
    """The same test scenes for every method and seed; `settings` are the columns of the table."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    @abstractmethod
    def key(self) -> dict[str, str]:
        """Changes with anything that changes a score: scores with the same key are used again."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """For result.json, as plain values."""

    @abstractmethod
    def score_network(self, network: nn.Module, setting: str) -> dict[str, list[float]]:
        """metric → a value per scene."""

    def score_references(self) -> list[ScoredRun]:
        """Rows that need no training, for scale."""
        return []
