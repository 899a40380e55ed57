"""`g-ray reproduce recon-ablation` and `recon-converged`: methods of a reconstruction network, trained alike."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.attention_table import Attention
from g_ray_lab.tables.calibration_tables import CalibrationEstimated, CalibrationNoise
from g_ray_lab.tables.paper_table import Table
from g_ray_lab.tables.scene_tables import build_folders_scorer
from g_ray_lab.tables.stress_tables import FovStress, Resolution
from g_ray_lab.tables.trained_table import TrainedTable

if TYPE_CHECKING:
    from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
    from g_ray_lab.scoring.protocols_scorer import ProtocolsScorer
    from g_ray_lab.scoring.study import Study

RECONSTRUCTION_PAIRS = (
    ("gray", "rope"),
    ("gray", "camray"),
    ("gray", "gray_qk"),
    ("gray", "rope_vo"),
    ("gray_qk", "rope"),
    ("gray_camray", "camray"),
)
CONVERGED = ("gray", "rope", "camray", "camray_faint")
CONVERGED_PAIRS = (*(("gray", method) for method in CONVERGED[1:]), ("camray_faint", "camray"))
TEST_SETS = 128
PAPER_COLUMNS = ("scannetpp-undistorted", "eth3d-fov")
PAPER_VIEWS = 16
"""The paper does not say how many; its calibration tables have 16."""


@dataclass(frozen=True)
class ReconAblation(TrainedTable):
    """Eight methods of a reconstruction network: trained on pinholes, tested on other lenses too."""

    data: tuple[Path, ...] = ()
    """Scene folders with depth, or folders of them, to train on instead of procedural rooms (paper scale only)."""
    weights: tuple[float, ...] = ()
    """How often each folder is drawn from; without any, all scenes are equally frequent."""
    encoder: Path | None = None
    """Weights of DINOv2 ViT-S/14, or an id such as facebook/dinov2-with-registers-small, that training starts from
    (paper scale only)."""
    registers: bool = True
    """Whether the encoder has registers; with --no-registers it is of DINOv2's first release (paper scale only)."""
    tests: Path | None = None
    """Folder with NAME-test-pinhole, -zoom, -mixed, -fisheye to score on, as `g-ray data levels` makes them; without,
    procedural rooms."""
    datasets: Path | None = None
    """Folder of prepared datasets, for the paper's columns: ScanNet++ with both devices undistorted, and ETH3D with
    zooms, 16 views a set (paper scale only)."""
    limit: int | None = None
    """Sets of each scene of --datasets; all by default."""
    early: tuple[int, ...] = ()
    """Steps of training after which networks are scored too, e.g. 100 250 500; early.md has these tables."""

    def build_study(self) -> "Study":
        from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
        from g_ray_lab.recipes import reconstruction_recipes as reconstruction
        from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer
        from g_ray_lab.scoring.study import Study

        make = {"small": reconstruction.tiny, "paper": reconstruction.ablation}[self.scale]
        if self.scale == "small" and (
            self.data or self.weights or self.encoder or self.datasets or not self.registers
        ):
            raise ValueError(
                "--data, --weights, --encoder, --datasets and --no-registers belong to --scale paper; --scale small "
                "makes rooms"
            )
        methods = [method for method in RECONSTRUCTION_METHODS if method != "camray_faint"]  # recon-converged
        recipes = {method: self._start_from(make(method)) for method in methods}
        if self.datasets is not None:
            scorer = self._build_datasets_scorer(self.datasets)
        elif self.tests is None:
            scorer = RoomsScorer.from_training(build_rooms(make("gray")), TEST_SETS)
        else:
            scorer = build_folders_scorer(recipes["gray"], self.tests, None)
        return Study("recon-ablation", self.scale, recipes, scorer, RECONSTRUCTION_PAIRS, early=self.early)

    def _build_datasets_scorer(self, root: Path) -> "ProtocolsScorer":
        from g_ray_lab.datasets.dataset_registry import DATASETS
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.protocols_scorer import ProtocolsScorer

        limits = Limits(views=(PAPER_VIEWS,), sets=self.limit)
        columns = {
            name: Column(name, PROTOCOLS[name], root / DATASETS[PROTOCOLS[name].dataset].download, limits)
            for name in PAPER_COLUMNS
        }
        return ProtocolsScorer(columns, self.out / "indices")

    def _start_from(self, recipe: "ReconstructionRecipe") -> "ReconstructionRecipe":
        """Return the recipe on the folders and with the encoder that were given."""
        from g_ray_lab.sources.reconstruction_settings import ScenesViews

        if self.encoder is not None:
            recipe = replace(recipe, model=replace(recipe.model, encoder=self.encoder))
        if not self.registers:
            recipe = replace(recipe, model=replace(recipe.model, registers=False))
        if not self.data:
            return recipe
        folders = ScenesViews(**recipe.data.get_shape(), folders=self.data, weights=self.weights)
        return replace(recipe, data=folders)

    def draw(self, result: dict[str, Any]) -> None:
        if self.tests is not None or self.datasets is not None:
            return super().draw(result)
        from g_ray_lab.result_pictures import draw_reconstructions

        return draw_reconstructions(self.study, result, self.out)


