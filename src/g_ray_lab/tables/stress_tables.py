"""Curves of finished models over the zoom of their views and over the size of their inputs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.evaluation_tables import EvaluationTable, list_metrics

if TYPE_CHECKING:
    from g_ray_lab.scoring.running.comparison import Column

ZOOMS = (1, 2, 3, 4, 5)
FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0)
"""Input sizes in units of the training size."""
FIELDS_OF_VIEW = ("native", "zoomed")
"""Of the table over input sizes: the photographs', and with zooms of up to 3 in all views but the first."""


@dataclass(frozen=True)
class FovStress(EvaluationTable):
    """Views zoomed by up to 1 … 5 on full-size photographs of ScanNet++."""

    @property
    def name(self) -> str:
        return "fov-stress"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.protocols.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.running.comparison import Column
        from g_ray_lab.scoring.running.plan import Limits

        base = PROTOCOLS["scannetpp-zoom"]
        data = self.find_data(base)
        limits = Limits(sets=self.get_limit(), width=self.get_width())
        counts = (4,) if self.scale == "small" else base.view_counts
        return {
            str(zoom): Column(
                f"scannetpp-zoom-{zoom}",
                replace(base, zoom_max=float(zoom), view_counts=counts),
                data,
                limits,
            )
            for zoom in ZOOMS
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        return format_metric_tables(result)

    def draw(self, result: dict[str, Any]) -> None:
        """Write curves over the zoom."""
        draw_series(result, "largest zoom", self.out)


@dataclass(frozen=True)
class Resolution(EvaluationTable):
    """Inputs of 1 … 2 times the training size on ETH3D: native fields of view, and zoomed by up to 3."""

    @property
    def name(self) -> str:
        return "resolution"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.protocols.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.running.comparison import Column
        from g_ray_lab.scoring.running.plan import Limits

        zoomed = replace(PROTOCOLS["eth3d-fov"], view_counts=(4,))
        protocols = {"eth3d-native": PROTOCOLS["eth3d-native"], "eth3d-fov-4": zoomed}
        data, width = self.find_data(zoomed), self.get_width() or zoomed.size.width
        return {
            f"{kind} {factor:g}": Column(
                name,
                protocols[name],
                data,
                Limits(sets=self.get_limit(), width=round(factor * width)),
                network_scale=factor,
            )
            for kind, name in zip(FIELDS_OF_VIEW, protocols, strict=True)
            for factor in FACTORS
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        return format_metric_tables(result)

    def draw(self, result: dict[str, Any]) -> None:
        """Write curves over the size for both fields of view."""
        for kind in FIELDS_OF_VIEW:
            chosen = {name: _select_rows(result[name], f"{kind} ") for name in ("rows", "differences")}
            draw_series(chosen, "input size / training size", self.out, f"{kind}_")


def _select_rows(rows: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Return the rows of the settings with a prefix, without it."""
    return [
        {**row, "setting": row["setting"].removeprefix(prefix)}
        for row in rows
        if row["setting"].startswith(prefix)
    ]


def draw_series(result: dict[str, Any], axis: str, out: Path, prefix: str = "") -> None:
    """Write a picture for each metric, and one for the differences where rows were compared."""
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_curves

    pairs = [{**row, "method": f"{row['method']} − {row['minus']}"} for row in result["differences"]]
    for metric in list_metrics(result):
        write_png(draw_curves(result, metric, LIGHT, axis), out / f"{prefix}{metric}.png")
        if pairs:
            figure = draw_curves(
                {"rows": pairs, "references": _make_zeros(pairs, metric)}, metric, LIGHT, axis
            )
            write_png(figure, out / f"{prefix}difference_{metric}.png")


def _make_zeros(rows: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return a row without a difference for each setting."""
    none = {metric: dict.fromkeys(("mean", "low", "high"), 0.0)}
    settings = dict.fromkeys(row["setting"] for row in rows)
    return [{"method": "no difference", "setting": setting, "metrics": none} for setting in settings]


def format_metric_tables(result: dict[str, Any]) -> str:
    """Format a table for each metric, whose columns are steps along an axis."""
    from g_ray_lab.scoring.running.comparison_tables import format_series
    from g_ray_lab.scoring.running.run_report import TITLES, format_metric

    return format_series(result, list_metrics(result), TITLES, format_metric)
