"""`g-ray reproduce`: a table of the paper, trained and scored from nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from g_ray.evaluation.nvs_protocol import NVSProtocol
    from g_ray.evaluation.nvs_study import NVSStudy
    from g_ray.recipes.nvs import NVSRecipe

Scale = Literal["small", "paper"]
ALPHAS = (1, 2, 4, 6, 8, 10, 15, 20, 40)
PAIRS = (("gta_gray", "gta"), ("rayrope_gray", "rayrope"))
TEST_ROOMS = 256


@dataclass(frozen=True)
class Table(ABC):
    """How to run a study."""

    out: Path
    """Folder for runs, result.json, table.md and pictures; what is finished there is used again."""
    scale: Scale = "small"
    """small: 36×36 px images (objects: 48×48), minutes per network on a CPU. paper: as the paper has it, for GPUs."""
    seeds: int = 2
    """Networks per row."""
    steps: int | None = None
    """Steps per network instead of the recipe's, with its whole schedule: a shorter look, in a folder of its own."""
    jobs: int | None = None
    """Networks trained at the same time; one per GPU, or per core without a GPU, if not given."""
    methods: tuple[str, ...] = ()
    """Only these rows; all if none is given. What other calls have finished in the folder is kept."""
    lpips: Path | None = None
    """AlexNet and LPIPS weights; looked for in the cache if not given, and the column left out if not found."""

    @abstractmethod
    def study(self) -> "NVSStudy":
        """The rows to train and what they are scored on."""

    def run(self) -> None:
        from g_ray.cli.provenance import provenance
        from g_ray.cli.table_pictures import draw
        from g_ray.cli.text import Line
        from g_ray.evaluation.nvs_study import all_devices, default_jobs, run_study
        from g_ray.evaluation.study import differences_markdown, markdown
        from g_ray.files import write_json, write_whole

        study = shortened(chosen(self.study(), self.methods), self.steps)
        weights = found_lpips(self.lpips)
        devices = all_devices()
        jobs = default_jobs(devices) if self.jobs is None else self.jobs
        result = run_study(
            study, self.out, self.seeds, jobs=jobs, lpips=weights, devices=devices, progress=Line()
        )
        result["provenance"] = provenance()
        metrics = list(result["rows"][0]["metrics"])
        parts = [markdown(result, metric, 2 if metric == "psnr" else 3) for metric in metrics]
        if result["differences"]:
            parts.insert(1, differences_markdown(result))
        tables = "\n\n".join(parts)
        write_json(self.out / "result.json", result)
        write_whole(self.out / "table.md", tables + "\n")
        draw(study, result, metrics, self.out)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")


@dataclass(frozen=True)
class FovTable(Table):
    """Scored as test views are zoomed and training views were not: on rooms, or at paper scale on RealEstate10K."""

    data: Path | None = None
    """RealEstate10K with train/ and test/ (paper scale only)."""
    index: Path | None = None
    """pixelSplat's evaluation index, a JSON file (paper scale only)."""

    def recipe(self, method: str) -> "NVSRecipe":
        """Of one row, at the scale that was asked for."""
        from g_ray.recipes import nvs, re10k

        if self.scale == "small":
            recipe = nvs.tiny(method)  # all rows of a seed see the same rooms: rendered once
            return replace(recipe, data=replace(recipe.data, cache=self.out / "pictures"))
        recipe = re10k.paper(method)
        return replace(recipe, data=replace(recipe.data, root=self._given()[0]))

    def protocol(self) -> "NVSProtocol":
        from g_ray.evaluation.nvs_protocol import FovProtocol
        from g_ray.evaluation.re10k_protocol import RE10KProtocol

        if self.scale == "small":
            if self.data or self.index:
                raise ValueError(
                    "--data and --index belong to --scale paper; --scale small makes rooms of its own"
                )
            data = self.recipe("gta").data
            return FovProtocol(data.width, data.height, TEST_ROOMS)
        root, index = self._given()
        protocol = RE10KProtocol(str(root), str(index))
        print(protocol.scenes.coverage)
        return protocol

    def _given(self) -> tuple[Path, Path]:
        if self.data is None or self.index is None:
            raise ValueError(
                "--scale paper needs RealEstate10K: give --data FOLDER and --index FILE (docs: RealEstate10K)"
            )
        return self.data, self.index


