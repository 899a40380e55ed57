"""`g-ray reproduce`: train and score the tables of the paper."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from g_ray_lab.tables.attention_runtime import Attention, Runtime
from g_ray_lab.tables.calibration_tables import CalibrationEstimated, CalibrationNoise
from g_ray_lab.tables.coordinate_tables import Coordinates, FrequencyRecon
from g_ray_lab.tables.evaluation_tables import Heterogeneous, Homogeneous, RealSmall
from g_ray_lab.tables.factor_tables import NVSPlucker, NVSRayRoPE
from g_ray_lab.tables.stress_tables import FovStress, Resolution
from g_ray_lab.tables.synthesis_tables import NVSFov, NVSFrequency, NVSObjects, NVSZoom
from g_ray_lab.tables.trained_table import Table
from g_ray_lab.tables.trajectory_figure import NVSTrajectory

if TYPE_CHECKING:
    from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer
    from g_ray_lab.scoring.study_runs import Study
    from g_ray_lab.training.recipe import Recipe

# Reconstruction: recon-ablation in rooms, recon-photos from photographs.


RECONSTRUCTION_PAIRS = (
    ("gray", "rope"),
    ("gray", "camray"),
    ("gray", "gray_qk"),
    ("gray", "rope_vo"),
    ("gray_qk", "rope"),
    ("gray_camray", "camray"),
)
PAPER_ROWS = ("gray", "gray_qk", "rope", "camray")
DINO_PAIRS = (("gray", "rope"), ("gray", "gray_qk"), ("gray", "camray"), ("gray", "gray_random"))
DINO_STEPS = 700
TEXTURED_TESTS = ("pinhole", "zoom", "mixed", "fisheye")
TEXTURED_SETS = 48
TEST_SETS = 128
TRAINED = 0.6


@dataclass(frozen=True)
class ReconAblation(Table):
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
    early: tuple[int, ...] = ()
    """Score networks also after so many steps of their training, e.g. 100 250 500; early.md has these tables."""

    def build_study(self) -> "Study":
        from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
        from g_ray_lab.recipes import reconstruction_recipes
        from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer
        from g_ray_lab.scoring.study_runs import Study
        from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

        make = {"small": reconstruction_recipes.tiny, "paper": reconstruction_recipes.ablation}[self.scale]
        if self.scale == "small" and (self.data or self.weights or self.encoder or not self.registers):
            raise ValueError(
                "--data, --weights, --encoder and --no-registers belong to --scale paper; --scale small makes rooms"
            )
        recipes = {method: self._start_from(make(method)) for method in RECONSTRUCTION_METHODS}
        rooms = make("gray").data.build_source(0, recipes["gray"].model.build_config().patch)
        assert isinstance(rooms, RoomsReconstruction)
        scorer = (
            RoomsScorer.from_training(rooms, TEST_SETS)
            if self.tests is None
            else build_folders_scorer(recipes["gray"], self.tests, None)
        )
        return Study("recon-ablation", self.scale, recipes, scorer, RECONSTRUCTION_PAIRS, early=self.early)

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

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray_lab.tables.trained_table import draw_metrics, draw_reconstructions

        if self.tests is None:
            draw_reconstructions(study, result, self.out)
        else:
            draw_metrics(result, self.out)


@dataclass(frozen=True)
class ReconAblationDino(Table):
    """The paper's ablation on frozen DINOv2 ViT-S/14 features of textured scenes, and a row on a random encoder."""

    data: Path | None = None
    """Folder with NAME-train-pinhole and NAME-test-pinhole, -zoom, -mixed, -fisheye, as `g-ray data levels` and `g-ray
    data textured-rooms` make them."""
    encoder: Path | None = None
    """Weights of DINOv2 ViT-S/14 without registers."""
    photos: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its last 40 % of frames are two more columns."""

    def build_study(self) -> "Study":
        from g_ray.models.reconstruction_config import RANDOM_ENCODER
        from g_ray_lab.recipes import reconstruction_recipes
        from g_ray_lab.scoring.study_runs import Study

        if self.scale != "small":
            raise ValueError("recon-ablation-dino has a small scale only; recon-ablation has the paper's")
        if self.data is None or self.encoder is None:
            raise ValueError("recon-ablation-dino needs --data FOLDER of textured scenes and --encoder FILE")
        recipes = {}
        for method in PAPER_ROWS:
            recipe = reconstruction_recipes.dino_small(method)
            recipes[method] = replace(
                recipe,
                model=replace(recipe.model, encoder=self.encoder),
                data=replace(recipe.data, folders=find_textured(self.data, "train-pinhole")),
                schedule=replace(recipe.schedule, steps=DINO_STEPS, warmup=DINO_STEPS // 20),
            )
        # What the encoder has learned is worth the difference to one that has learned nothing.
        gray = recipes["gray"]
        recipes["gray_random"] = replace(gray, model=replace(gray.model, encoder=RANDOM_ENCODER))
        scorer = build_folders_scorer(gray, self.data, self.photos)
        features = self.out / "features"
        return Study("recon-ablation-dino", self.scale, recipes, scorer, DINO_PAIRS, features=features)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray_lab.tables.trained_table import draw_metrics

        draw_metrics(result, self.out)


def build_folders_scorer(
    recipe: "Recipe", data: Path, photos: Path | None, sets: int = TEXTURED_SETS
) -> "FoldersScorer":
    """Return the tests of a network trained on scene folders: NAME-test-KIND below `data`, and photographs."""
    from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer, PhotosScorer

    if not isinstance(recipe, ReconstructionRecipe):
        raise ValueError("--tests are for reconstruction networks")
    side, patch = recipe.data.width, recipe.model.build_config().patch
    frames = None if photos is None else PhotosScorer(photos, side, patch, (TRAINED, 1.0), sets)
    folders = {kind: find_textured(data, f"test-{kind}") for kind in TEXTURED_TESTS}
    return FoldersScorer(folders, side, patch, frames, sets)


def find_textured(root: Path, ending: str) -> tuple[Path, ...]:
    """Return the folders NAME-ending below a folder, or raise ValueError if there is none."""
    folders = tuple(sorted(path for path in root.glob(f"*-{ending}") if path.is_dir()))
    if not folders:
        raise ValueError(f"{root}: no folder named *-{ending}; make it with g-ray data levels")
    return folders


@dataclass(frozen=True)
class ReconPhotos(Table):
    """G-ray on real photographs with depth, as they are and as fisheyes: trained on rooms, and on photographs too."""

    data: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its first 60 % of frames train the second row, the others test both."""

    def build_study(self) -> "Study":
        from g_ray_lab.recipes import reconstruction_recipes
        from g_ray_lab.scoring.reconstruction_scorer import PhotosScorer
        from g_ray_lab.scoring.study_runs import Study

        if self.scale != "small":
            raise ValueError("recon-photos has a small scale only: --scale small")
        if self.data is None or not self.data.is_dir():
            raise ValueError("recon-photos needs photographs with depth: give --data FOLDER")
        rooms = reconstruction_recipes.tiny("gray")
        both = reconstruction_recipes.scenes_and_rooms(self.data, (0.0, TRAINED))
        scorer = PhotosScorer(self.data, rooms.data.width, rooms.model.build_config().patch, (TRAINED, 1.0))
        pairs = (("rooms_and_photos", "rooms"),)
        return Study("recon-photos", self.scale, {"rooms": rooms, "rooms_and_photos": both}, scorer, pairs)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray_lab.tables.trained_table import draw_metrics

        draw_metrics(result, self.out)


