"""Rows of a run: one per set of views, written as soon as the set is scored, and joined to a CSV at the end.

Rows of several networks are averaged, and those of two are subtracted, set by set.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from g_ray.runtime.files import write_json
from g_ray_lab.scoring.averaging import PIXELS, SCORED
from g_ray_lab.scoring.running.prediction_cache import Key, name_difference

Status = Literal["scored", "failed", "unreadable"]
"""failed: the model gave no usable prediction. unreadable: the dataset has no usable truth or images for it."""


@dataclass(frozen=True)
class SetRow:
    """The scores of one set, or why it has none."""

    protocol: str
    dataset: str
    scene: str
    set: str
    """Unique in its protocol: scene, number of views and number of the set."""
    views: int
    """As many as the protocol asks for; 0 if as many as there are."""
    status: Status
    message: str = ""
    placed: int = 0
    """Views that the model placed."""
    given: int = 0
    """Views that it was given."""
    repeated: int = 0
    """Views that are repetitions, because the scene is too small."""
    empty: int = 0
    """Views without a pixel of known depth: they are not in the means of points and depth."""
    cpu_seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)

    def to_flat(self) -> dict[str, Any]:
        """Return the row with a column for each metric."""
        flat = asdict(self)
        return {**{name: value for name, value in flat.items() if name != "metrics"}, **self.metrics}


COLUMNS = tuple(one.name for one in fields(SetRow) if one.name != "metrics")


def write_row(folder: Path, row: SetRow, key: Key) -> None:
    """Write a row with the key of what it depends on."""
    write_json(folder / f"{row.set}.json", {"key": dict(key), "row": asdict(row)})


def read_row(folder: Path, name: str, key: Key) -> tuple[SetRow | None, str | None]:
    """Return the row of a set, or None, and why one that is there cannot be used."""
    path = folder / f"{name}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        reason = name_difference(document["key"], key)
        return (SetRow(**document["row"]), None) if reason is None else (None, reason)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, "it is damaged"


def format_csv(rows: Sequence[SetRow], labels: Sequence[Mapping[str, str | int]] = ()) -> str:
    """Format rows as CSV: a line per set, behind its labels if it has some; an empty cell where it has no value."""
    metrics = list(dict.fromkeys(metric for row in rows for metric in row.metrics))
    labels = labels or [{}] * len(rows)
    text = io.StringIO()
    columns = [*(labels[0] if labels else ()), *COLUMNS, *metrics]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for label, row in zip(labels, rows, strict=True):
        values = {name: f"{value:.7g}" for name, value in row.metrics.items()}
        writer.writerow({**label, **row.to_flat(), **values, "cpu_seconds": f"{row.cpu_seconds:.2f}"})
    return text.getvalue()


# Rows of networks that were trained alike with several seeds, and of two networks


def average_seeds(networks: Sequence[Sequence[SetRow]]) -> list[SetRow]:
    """Average the rows of each set over networks.

    A set that one network has no score for is left without one, with the message of that network: means over different
    networks could not be compared.
    """
    if len(networks) == 1:
        return list(networks[0])
    by_set = [{row.set: row for row in rows} for rows in networks]
    shared = [name for name in by_set[0] if all(name in rows for rows in by_set)]
    return [_average_set([rows[name] for rows in by_set]) for name in shared]


def _average_set(rows: Sequence[SetRow]) -> SetRow:
    unscored = next((row for row in rows if row.status != SCORED), None)
    if unscored is not None:
        return unscored
    metrics = {
        name: sum(row.metrics[name] for row in rows) / len(rows)
        for name in rows[0].metrics
        if all(name in row.metrics for row in rows)
    }
    seconds = sum(row.cpu_seconds for row in rows) / len(rows)
    return replace(rows[0], metrics=metrics, cpu_seconds=seconds, placed=min(row.placed for row in rows))


def subtract_rows(rows: Sequence[SetRow], others: Sequence[SetRow]) -> list[SetRow]:
    """Return the differences of all metrics for the sets that both have scores for.

    Both saw the same views, so that the difficulty of a set cancels out. Pixel counts, which weight means, are kept.
    """
    scored = {row.set: row for row in others if row.status == SCORED}
    return [
        replace(row, metrics=_subtract(row.metrics, scored[row.set].metrics))
        for row in rows
        if row.status == SCORED and row.set in scored
    ]


def _subtract(metrics: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {
        name: value if name == PIXELS else value - others[name]
        for name, value in metrics.items()
        if name in others
    }
