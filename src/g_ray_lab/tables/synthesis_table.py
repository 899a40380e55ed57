"""What tables of novel-view synthesis share: their options, given networks, and the protocol of changing zooms."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g_ray_lab.recipes.nvs_recipes import NVSRecipe, cache_pictures, re10k_paper, tiny
from g_ray_lab.sources.nvs_settings import RoomsData
from g_ray_lab.tables.trained_table import TrainedTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.nvs_protocols import FovProtocol, NVSProtocol
    from g_ray_lab.scoring.nvs_scorer import NVSScorer
    from g_ray_lab.scoring.study import Study
    from g_ray_lab.training.recipe import Recipe

PAIRS = (("gta_gray", "gta"), ("rayrope_gray", "rayrope"))
TEST_ROOMS = 96


@dataclass(frozen=True)
class NVSTable(TrainedTable):
    """Novel-view synthesis."""

    lpips: Path | None = None
    """AlexNet and LPIPS weights, for scores and for losses with LPIPS; if not given, those in the cache. Without any
    the column is left out, and rows that train with LPIPS cannot be trained."""
    scenes: int | None = None
    """Number of test scenes, to try things out with few --steps; all if not given. The table names it."""
    weights: tuple[Path, ...] = ()
    """Score these networks as they are, a row each named after its file, instead of training any: files of g-ray train
    or g-ray weights convert."""

    def build_scorer(self, protocol: "NVSProtocol") -> "NVSScorer":
        from g_ray_lab.scoring.nvs_scorer import NVSScorer
        from g_ray_lab.scoring.study import list_devices

        if self.scenes is not None and self.scenes < 1:
            raise ValueError(f"--scenes {self.scenes} must be at least 1")
        return NVSScorer(protocol.limit_scenes(self.scenes), find_lpips(self.lpips), list_devices()[0])

    def choose_networks(self, study: "Study") -> "Study":
        """Return the study with the given networks as its rows; if none is given, with --lpips in its losses."""
        from g_ray.models.weights import check_config, read_weights
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
        if self.lpips is None or not isinstance(recipe, NVSRecipe) or not recipe.loss.lpips:
            return recipe
        return replace(recipe, loss=replace(recipe.loss, lpips_weights=self.lpips))

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray_lab.result_pictures import draw_views

        draw_views(self.study, result, self.out)


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

    def build_recipe(self, method: str) -> NVSRecipe:
        """Return the recipe of one row at the scale of the table."""
        if self.scale == "small":
            return cache_pictures(tiny(method), self.out)
        recipe = re10k_paper(method)
        return replace(recipe, data=replace(recipe.data, root=self._get_paths()[0], axes=self.axes))

    def choose_networks(self, study: "Study") -> "Study":
        from g_ray_lab.sources.nvs_settings import RE10KData

        study = super().choose_networks(study)
        for name, file in study.weights.items():
            data = study.methods[name].data  # pyright: ignore[reportAttributeAccessIssue] (checked to be NVSRecipe)
            if isinstance(data, RE10KData) and data.axes != self.axes:
                raise ValueError(
                    f"{file} was trained with cameras read with {data.axes} axes: score it with --axes {data.axes}"
                )
        return study

    def build_rooms(self) -> "FovProtocol":
        """Return the tests of the small scale in the shape of training."""
        from g_ray_lab.scoring.nvs_protocols import FovProtocol

        if self.data or self.index or self.axes != "opencv":
            raise ValueError(
                "--data, --index and --axes belong to --scale paper; --scale small makes rooms of its own"
            )
        data = self.build_recipe("gta").data
        assert isinstance(data, RoomsData)
        return FovProtocol(data.width, data.height, TEST_ROOMS, data.fov_deg)

    @property
    def patch(self) -> int:
        """Pixels per side of a patch."""
        return self.build_recipe("gta").model.patch

    def build_protocol(self, *, factors: bool = False) -> "NVSProtocol":
        """Return the tests: at small scale wide and square, with `factors` each half of that change alone."""
        from g_ray_lab.scoring.indexed_protocols import RE10KProtocol
        from g_ray_lab.scoring.nvs_protocols import make_shapes

        if self.scale == "small":
            return make_shapes(self.build_rooms(), self.patch, factors=factors)
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


def find_lpips(path: Path | None) -> Path | None:
    """Return the given file, which must exist, or the cached one; print a note and return None if there is none."""
    from g_ray_lab.metrics.lpips import COMMAND, get_cache_file, read_weights

    if path is not None:
        if not path.is_file():
            raise ValueError(f"{path}: no such file; --lpips takes AlexNet and LPIPS weights")
        read_weights(path)  # fails now if it holds something else, not after the training
        return path
    if get_cache_file().is_file():
        return get_cache_file()
    print(f"no LPIPS weights at {get_cache_file()}: that column is left out; `{COMMAND}` downloads them")
    return None
