"""`g-ray reproduce nvs-…`: tables of novel-view synthesis."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g_ray_lab.tables.trained_table import Table

if TYPE_CHECKING:
    from g_ray_lab.recipes.nvs_recipes import NVSRecipe
    from g_ray_lab.scoring.nvs_scorer import NVSProtocol, NVSScorer
    from g_ray_lab.scoring.objects_protocol import ObjectsProtocol
    from g_ray_lab.scoring.study_runs import Study
    from g_ray_lab.training.recipe import Recipe

ALPHAS = (1, 2, 4, 6, 8, 10, 15, 20, 40)
PAIRS = (("gta_gray", "gta"), ("rayrope_gray", "rayrope"))
TEST_ROOMS = 256


@dataclass(frozen=True)
class NVSTable(Table):
    """Novel-view synthesis."""

    lpips: Path | None = None
    """AlexNet and LPIPS weights, for scores and for losses with LPIPS; if not given, those in the cache. Without any
    the column is left out, and rows that train with LPIPS cannot be trained."""
    scenes: int | None = None
    """Score on the first so many test scenes only, to try things out with few --steps; the table says so."""
    weights: tuple[Path, ...] = ()
    """Score these networks as they are, a row each named after its file, instead of training any: files of g-ray train
    or g-ray weights convert."""

    def build_scorer(self, protocol: "NVSProtocol") -> "NVSScorer":
        from g_ray_lab.scoring.nvs_scorer import NVSScorer
        from g_ray_lab.scoring.study_runs import list_devices

        if self.scenes is not None and self.scenes < 1:
            raise ValueError(f"--scenes {self.scenes} must be at least 1")
        return NVSScorer(protocol.limit_scenes(self.scenes), find_lpips(self.lpips), list_devices()[0])

    def choose_networks(self, study: "Study") -> "Study":
        """Return the study with the given networks as its rows; if none is given, with --lpips in its losses."""
        from g_ray.models.checkpoint import read_weights
        from g_ray.models.stored_config import check_config
        from g_ray_lab.recipes.nvs_recipes import NVSRecipe
        from g_ray_lab.recipes.stored_recipe import read_recipe

        if not self.weights:
            return replace(study, methods={name: self._set_lpips(r) for name, r in study.methods.items()})
        if self.seeds != 1:
            raise ValueError("--weights gives one network per row: add --seeds 1")
        files = {path.stem: path for path in self.weights}
        if len(files) < len(self.weights):
            raise ValueError("--weights: two files have the same name, which names their rows")
        recipes = {}
        for name, path in files.items():
            recipe = read_recipe(path)
            if not isinstance(recipe, NVSRecipe):
                raise ValueError(f"{path}: no network of novel-view synthesis")
            check_config(recipe.model, read_weights(path))
            recipes[name] = recipe
        return replace(study, methods=recipes, pairs=(), weights=files)

    def _set_lpips(self, recipe: "Recipe") -> "Recipe":
        """Return a recipe whose loss reads the given LPIPS weights, if it needs any."""
        from g_ray_lab.recipes.nvs_recipes import NVSRecipe

        if self.lpips is None or not isinstance(recipe, NVSRecipe) or not recipe.loss.lpips:
            return recipe
        return replace(recipe, loss=replace(recipe.loss, lpips_weights=self.lpips))

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray_lab.tables.trained_table import draw_views

        draw_views(study, result, self.out)


@dataclass(frozen=True)
class FovTable(NVSTable):
    """Scored as test views are zoomed and training views were not: on rooms, or at paper scale on RealEstate10K."""

    data: Path | None = None
    """RealEstate10K with train/ and test/ (paper scale only)."""
    index: Path | None = None
    """pixelSplat's evaluation index, a JSON file (paper scale only)."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes that poses are read with (paper scale only). Networks released with RayRoPE need blender: they were
    trained with cameras that were read so, although the files have OpenCV's axes."""

    def build_recipe(self, method: str) -> "NVSRecipe":
        """Return the recipe of one row at the scale of the table."""
        from g_ray_lab.recipes import nvs_recipes

        if self.scale == "small":
            return make_rooms_recipe(method, self.out)
        recipe = nvs_recipes.re10k_paper(method)
        return replace(recipe, data=replace(recipe.data, root=self._get_paths()[0], axes=self.axes))

    def choose_networks(self, study: "Study") -> "Study":
        from g_ray_lab.sources.nvs_settings import RE10KData

        study = super().choose_networks(study)
        for name in study.weights:
            data = study.methods[name].data  # pyright: ignore[reportAttributeAccessIssue] (checked to be NVSRecipe)
            if isinstance(data, RE10KData) and data.axes != self.axes:
                raise ValueError(
                    f"{study.weights[name]} was trained with cameras read with {data.axes} axes: score it with --axes "
                    f"{data.axes}"
                )
        return study

    def build_protocol(self) -> "NVSProtocol":
        from g_ray_lab.scoring.re10k_protocol import RE10KProtocol
        from g_ray_lab.scoring.rendered_protocols import FovProtocol

        if self.scale == "small":
            if self.data or self.index or self.axes != "opencv":
                raise ValueError(
                    "--data, --index and --axes belong to --scale paper; --scale small makes rooms of its own"
                )
            data = self.build_recipe("gta").data
            return FovProtocol(data.width, data.height, TEST_ROOMS)
        root, index = self._get_paths()
        protocol = RE10KProtocol(str(root), str(index), self.axes)
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
    """The six methods of LVSM, as fields of view differ and test images are wider than those of training."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.scoring.grouped_protocol import make_shapes
        from g_ray_lab.scoring.rendered_protocols import FovProtocol
        from g_ray_lab.scoring.study_runs import Study

        recipes = {method: self.build_recipe(method) for method in METHODS}
        protocol = self.build_protocol()
        if isinstance(protocol, FovProtocol):  # RealEstate10K has the shape of its photographs
            protocol = make_shapes(protocol)
        return Study("nvs-fov", self.scale, recipes, self.build_scorer(protocol), PAIRS)


@dataclass(frozen=True)
class NVSFrequency(FovTable):
    """GTA + G-ray with frequency scales α from 1 to 40."""

    def build_study(self) -> "Study":
        from g_ray_lab.scoring.study_runs import Study

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
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.scoring.rendered_protocols import WhoZoomsProtocol
        from g_ray_lab.scoring.study_runs import Study

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
    index: Path | None = None
    """Folder of an index, as `g-ray data objects-index` writes it, e.g. of a released one: its objects are for testing,
    all others for training. If not given, one product in ten is for testing, and OUT/index says which."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.recipes import nvs_recipes
        from g_ray_lab.scoring.study_runs import Study

        if self.scale == "paper" and self.data is None:
            raise ValueError(
                f"--scale paper needs --data FOLDER with rendered objects; make it with {RENDER}"
            )
        make = {"small": nvs_recipes.objects_tiny, "paper": nvs_recipes.objects_paper}[self.scale]
        size = make("gta").data.width
        root = self.data or render_small_objects(self.out / "data", size)
        recipes = {
            name: replace(recipe, data=replace(recipe.data, index=self.index))
            for name, recipe in ((method, make(method, root)) for method in METHODS)
        }
        protocol = (
            freeze_protocol(root, self.out / "index", size)
            if self.index is None
            else read_protocol(root, self.index, size)
        )
        return Study("nvs-objects", self.scale, recipes, self.build_scorer(protocol), PAIRS)


