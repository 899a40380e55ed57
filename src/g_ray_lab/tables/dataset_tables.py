"""`g-ray reproduce recon-heterogeneous`, `recon-homogeneous` and `real-small`: finished models on datasets."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.tables.evaluation_table import EvaluationTable, draw_largest_sets

if TYPE_CHECKING:
    from g_ray_lab.scoring.comparison import Column, MeanColumn
    from g_ray_lab.scoring.protocol import Protocol

SMALL_VIEWS = (2, 4, 8)
HETEROGENEOUS = ("pandaset", "eth3d-fov", "scannetpp-mixed")
HOMOGENEOUS = (
    "tum-pose",
    "sintel-pose",
    "sintel-depth",
    "kitti-depth",
    "7scenes-sparse",
    "7scenes-sparse-published",
    "7scenes-dense",
    "7scenes-dense-published",
    "nrgbd-sparse",
    "nrgbd-dense",
    "dtu",
    "eth3d-points",
)
SMALL_HOMOGENEOUS = tuple(
    n for n in HOMOGENEOUS if "-sparse" not in n and not n.endswith("-published") and n != "eth3d-points"
)
IN_MILLIMETERS = ("dtu",)
"""Columns whose distances are not in meters."""


@dataclass(frozen=True)
class Heterogeneous(EvaluationTable):
    """The main table and the curves over 2 to 50 views: PandaSet, ETH3D with zooms, ScanNet++ with two devices."""

    NAME: ClassVar[str] = "recon-heterogeneous"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        views = SMALL_VIEWS if self.scale == "small" else ()
        limits = Limits(views=views, sets=self.get_limit(), width=self.get_width())
        return {
            name: Column(name, PROTOCOLS[name], self.find_data(PROTOCOLS[name]), limits)
            for name in HETEROGENEOUS
        }

    def list_means(self) -> "dict[str, MeanColumn]":
        from g_ray_lab.scoring.comparison import MeanColumn

        return {"mean": MeanColumn(HETEROGENEOUS)} if len(HETEROGENEOUS) > 1 else {}

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray_lab.figures import draw_curves, write_metrics
        from g_ray_lab.scoring.table_writer import list_metrics, select_rows

        super().draw(result)
        for name in dict.fromkeys(row["setting"] for row in result["rows"]):
            table = select_rows(result, setting=name)
            metrics = list_metrics(table["rows"])
            write_metrics(table, self.out, draw_curves, metrics, f"{name}_", axis="views")


@dataclass(frozen=True)
class Homogeneous(EvaluationTable):
    """Poses on TUM RGB-D and Sintel, video depth on Sintel and KITTI, points on 7-Scenes, NRGBD, DTU and ETH3D."""

    NAME: ClassVar[str] = "recon-homogeneous"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        small = self.scale == "small"
        return {
            name: Column(
                name,
                _use_short_recordings(PROTOCOLS[name]) if small else PROTOCOLS[name],
                self.find_data(PROTOCOLS[name]),
                Limits(sets=self.limit, width=self.choose_width(PROTOCOLS[name])),
            )
            for name in (SMALL_HOMOGENEOUS if small else HOMOGENEOUS)
        }

    def list_means(self) -> "dict[str, MeanColumn]":
        from g_ray_lab.scoring.comparison import MeanColumn

        return {"mean of poses": MeanColumn(("tum-pose", "sintel-pose"), ("ate",))}

    def draw(self, result: dict[str, Any]) -> None:
        """Write bars; those of columns in millimeters, which would hide the others, into pictures of their own."""
        parts: dict[str, list[dict[str, Any]]] = {}
        for row in result["rows"]:
            parts.setdefault("mm_" if row["setting"] in IN_MILLIMETERS else "", []).append(row)
        for prefix, rows in parts.items():
            draw_largest_sets({"rows": rows}, self.out, prefix)

    def choose_width(self, protocol: "Protocol") -> int | None:
        """Return the width of images; half as many pixels per side for ICP, whose time grows with the points."""
        width = self.get_width()
        return width if width is None or protocol.alignment != "umeyama+icp" else width // 2


def _use_short_recordings(protocol: "Protocol") -> "Protocol":
    """Return a protocol for recordings of eight frames, which have no hundredth one: all, or every second for ICP."""
    from g_ray_lab.scoring.protocol import Strided

    return replace(protocol, sampling=Strided(2 if protocol.alignment == "umeyama+icp" else 1))


@dataclass(frozen=True)
class RealSmall(EvaluationTable):
    """Real photographs: frames of the red kitchen, Sceaux castle, nine rectified pairs."""

    NAME: ClassVar[str] = "real-small"
    data: Path | None = None
    """Folder of the photographs, as `g-ray data prepare real-small` describes it; by default shared/data next to the
    checkout."""
    models: tuple[str, ...] = ("standing", "colmap", "stereo", "stereo+poses", "network", "network+matches")

    def build_columns(self) -> "dict[str, Column]":
        from g_ray.runtime.files import find_shared_data
        from g_ray_lab.datasets.real_small import KITCHEN, PAIRS, SCEAUX
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        if self.scale != "small":
            raise ValueError("real-small has a small scale only: --scale small")
        data, protocol = self.data or find_shared_data(), PROTOCOLS["real-small"]
        groups = {"kitchen": (KITCHEN,), "sceaux": (SCEAUX,), "pairs": PAIRS}
        return {
            name: Column(
                f"real-small-{name}", replace(protocol, scenes=scenes), data, Limits(sets=self.limit)
            )
            for name, scenes in groups.items()
        }
