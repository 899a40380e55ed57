"""`g-ray reproduce fov-stress` and `resolution`: curves of finished models over zooms and over input sizes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.tables.evaluation_table import EvaluationTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.comparison import Column

ZOOMS = (1, 2, 3, 4, 5)
FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0)
"""Input sizes in units of the training size."""
FIELDS_OF_VIEW = ("native", "zoomed")
"""Columns of the table over input sizes: the photographs', and with zooms of up to 3 in all views but the first."""


@dataclass(frozen=True)
class SeriesTable(EvaluationTable):
    """Tables whose columns are steps along an axis: a table and a picture for each metric."""

    AXIS: ClassVar[str]

    def format_tables(self, result: dict[str, Any]) -> str:
        from g_ray_lab.scoring.table_writer import format_series

        return format_series(result)

    def draw(self, result: dict[str, Any], prefix: str = "") -> None:
        """Write curves, and those of the differences where rows were compared."""
        from g_ray_lab.figures import draw_curves, write_metrics
        from g_ray_lab.scoring.table_writer import list_metrics

        metrics = list_metrics(result["rows"])
        write_metrics(result, self.out, draw_curves, metrics, prefix, axis=self.AXIS)
        pairs = [{**row, "method": f"{row['method']} − {row['minus']}"} for row in result["differences"]]
        if pairs:
            zeros = {metric: dict.fromkeys(("mean", "low", "high"), 0.0) for metric in metrics}
            none = [{**row, "method": "no difference", "metrics": zeros} for row in pairs]
            curves = {"rows": pairs, "references": none}
            write_metrics(curves, self.out, draw_curves, metrics, f"{prefix}difference_", axis=self.AXIS)


@dataclass(frozen=True)
class FovStress(SeriesTable):
    """Views zoomed by up to 1 … 5 on full-size photographs of ScanNet++."""

    NAME: ClassVar[str] = "fov-stress"
    AXIS: ClassVar[str] = "largest zoom"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        base = PROTOCOLS["scannetpp-zoom"]
        data = self.find_data(base)
        limits = Limits(sets=self.get_limit(), width=self.get_width())
        counts = (4,) if self.scale == "small" else base.view_counts
        zoomed = {zoom: replace(base, zoom_max=float(zoom), view_counts=counts) for zoom in ZOOMS}
        return {
            str(zoom): Column(f"scannetpp-zoom-{zoom}", protocol, data, limits)
            for zoom, protocol in zoomed.items()
        }


@dataclass(frozen=True)
class Resolution(SeriesTable):
    """Inputs of 1 … 2 times the training size on ETH3D: native fields of view, and zoomed by up to 3."""

    NAME: ClassVar[str] = "resolution"
    AXIS: ClassVar[str] = "input size / training size"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

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

    def draw(self, result: dict[str, Any], prefix: str = "") -> None:
        """Write curves over the size for both fields of view."""
        for kind in FIELDS_OF_VIEW:
            chosen = {
                name: [
                    {**row, "setting": row["setting"].removeprefix(f"{kind} ")}
                    for row in result[name]
                    if row["setting"].startswith(f"{kind} ")
                ]
                for name in ("rows", "differences")
            }
            super().draw(chosen, f"{kind}_")
