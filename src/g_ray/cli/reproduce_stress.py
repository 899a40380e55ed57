"""Curves of finished models over the zoom of their views and over the size of their inputs."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from g_ray.cli.reproduce_evaluation import EvaluationTable, list_metrics

if TYPE_CHECKING:
    from g_ray.evaluation.running.comparison import Column

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
        from g_ray.evaluation.protocols.registry import PROTOCOLS
        from g_ray.evaluation.running.comparison import Column
        from g_ray.evaluation.running.plan import Limits

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
        from g_ray.viewer.table_figures import draw_curves
        from g_ray.viewer.theme import LIGHT, write_png

        for metric in list_metrics(result):
            write_png(draw_curves(result, metric, LIGHT, "largest zoom"), self.out / f"{metric}.png")


@dataclass(frozen=True)
class Resolution(EvaluationTable):
    """Inputs of 1 … 2 times the training size on ETH3D: native fields of view, and zoomed by up to 3."""

    @property
    def name(self) -> str:
        return "resolution"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray.evaluation.protocols.registry import PROTOCOLS
        from g_ray.evaluation.running.comparison import Column
        from g_ray.evaluation.running.plan import Limits

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
        from g_ray.viewer.table_figures import draw_curves
        from g_ray.viewer.theme import LIGHT, write_png

        for kind in FIELDS_OF_VIEW:
            rows = [
                {**row, "setting": row["setting"].removeprefix(f"{kind} ")}
                for row in result["rows"]
                if row["setting"].startswith(f"{kind} ")
            ]
            for metric in list_metrics({"rows": rows}):
                figure = draw_curves({"rows": rows}, metric, LIGHT, "input size / training size")
                write_png(figure, self.out / f"{kind}_{metric}.png")


def format_metric_tables(result: dict[str, Any]) -> str:
    """Format a table for each metric, whose columns are steps along an axis."""
    from g_ray.evaluation.running.comparison_tables import format_series
    from g_ray.evaluation.running.report import TITLES, format_metric

    return format_series(result, list_metrics(result), TITLES, format_metric)
