"""Score networks that were trained for a table on evaluation protocols of datasets, as finished models are scored."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.runtime.out_folder import lock_folder
from g_ray_lab.scoring.comparison import Column
from g_ray_lab.scoring.evaluated_models import EvaluatedModel, PredictorModel, StandingModel
from g_ray_lab.scoring.evaluation_plan import EvaluationPlan, PlannedSet, make_plan
from g_ray_lab.scoring.scored_runs import BatchScores, Scorer
from g_ray_lab.scoring.set_scoring import score_set
from g_ray_lab.scoring.store import WHOLE, Shard, hash_key
from g_ray_lab.scoring.view_index import load_views


@dataclass(frozen=True)
class ProtocolsScorer(Scorer):
    """A setting for each column; a batch is one set of views."""

    columns: Mapping[str, Column]
    indices: Path
    """Folder of view indices, where the datasets have none."""

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @cached_property
    def plans(self) -> dict[str, EvaluationPlan]:
        """The sets of each column; one process at a time freezes an index."""
        with lock_folder(self.indices, timeout_s=math.inf):
            return {
                name: make_plan(column.name, column.protocol, column.data, self.indices, column.limits)
                for name, column in self.columns.items()
            }

    @property
    def key(self) -> dict[str, str]:
        views = {name: [plan.hash_views(one) for one in plan.sets] for name, plan in self.plans.items()}
        return {"protocol": hash_key(views)}

    def describe(self) -> dict[str, Any]:
        columns = {
            name: {"sets": len(plan.sets), "view_index": plan.index.digest, "partial": plan.partial}
            for name, plan in self.plans.items()
        }
        return {"protocol": columns, "protocol_digest": self.key["protocol"]}

    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        assert isinstance(network, ReconstructionModel)
        predictor = NetworkPredictor(network, network.config.long_side)
        return self._score(PredictorModel(predictor, name="network"), shard)

    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        """Score `standing`: what calibration alone gives."""
        return {StandingModel.name: self._score(StandingModel(), shard)}

    def _score(self, model: EvaluatedModel, shard: Shard) -> BatchScores:
        return {
            name: [
                _score_planned(plan, one, model)
                for position, one in enumerate(plan.sets)
                if shard.takes(position)
            ]
            for name, plan in self.plans.items()
        }


def _score_planned(
    plan: EvaluationPlan, planned: PlannedSet, model: EvaluatedModel
) -> Mapping[str, list[float]]:
    scene = plan.open_scene(planned.scene)
    views = load_views(plan.protocol, scene, planned.views)
    scores = score_set(plan.protocol, scene, views, model.predict(views))
    names: Sequence[str] = plan.protocol.metrics
    return {metric: [scores.get(metric, math.nan)] for metric in names}
