"""Score reconstruction under several calibrations of the same images against one truth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from g_ray.rays.views import Views
from g_ray.reconstruction.set_metrics import ReconstructionScores, SetGeometry
from g_ray_lab.metrics.intervals import compute_run_interval
from g_ray_lab.scoring.analysis.perturbations import Perturbation
from g_ray_lab.scoring.reconstruction_scorer import predict_static, score_batch
from g_ray_lab.scoring.shard import split_range
from g_ray_lab.scoring.study import ScoredRun, Scores
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.reconstruction_settings import ScenesViews
from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction

Predict = Callable[[ReconstructionBatch], SetGeometry]
PHOTO_ZOOM = 2.0
"""Largest zoom of photographs of one camera: views of a set must differ for their calibrations to be exchanged."""


@dataclass(frozen=True)
class ConditionedSets:
    """Sets of overlapping views from scene folders, and calibrations to be tried on each of them."""

    views: ScenesViews
    patch: int
    conditions: Mapping[str, Perturbation]
    sets: int = 24
    at_once: int = 8

    @staticmethod
    def from_folders(
        folders: tuple[Path, ...],
        side: int,
        patch: int,
        conditions: Mapping[str, Perturbation],
        *,
        views: int,
        sets: int,
        zoom_max: float = 1.0,
    ) -> "ConditionedSets":
        """Take images as they are stored, e.g. of test scenes whose fields of view differ.

        Above a zoom of 1 squares are cut out, each with its own zoom: PHOTO_ZOOM for photographs of one camera.
        """
        settings = ScenesViews(
            side,
            side,
            views=(views, views),
            folders=folders,
            zoom_max=zoom_max,
            off_center=0.0,
            hold_out=0.01,  # one scene at least is never drawn
            color=False,
            stored_shape=zoom_max == 1.0,
        )
        return ConditionedSets(settings, patch, conditions, sets)

    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain values; folders by their names and the files that define their cameras."""
        files = {
            folder.name: sorted(
                [str(path.relative_to(folder)), path.stat().st_size]
                for path in folder.rglob("*")
                if path.suffix in (".json", ".txt")
            )
            for folder in self.views.folders
        }
        numbers = {"side": self.views.width, "views": self.views.views[1], "zoom_max": self.views.zoom_max}
        return {**numbers, "sets": self.sets, "conditions": list(self.conditions), "folders": files}

    def make_batches(self) -> Iterator[ReconstructionBatch]:
        """Yield all sets, always the same."""
        source = ScenesReconstruction(self.views, patch=self.patch)
        yield from map(source.make_sets, split_range(self.sets, self.at_once))

    def score(self, predict: Predict) -> Scores:
        """Score predictions from each calibration: condition → metric → a value per set."""
        parts: dict[str, list[ReconstructionScores]] = {condition: [] for condition in self.conditions}
        for batch in self.make_batches():
            for condition, change in self.conditions.items():
                conditioned = replace(batch, views=Views(change(batch.views.cameras)))
                parts[condition].append(score_batch(batch, predict(conditioned), "ray"))
        joined = {
            condition: ReconstructionScores.concatenate(part).rows() for condition, part in parts.items()
        }
        return {
            condition: {metric: values.tolist() for metric, values in rows.items()}
            for condition, rows in joined.items()
        }

    def score_calibration(self) -> Scores:
        """Score the calibrations themselves: their rays, one distance, cameras that do not move."""
        return self.score(predict_static)


def compute_changes(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return what each condition changes against the first one, paired by seed and set: a row per method and condition.

    Sets differ far more from each other than conditions do, so that intervals of single cells hide most changes.
    """
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        scores_by_run = [run.scores for run in runs if run.method == method]
        first, *others = scores_by_run[0]
        for condition in others:
            metrics = {}
            for metric in scores_by_run[0][condition]:
                values, base = (
                    torch.tensor([scores[name][metric] for scores in scores_by_run])
                    for name in (condition, first)
                )
                metrics[metric] = asdict(compute_run_interval(values - base))
            rows.append({"method": method, "setting": condition, "metrics": metrics})
    return rows
