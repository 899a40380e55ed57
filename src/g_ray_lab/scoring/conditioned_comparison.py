"""Networks under several calibrations on protocols of datasets (paper, tab:intrinsic_noise and tab:estimated_k)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g_ray.predictors import ModelSettings
from g_ray.reconstruction.set_metrics import METRICS
from g_ray_lab.scoring.calibration_noise import list_condition_changes
from g_ray_lab.scoring.comparison import Cell, Column, Contender, average_cells, run_comparison
from g_ray_lab.scoring.evaluated_models import TrainedNetwork
from g_ray_lab.scoring.recalibrated_model import ACCURACY
from g_ray_lab.scoring.scored_runs import ScoredRun, compute_differences, make_rows

MEAN = "mean"


@dataclass(frozen=True, eq=False)
class ConditionedComparison:
    """Finished cells by network, source of the calibration, and protocol."""

    cells: Mapping[tuple[str, str, str], Cell]
    """By method, source and protocol."""
    pairs: tuple[tuple[str, str], ...]
    """Methods that are compared."""
    gaps: list[str]
    is_unfinished: bool = False
    """Whether shares of other processes are missing."""

    def make_tests(self) -> dict[str, dict[str, Any]]:
        """Return tables by protocol: rows, differences between methods, and changes from the first source."""
        return {column: self._make_test(column) for column in self._list(2)}

    def _make_test(self, column: str) -> dict[str, Any]:
        runs = []
        for method in self._list(0):
            own = {s: cell for (m, s, c), cell in self.cells.items() if (m, c) == (method, column)}
            seeds = range(min(len(cell.rows) for cell in own.values()) if own else 0)
            runs += [
                ScoredRun(method, seed, {source: cell.rows[seed] for source, cell in own.items()})
                for seed in seeds
            ]
        return {
            "rows": make_rows(runs),
            "references": [],
            "differences": compute_differences(runs, self.pairs),
            "changes": list_condition_changes(runs),
        }

    def average(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the table of means over protocols, with equal weight."""
        first = self._list(1)[0]
        rows, changes = [], []
        for method in self._list(0):
            for source in self._list(1):
                own = [self.cells[method, source, c] for c in columns if (method, source, c) in self.cells]
                if len(own) < len(columns):
                    continue
                labels = {"method": method, "setting": source}
                rows += [{**row, **labels} for row in average_cells(own, MEAN, METRICS)]
                if source != first and all((method, first, c) in self.cells for c in columns):
                    less = [cell.subtract(self.cells[method, first, cell.column]) for cell in own]
                    changes += [{**row, **labels} for row in average_cells(less, MEAN, METRICS)]
        return {"rows": rows, "references": [], "differences": [], "changes": changes}

    def list_accuracy(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the errors of the given cameras by protocol and source, and their means over protocols."""
        method, rows = self._list(0)[0], []
        for source in self._list(1):
            own = [self.cells[method, source, c] for c in columns if (method, source, c) in self.cells]
            parts = {cell.column: cell.average() for cell in own}
            if len(own) == len(columns):
                parts[MEAN] = average_cells(own, MEAN)
            for name, averaged in parts.items():
                metrics = averaged[0]["metrics"] if averaged else {}
                if {*ACCURACY} <= {*metrics}:
                    scores = {own: metrics[metric]["mean"] for metric, own in ACCURACY.items()}
                    rows.append({"scene": name, "source": source, "scores": scores, "reason": None})
        return rows

    def _list(self, place: int) -> list[str]:
        return list(dict.fromkeys(key[place] for key in self.cells))


def list_conditions(
    networks: Sequence[TrainedNetwork], sources: Sequence[str]
) -> dict[tuple[str, str], Contender]:
    """Return a row for every method and source of calibrations; networks of one method are its seeds."""
    rows = {}
    for method in dict.fromkeys(network.method for network in networks):
        files = [str(network.weights) for network in networks if network.method == method]
        settings = tuple(ModelSettings(weights=file) for file in files)
        rows |= {(method, one): Contender("network", settings, calibration=one) for one in sources}
    return rows


def compare_conditions(
    networks: Sequence[TrainedNetwork],
    sources: Sequence[str],
    columns: Mapping[str, Column],
    out: Path,
    **options: Any,
) -> ConditionedComparison:
    """Run every network with every calibration on every protocol."""
    conditions = list_conditions(networks, sources)
    places = {", ".join(place): place for place in conditions}
    found = run_comparison(
        {name: conditions[place] for name, place in places.items()}, columns, out, **options
    )
    cells = {(*places[cell.row], cell.column): cell for cell in found.cells}
    first, *others = dict.fromkeys(method for method, _ in conditions)
    pairs = tuple((first, other) for other in others)
    return ConditionedComparison(cells, pairs, list(found.gaps), found.is_unfinished)