@dataclass(frozen=True)
class ReconConverged(TrainedTable):
    """Four methods trained twice as long as recon-ablation, and all analyses of these networks in folders of OUT. Small
    scale only."""

    early: tuple[int, ...] = ()
    """Steps of training after which networks are scored too, e.g. 500 1000 2000 3000 4000."""
    photos: tuple[Path, ...] = ()
    """Scene folders of photographs with true cameras and depth, for the analysis of estimated calibrations; without
    any it is left out."""

    def build_study(self) -> "Study":
        from g_ray_lab.recipes.reconstruction_recipes import converged
        from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer
        from g_ray_lab.scoring.study import Study

        if self.scale != "small":
            raise ValueError("recon-converged has --scale small only; at paper scale use recon-ablation")
        recipes = {method: converged(method) for method in CONVERGED}
        scorer = RoomsScorer.from_training(build_rooms(recipes["gray"]), TEST_SETS)
        return Study("recon-converged", self.scale, recipes, scorer, CONVERGED_PAIRS, early=self.early)

    def make(self) -> None:
        """Train and score; the process that has written the table goes on with the analyses."""
        from g_ray_lab.scoring.store import Shard
        from g_ray_lab.scoring.table_writer import RESULT

        super().make()
        is_alone = self.cluster == "none" and Shard.parse(self.shard).count == 1
        if is_alone and self.score and (self.out / RESULT).is_file():
            for analysis in self.list_analyses():
                analysis.run()

    def list_analyses(self) -> Iterator[Table]:
        """Yield the analyses of the finished networks."""
        own = {"networks": self.out, "methods": tuple(self.study.methods), "seeds": self.seeds}
        yield Attention(self.out / "attention", rooms=True, **own)
        yield CalibrationNoise(self.out / "calibration-noise", rooms=True, **own)
        if self.photos:
            yield CalibrationEstimated(self.out / "calibration-estimated", data=self.photos, **own)
        rows = {"models": ("standing",), "weights": tuple(self._list_weights())}
        yield FovStress(self.out / "fov-stress", **rows)
        yield Resolution(self.out / "resolution", **rows)

    def _list_weights(self) -> Iterator[str]:
        """Yield ROW=FILE of every network."""
        for method in self.study.methods:
            for seed in range(self.seeds):
                yield f"{method}={self.study.make_job(self.out, method, seed).network}"


def build_rooms(recipe: "ReconstructionRecipe") -> Any:
    """Return the source of training rooms of a recipe, whose settings test rooms share."""
    return recipe.data.build_source(0, recipe.model.build_config().patch)
