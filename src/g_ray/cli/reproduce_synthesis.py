"""`g-ray reproduce nvs-…`: tables of novel-view synthesis."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray.cli.reproduce_tables import Table

if TYPE_CHECKING:
    from g_ray.evaluation.nvs import NVSProtocol, NVSScorer
    from g_ray.evaluation.objects_protocol import ObjectsProtocol
    from g_ray.evaluation.study_runs import Study
    from g_ray.recipes.nvs import NVSRecipe

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
    """The six methods of LVSM, as fields of view differ and test images are wider than those of training."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.grouped_protocol import make_shapes
        from g_ray.evaluation.nvs import FovProtocol
        from g_ray.evaluation.study_runs import Study
        from g_ray.models.lvsm_config import METHODS

        recipes = {method: self.build_recipe(method) for method in METHODS}
        protocol = self.build_protocol()
        if isinstance(protocol, FovProtocol):  # RealEstate10K has the shape of its photographs
            protocol = make_shapes(protocol)
        return Study("nvs-fov", self.scale, recipes, self.build_scorer(protocol), PAIRS)


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
    """Return the recipe of one row at small scale."""
    from g_ray.recipes import nvs

    return cache_pictures(nvs.tiny(method), out)


def cache_pictures(recipe: "NVSRecipe", out: Path) -> "NVSRecipe":
    """Return the recipe with a cache in OUT: all rows of a seed see the same rooms, which are rendered once."""
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
