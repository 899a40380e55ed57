"""The result of a run: means over its rows, what is missing, and both as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from g_ray.evaluation.datasets.registry import DATASETS
from g_ray.evaluation.running.models import EvaluatedModel
from g_ray.evaluation.running.plan import Plan
from g_ray.evaluation.running.rows import SetRow, format_csv, read_row
from g_ray.evaluation.running.run import ROWS
from g_ray.metrics.intervals import bootstrap
from g_ray.runtime.files import strip_paths, write_atomically, write_json
from g_ray.runtime.provenance import collect_provenance

RESULT, TABLE, CSV = "result.json", "table.md", "rows.csv"
MAX_NAMED = 8
"""Scenes or sets that a sentence names."""
PERCENT = ("points_inlier", "depth_inlier", "coverage", "delta_1.25", "delta_1.25_shift", "f_score")
TITLES = {
    "points_rel": "points rel ↓",
    "rays_deg": "rays ° ↓",
    "depth_rel": "depth rel ↓",
    "points_inlier": "points inl. % ↑",
    "pose_ate": "pose ATE ↓",
    "depth_inlier": "depth inl. % ↑",
    "ate": "ATE ↓",
    "rpe_trans": "RPE trans ↓",
    "rpe_rot_deg": "RPE rot ° ↓",
    "abs_rel": "abs rel ↓",
    "delta_1.25": "δ < 1.25 % ↑",
    "abs_rel_shift": "abs rel ↓ (scale & shift)",
    "delta_1.25_shift": "δ < 1.25 % ↑ (scale & shift)",
    "acc": "acc ↓",
    "comp": "comp ↓",
    "nc": "NC ↑",
    "auc_3": "AUC@3° ↑",
    "auc_30": "AUC@30° ↑",
    "f_score": "F-score % ↑",
    "coverage": "coverage %",
}
"""Columns of tables, in order; other metrics are in result.json and rows.csv only."""


@dataclass(frozen=True, eq=False)
class RowSet:
    """The rows of a plan that are there."""

    rows: tuple[SetRow, ...]
    planned: int

    @property
    def scored(self) -> tuple[SetRow, ...]:
        return tuple(row for row in self.rows if row.status == "scored")

    def list_problems(self) -> list[SetRow]:
        """Return the rows without scores."""
        return [row for row in self.rows if row.status != "scored"]


def collect_rows(plan: Plan, out: Path, model: EvaluatedModel) -> RowSet:
    """Read the rows of all sets of a plan that this model has, from whichever process."""
    key = {"model": model.digest()}
    found = (read_row(out / ROWS, planned.name, key)[0] for planned in plan.sets)
    return RowSet(tuple(row for row in found if row is not None), len(plan.sets))
