"""`g-ray reproduce`: train and score the tables of the paper."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from g_ray.cli.reproduce_analysis import Attention, Runtime
from g_ray.cli.reproduce_calibration import CalibrationEstimated, CalibrationNoise
from g_ray.cli.reproduce_evaluation import Heterogeneous, Homogeneous, RealSmall
from g_ray.cli.reproduce_stress import FovStress, Resolution
from g_ray.cli.reproduce_tables import Table

if TYPE_CHECKING:
    from g_ray.evaluation.nvs import NVSProtocol, NVSScorer
    from g_ray.evaluation.objects_protocol import ObjectsProtocol
    from g_ray.evaluation.reconstruction import FoldersScorer
    from g_ray.evaluation.study_runs import Study
    from g_ray.recipes.nvs import NVSRecipe
    from g_ray.recipes.reconstruction import ReconstructionRecipe
    from g_ray.training.recipe import Recipe

# Novel-view synthesis.


ALPHAS = (1, 2, 4, 6, 8, 10, 15, 20, 40)
PAIRS = (("gta_gray", "gta"), ("rayrope_gray", "rayrope"))
TEST_ROOMS = 256


@dataclass(frozen=True)
class NVSTable(Table):
    """Novel-view synthesis."""

    lpips: Path | None = None
    """AlexNet and LPIPS weights; if not given, those in the cache. Without any the column is left out."""

    def build_scorer(self, protocol: "NVSProtocol") -> "NVSScorer":
        from g_ray.evaluation.nvs import NVSScorer

        return NVSScorer(protocol, find_lpips(self.lpips))

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reproduce_tables import draw_views

        draw_views(study, result, self.out)


@dataclass(frozen=True)
class FovTable(NVSTable):
    """Scored as test views are zoomed and training views were not: on rooms, or at paper scale on RealEstate10K."""

    data: Path | None = None
    """RealEstate10K with train/ and test/ (paper scale only)."""
    index: Path | None = None
    """pixelSplat's evaluation index, a JSON file (paper scale only)."""

    def build_recipe(self, method: str) -> "NVSRecipe":
        """Return the recipe of one row at the scale of the table."""
        from g_ray.recipes import nvs

        if self.scale == "small":
            return make_rooms_recipe(method, self.out)
        recipe = nvs.re10k_paper(method)
        return replace(recipe, data=replace(recipe.data, root=self._get_paths()[0]))

    def build_protocol(self) -> "NVSProtocol":
        from g_ray.evaluation.nvs import FovProtocol
        from g_ray.evaluation.re10k_protocol import RE10KProtocol

        if self.scale == "small":
            if self.data or self.index:
                raise ValueError(
                    "--data and --index belong to --scale paper; --scale small makes rooms of its own"
                )
            data = self.build_recipe("gta").data
            return FovProtocol(data.width, data.height, TEST_ROOMS)
        root, index = self._get_paths()
        protocol = RE10KProtocol(str(root), str(index))
        print(protocol.scenes.coverage)
        return protocol

    def _get_paths(self) -> tuple[Path, Path]:
        if self.data is None or self.index is None:
            raise ValueError(
                "--scale paper needs RealEstate10K: give --data FOLDER and --index FILE (docs: RealEstate10K)"
            )
        return self.data, self.index


@dataclass(frozen=True)
class NVSFov(FovTable):
    """The six methods of LVSM, as fields of view differ."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.lvsm_config import METHODS

        recipes = {method: self.build_recipe(method) for method in METHODS}
        return Study("nvs-fov", self.scale, recipes, self.build_scorer(self.build_protocol()), PAIRS)


@dataclass(frozen=True)
class NVSFrequency(FovTable):
    """GTA + G-ray with frequency scales α from 1 to 40."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.study_runs import Study

        base = self.build_recipe("gta_gray")
        recipes = {
            f"alpha_{alpha}": replace(
                base, model=replace(base.model, encoding_options={"scale": float(alpha)})
            )
            for alpha in ALPHAS
        }
        return Study("nvs-frequency", self.scale, recipes, self.build_scorer(self.build_protocol()))


