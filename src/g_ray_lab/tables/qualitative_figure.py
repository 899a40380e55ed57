"""`g-ray reproduce recon-qualitative`: point clouds of models next to the truth (paper, fig:recon_qualitative)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.tables.dataset_tables import HETEROGENEOUS
from g_ray_lab.tables.evaluation_table import EvaluationTable
from g_ray_lab.tables.paper_table import Measured

if TYPE_CHECKING:
    from g_ray_lab.scoring.comparison import Column, Contender
    from g_ray_lab.scoring.point_pictures import PointCloudRow

FIGURE = "qualitative.png"
VIEWS = {"small": 8, "paper": 16}


@dataclass(frozen=True)
class Qualitative(EvaluationTable):
    """Inputs, truth and point clouds of models on one set of each dataset: a row per dataset, a column per model.

    Clouds are aligned as for the six metrics. Within a row all have the truth's bounds and one viewpoint.
    """

    NAME: ClassVar[str] = "recon-qualitative"
    models: tuple[str, ...] = ("stereo", "network")
    views: int | None = None
    """Views of a set, one of the protocols' numbers; 8 by default, at paper scale 16."""

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        limits = Limits(views=(self.views or VIEWS[self.scale],), sets=1, width=self.get_width())
        return {
            name: Column(name, PROTOCOLS[name], self.find_data(PROTOCOLS[name]), limits)
            for name in reversed(HETEROGENEOUS)  # the paper's order
        }

    def measure(self) -> Measured:
        from g_ray.runtime.progress import ProgressLine
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.result_pictures import draw_point_clouds

        if self.shard is not None or self.cluster != "none":
            raise ValueError("recon-qualitative has one set per dataset: leave out --shard and --cluster")
        contenders, progress, gaps = self.build_rows(), ProgressLine(), []
        rows = [
            self._make_row(column, contenders, progress, gaps) for column in self.build_columns().values()
        ]
        write_png(draw_point_clouds(rows, LIGHT), self.out / FIGURE)
        result = {"name": self.NAME, "rows": [row.describe() for row in rows], "gaps": gaps}
        lines = [f"- {row.title}: {row.scene}, {len(row.inputs)} views" for row in rows]
        return Measured(result, "\n".join([*lines, *(f"- {gap}" for gap in gaps)]))

    def draw(self, result: dict[str, Any]) -> None:
        """The figure is written with the measurement, which has the clouds."""

    def _make_row(
        self, column: "Column", contenders: "dict[str, Contender]", progress: Any, gaps: list[str]
    ) -> "PointCloudRow":
        from g_ray_lab.scoring.comparison import make_evaluation
        from g_ray_lab.scoring.point_pictures import PointCloudRow
        from g_ray_lab.scoring.view_index import load_views

        runs = {
            name: make_evaluation(name, contender, 0, column.name, column, self.out)
            for name, contender in contenders.items()
        }
        plan = next(iter(runs.values())).make_plan(print)
        planned = plan.sets[0]
        scene = plan.open_scene(planned.scene)
        views = load_views(plan.protocol, scene, planned.views)
        predictions = {}
        for name, evaluation in runs.items():
            progress(f"{name} on {column.name}")
            try:
                predictions[name] = evaluation.make_model().predict(views)
            except (ValueError, OSError) as error:
                predictions[name] = None
                gaps.append(f"{name} on {column.name}: {' '.join(str(error).split())}")
        return PointCloudRow.from_set(plan.protocol.title, planned.scene, views, predictions)