@dataclass(frozen=True)
class Reproduce:
    """Make a table of the paper: train its rows and score them, or score finished models."""

    what: (
        Annotated[NVSFov, tyro.conf.subcommand("nvs-fov")]
        | Annotated[NVSZoom, tyro.conf.subcommand("nvs-zoom")]
        | Annotated[NVSRayRoPE, tyro.conf.subcommand("nvs-rayrope")]
        | Annotated[NVSPlucker, tyro.conf.subcommand("nvs-plucker")]
        | Annotated[NVSObjects, tyro.conf.subcommand("nvs-objects")]
        | Annotated[NVSFrequency, tyro.conf.subcommand("nvs-frequency")]
        | Annotated[NVSTrajectory, tyro.conf.subcommand("nvs-trajectory")]
        | Annotated[ReconAblation, tyro.conf.subcommand("recon-ablation")]
        | Annotated[ReconAblationDino, tyro.conf.subcommand("recon-ablation-dino")]
        | Annotated[ReconPhotos, tyro.conf.subcommand("recon-photos")]
        | Annotated[Coordinates, tyro.conf.subcommand("coordinates")]
        | Annotated[FrequencyRecon, tyro.conf.subcommand("frequency-recon")]
        | Annotated[Attention, tyro.conf.subcommand("attention")]
        | Annotated[CalibrationNoise, tyro.conf.subcommand("calibration-noise")]
        | Annotated[CalibrationEstimated, tyro.conf.subcommand("calibration-estimated")]
        | Annotated[Runtime, tyro.conf.subcommand("runtime")]
        | Annotated[Heterogeneous, tyro.conf.subcommand("recon-heterogeneous")]
        | Annotated[Homogeneous, tyro.conf.subcommand("recon-homogeneous")]
        | Annotated[FovStress, tyro.conf.subcommand("fov-stress")]
        | Annotated[Resolution, tyro.conf.subcommand("resolution")]
        | Annotated[RealSmall, tyro.conf.subcommand("real-small")]
    )

    def run(self) -> None:
        self.what.run()