@dataclass(frozen=True)
class NVSZoom(NVSTable):
    """The networks of `nvs-fov` when the second context, the target, or both are zoomed by 2.5. Small scale only."""

    networks: Path | None = None
    """Folder of `nvs-fov`, whose finished networks are scored; they are trained in OUT if none is given."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.nvs import WhoZoomsProtocol
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.lvsm_config import METHODS

        if self.scale != "small":
            raise ValueError("nvs-zoom zooms rooms: it has --scale small only")
        if self.networks is not None and not (self.networks / "runs").is_dir():
            raise ValueError(
                f"--networks {self.networks}: no runs/ in it; give the --out of a finished nvs-fov"
            )
        recipes = {method: make_rooms_recipe(method, self.networks or self.out) for method in METHODS}
        data = recipes["gta"].data
        protocol = WhoZoomsProtocol(data.width, data.height, TEST_ROOMS)
        return Study("nvs-zoom", self.scale, recipes, self.build_scorer(protocol), PAIRS, self.networks)


@dataclass(frozen=True)
class NVSObjects(NVSTable):
    """The six methods of LVSM, on objects whose views differ in their fields of view."""

    data: Path | None = None
    """Folder of rendered objects; at small scale they are rendered into OUT/data if none is given."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.lvsm_config import METHODS
        from g_ray.recipes import nvs

        if self.scale == "paper" and self.data is None:
            raise ValueError(
                f"--scale paper needs --data FOLDER with rendered objects; make it with {RENDER}"
            )
        make = {"small": nvs.objects_tiny, "paper": nvs.objects_paper}[self.scale]
        size = make("gta").data.width
        root = self.data or render_small_objects(self.out / "data", size)
        recipes = {method: make(method, root) for method in METHODS}
        protocol = freeze_protocol(root, self.out / "index", size)
        return Study("nvs-objects", self.scale, recipes, self.build_scorer(protocol), PAIRS)


def make_rooms_recipe(method: str, out: Path) -> "NVSRecipe":
    """Return the recipe of one row at small scale. All rows of a seed see the same rooms, which are rendered once."""
    from g_ray.recipes import nvs

    recipe = nvs.tiny(method)
    return replace(recipe, data=replace(recipe.data, cache=out / "pictures"))


def find_lpips(path: Path | None) -> Path | None:
    """Return the given file, which must exist, or the cached one; print a note and return None if there is none."""
    from g_ray.metrics.lpips_weights import COMMAND, get_cache_file, read_weights

    if path is not None:
        if not path.is_file():
            raise ValueError(f"{path}: no such file; --lpips takes AlexNet and LPIPS weights")
        read_weights(path)  # fails now if it holds something else, not after the training
        return path
    if get_cache_file().is_file():
        return get_cache_file()
    print(f"no LPIPS weights at {get_cache_file()}: that column is left out; `{COMMAND}` downloads them")
    return None


MADE = 600  # procedural objects, where no scanned ones are found
RENDER = "g-ray data objects --meshes MESHES --out FOLDER"


def render_small_objects(root: Path, size: int) -> Path:
    """Render all scanned objects if they are among the shared data, else procedural ones; skip what is rendered."""
    from g_ray.cli.data import Objects
    from g_ray.runtime.files import find_shared_data

    scanned = find_shared_data() / "gso_mini"
    if scanned.is_dir():
        Objects(root, meshes=str(scanned), size=size).run()
    else:
        Objects(root, count=MADE, size=size).run()
    return root


