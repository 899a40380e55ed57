"""The interface between a task and its table: networks are scored on the same test scenes under several settings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from g_ray_lab.scoring.scored_runs import ScoredRun, Scores
from g_ray_lab.scoring.store import WHOLE, Shard

BatchScores = Mapping[str, Sequence[Mapping[str, list[float]]]]
"""setting → batch → metric → one value per scene of the batch."""


class Scorer(ABC):
    """Score networks of one task on the same test scenes; `settings` are the columns of the table."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    @abstractmethod
    def key(self) -> dict[str, str]:
        """Values that change with anything that changes a score; stored scores with the same key are reused."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain values for result.json."""

    @abstractmethod
    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        """Return the scores of the batches of a share."""

    @abstractmethod
    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        """Return the same for predictions without a network, by their names."""

    def score_settings(self, network: nn.Module) -> Scores:
        """Return the scores under all settings."""
        return join_shares([self.score_share(network)])

    def score_references(self) -> list[ScoredRun]:
        """Return rows without training, for scale."""
        shares = self.score_reference_shares()
        return [ScoredRun.from_scores(name, 0, join_shares([share])) for name, share in shares.items()]


def join_shares(shares: Sequence[BatchScores]) -> dict[str, dict[str, list[float]]]:
    """Join shares 1 to n of n: batch p of a setting is in share p mod n."""
    joined = {}
    for setting in shares[0]:
        batches = [share[setting] for share in shares]
        count = sum(map(len, batches))
        if [len(part) for part in batches] != [len(range(k, count, len(shares))) for k in range(len(shares))]:
            raise ValueError(
                f"shares of {setting} do not belong together: remove their files and score again"
            )
        in_order = [batches[p % len(shares)][p // len(shares)] for p in range(count)]
        joined[setting] = {
            metric: [value for batch in in_order for value in batch[metric]] for metric in in_order[0]
        }
    return joined