@dataclass(frozen=True)
class NVSFov(FovTable):
    """Six ways to tell LVSM about cameras, as fields of view differ."""

    def study(self) -> "NVSStudy":
        from g_ray.evaluation.nvs_study import NVSStudy
        from g_ray.recipes.nvs import METHODS

        recipes = {method: self.recipe(method) for method in METHODS}
        return NVSStudy("nvs-fov", self.scale, recipes, self.protocol(), PAIRS)


@dataclass(frozen=True)
class NVSFrequency(FovTable):
    """GTA + G-ray with frequency scales α from 1 to 40."""

    def study(self) -> "NVSStudy":
        from g_ray.evaluation.nvs_study import NVSStudy

        base = self.recipe("gta_gray")
        recipes = {
            f"alpha_{alpha}": replace(
                base, model=replace(base.model, encoding_options={"scale": float(alpha)})
            )
            for alpha in ALPHAS
        }
        return NVSStudy("nvs-frequency", self.scale, recipes, self.protocol())


@dataclass(frozen=True)
class NVSObjects(Table):
    """Six ways to tell LVSM about cameras, on objects whose views each have a field of view of their own."""

    data: Path | None = None
    """Folder of rendered objects; at small scale they are rendered into OUT/data if none is given."""

    def study(self) -> "NVSStudy":
        from g_ray.cli.reproduce_objects import RENDER, frozen_protocol, small_objects
        from g_ray.evaluation.nvs_study import NVSStudy
        from g_ray.recipes import objects
        from g_ray.recipes.nvs import METHODS

        if self.scale == "paper" and self.data is None:
            raise ValueError(
                f"--scale paper needs --data FOLDER with rendered objects; make it with {RENDER}"
            )
        make = {"small": objects.tiny, "paper": objects.paper}[self.scale]
        size = make("gta").data.width
        root = self.data or small_objects(self.out / "data", size)
        recipes = {method: make(method, root) for method in METHODS}
        return NVSStudy(
            "nvs-objects", self.scale, recipes, frozen_protocol(root, self.out / "index", size), PAIRS
        )


@dataclass(frozen=True)
class Reproduce:
    """Train and score a table of the paper."""

    what: (
        Annotated[NVSFov, tyro.conf.subcommand("nvs-fov")]
        | Annotated[NVSObjects, tyro.conf.subcommand("nvs-objects")]
        | Annotated[NVSFrequency, tyro.conf.subcommand("nvs-frequency")]
    )

    def run(self) -> None:
        self.what.run()


def chosen(study: "NVSStudy", methods: tuple[str, ...]) -> "NVSStudy":
    """The study with only these rows, in its own order."""
    unknown = [method for method in methods if method not in study.methods]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)} in {study.name}: it has {', '.join(study.methods)}")
    kept = {name: recipe for name, recipe in study.methods.items() if not methods or name in methods}
    return replace(study, methods=kept)


def shortened(study: "NVSStudy", steps: int | None) -> "NVSStudy":
    if steps is None:
        return study
    methods = {
        name: replace(recipe, schedule=replace(recipe.schedule, steps=steps))
        for name, recipe in study.methods.items()
    }
    return replace(study, methods=methods)


def found_lpips(given: Path | None) -> Path | None:
    """The weights to use: a given file must be there, the cache may be empty, and then that is said."""
    from g_ray.metrics.lpips_weights import COMMAND, cache_file

    if given is not None:
        if not given.is_file():
            raise ValueError(f"{given}: no such file; --lpips takes AlexNet and LPIPS weights")
        return given
    if cache_file().is_file():
        return cache_file()
    print(f"no LPIPS weights at {cache_file()}: that column is left out; `{COMMAND}` fetches them")
    return None