def freeze_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Write the index of test views if there is none, and check it against the objects before anything is trained."""
    from g_ray.data.objects.index import SUMS, write_indices
    from g_ray.evaluation.objects_protocol import ObjectsProtocol

    if not (index / SUMS).is_file():
        write_indices(root, index)
    protocol = ObjectsProtocol(root, index, size, size)
    protocol.check()
    return protocol


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
    """Weights of DINOv2 ViT-S/14 with registers, or an id such as facebook/dinov2-with-registers-small, that training
    starts from (paper scale only)."""
    tests: Path | None = None
    """Folder with NAME-test-pinhole, -zoom, -mixed, -fisheye to score on, as `g-ray data levels` makes them; without,
    procedural rooms."""

    def build_study(self) -> "Study":
        from g_ray.data.rooms.reconstruction import RoomsReconstruction
        from g_ray.evaluation.reconstruction import RoomsScorer
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
        from g_ray.recipes import reconstruction

        make = {"small": reconstruction.tiny, "paper": reconstruction.ablation}[self.scale]
        if self.scale == "small" and (self.data or self.weights or self.encoder):
            raise ValueError(
                "--data, --weights and --encoder belong to --scale paper; --scale small makes rooms"
            )
        recipes = {method: self._start_from(make(method)) for method in RECONSTRUCTION_METHODS}
        rooms = make("gray").data.build_source(0, recipes["gray"].model.build_config().patch)
        assert isinstance(rooms, RoomsReconstruction)
        scorer = (
            RoomsScorer.from_training(rooms, TEST_SETS)
            if self.tests is None
            else build_folders_scorer(recipes["gray"], self.tests, None)
        )
        return Study("recon-ablation", self.scale, recipes, scorer, RECONSTRUCTION_PAIRS)

    def _start_from(self, recipe: "ReconstructionRecipe") -> "ReconstructionRecipe":
        """Return the recipe on the folders and with the encoder that were given."""
        from g_ray.data.reconstruction_settings import ScenesViews

        if self.encoder is not None:
            recipe = replace(recipe, model=replace(recipe.model, encoder=self.encoder))
        if not self.data:
            return recipe
        folders = ScenesViews(**recipe.data.get_shape(), folders=self.data, weights=self.weights)
        return replace(recipe, data=folders)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reproduce_tables import draw_metrics, draw_reconstructions

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
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.reconstruction_config import RANDOM_ENCODER
        from g_ray.recipes import reconstruction

        if self.scale != "small":
            raise ValueError("recon-ablation-dino has a small scale only; recon-ablation has the paper's")
        if self.data is None or self.encoder is None:
            raise ValueError("recon-ablation-dino needs --data FOLDER of textured scenes and --encoder FILE")
        recipes = {}
        for method in PAPER_ROWS:
            recipe = reconstruction.dino_small(method)
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
        from g_ray.cli.reproduce_tables import draw_metrics

        draw_metrics(result, self.out)


def build_folders_scorer(
    recipe: "Recipe", data: Path, photos: Path | None, sets: int = TEXTURED_SETS
) -> "FoldersScorer":
    """Return the tests of a network trained on scene folders: NAME-test-KIND below `data`, and photographs."""
    from g_ray.evaluation.reconstruction import FoldersScorer, PhotosScorer
    from g_ray.recipes.reconstruction import ReconstructionRecipe

    if not isinstance(recipe, ReconstructionRecipe):
        raise ValueError("--tests are for reconstruction networks")
    side, patch = recipe.data.width, recipe.model.build_config().patch
    frames = None if photos is None else PhotosScorer(photos, side, patch, (TRAINED, 1.0), sets)
    folders = {kind: find_textured(data, f"test-{kind}") for kind in TEXTURED_TESTS}
    return FoldersScorer(folders, side, patch, frames, sets)


def find_textured(root: Path, ending: str) -> tuple[Path, ...]:
    """Return the folders NAME-ending below a folder, or raise ValueError if there is none."""
    found = tuple(sorted(path for path in root.glob(f"*-{ending}") if path.is_dir()))
    if not found:
        raise ValueError(f"{root}: no folder named *-{ending}; make it with g-ray data levels")
    return found


@dataclass(frozen=True)
class ReconPhotos(Table):
    """G-ray on real photographs with depth, as they are and as fisheyes: trained on rooms, and on photographs too."""

    data: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its first 60 % of frames train the second row, the others test both."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.reconstruction import PhotosScorer
        from g_ray.evaluation.study_runs import Study
        from g_ray.recipes import reconstruction

        if self.scale != "small":
            raise ValueError("recon-photos has a small scale only: --scale small")
        if self.data is None or not self.data.is_dir():
            raise ValueError("recon-photos needs photographs with depth: give --data FOLDER")
        rooms = reconstruction.tiny("gray")
        both = reconstruction.scenes_and_rooms(self.data, (0.0, TRAINED))
        scorer = PhotosScorer(self.data, rooms.data.width, rooms.model.build_config().patch, (TRAINED, 1.0))
        pairs = (("rooms_and_photos", "rooms"),)
        return Study("recon-photos", self.scale, {"rooms": rooms, "rooms_and_photos": both}, scorer, pairs)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reproduce_tables import draw_metrics

        draw_metrics(result, self.out)


@dataclass(frozen=True)
class Reproduce:
    """Make a table of the paper: train its rows and score them, or score finished models."""

    what: (
        Annotated[NVSFov, tyro.conf.subcommand("nvs-fov")]
        | Annotated[NVSZoom, tyro.conf.subcommand("nvs-zoom")]
        | Annotated[NVSObjects, tyro.conf.subcommand("nvs-objects")]
        | Annotated[NVSFrequency, tyro.conf.subcommand("nvs-frequency")]
        | Annotated[ReconAblation, tyro.conf.subcommand("recon-ablation")]
        | Annotated[ReconAblationDino, tyro.conf.subcommand("recon-ablation-dino")]
        | Annotated[ReconPhotos, tyro.conf.subcommand("recon-photos")]
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