def make_rooms_recipe(method: str, out: Path) -> "NVSRecipe":
    """Return the recipe of one row at small scale."""
    from g_ray_lab.recipes import nvs_recipes

    return cache_pictures(nvs_recipes.tiny(method), out)


def cache_pictures(recipe: "NVSRecipe", out: Path) -> "NVSRecipe":
    """Return the recipe with a cache in OUT: all rows of a seed see the same rooms, which are rendered once."""
    return replace(recipe, data=replace(recipe.data, cache=out / "pictures"))


def find_lpips(path: Path | None) -> Path | None:
    """Return the given file, which must exist, or the cached one; print a note and return None if there is none."""
    from g_ray_lab.metrics.lpips_weights import COMMAND, get_cache_file, read_weights

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
    from g_ray.runtime.files import find_shared_data
    from g_ray_lab.cli.data_rendering import Objects
    from g_ray_lab.sources.nvs_settings import SCANNED

    scanned = find_shared_data() / SCANNED
    if scanned.is_dir():
        Objects(root, meshes=str(scanned), size=size).run()
    else:
        Objects(root, count=MADE, size=size).run()
    return root


def freeze_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Write the index of test views if there is none, and check it against the objects before anything is trained."""
    from g_ray_lab.sources.object_index import (
        SUMS,
        assign_split,
        draw_contexts,
        read_tested,
        write_indices,
    )

    if not (index / SUMS).is_file():
        write_indices(root, index, draw_contexts(root, 0))
    trained = sorted(uid for uid in read_tested(index) if assign_split(uid) == "train")
    if trained:
        raise ValueError(
            f"{index} tests {len(trained)} objects that are trained on, e.g. {trained[0]}: it is of an earlier version "
            "that split objects by name; choose another --out"
        )
    return read_protocol(root, index, size)


def read_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Return the protocol of an index, checked against the objects."""
    from g_ray_lab.scoring.objects_protocol import ObjectsProtocol

    protocol = ObjectsProtocol(root, index, size, size)
    protocol.check()
    return protocol
