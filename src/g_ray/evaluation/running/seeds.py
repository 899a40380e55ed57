"""Networks that were trained alike with several seeds: means over them, and paired differences between rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from g_ray.evaluation.averaging import PIXELS, SCORED
from g_ray.evaluation.running.rows import SetRow


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
    lost = next((row for row in rows if row.status != SCORED), None)
    if lost is not None:
        return lost
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
