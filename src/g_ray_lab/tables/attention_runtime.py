"""`g-ray reproduce runtime` and `attention`, and what all measurements of the paper's analysis section share.

These tables train nothing: they measure networks that exist. Finished parts are kept in OUT/parts and reused.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.trained_table import Scale

if TYPE_CHECKING:
    from g_ray.models.reconstruction_network import ReconstructionModel
    from g_ray.runtime.parts import Parts
    from g_ray_lab.figures.attention_figure import AttentionRow
    from g_ray_lab.scoring.analysis.fov_pairs import FovPair
    from g_ray_lab.scoring.analysis.trained_networks import TrainedNetwork


@dataclass(frozen=True)
class Analysis(ABC):
    """Options that all measurements have."""

    out: Path
    """Folder for result.json, table.md and pictures; finished parts in it are reused."""
    scale: Scale = "small"
    """small: sizes for a CPU. paper: the settings of the paper, for GPUs and real data."""

    @abstractmethod
    def measure(self, parts: "Parts") -> dict[str, Any]:
        """Return the content of result.json."""

    @abstractmethod
    def format_tables(self, result: dict[str, Any]) -> str:
        """Return the tables as Markdown."""

    @abstractmethod
    def draw(self, result: dict[str, Any]) -> None:
        """Write the pictures beside the table."""

    def run(self) -> None:
        from g_ray.runtime.files import strip_paths, write_atomically, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.parts import Parts
        from g_ray.runtime.provenance import collect_provenance
        from g_ray_lab.tables.trained_table import is_study_folder

        claim_out(self.out, "reproduce", ours=is_study_folder(self.out))
        result = strip_paths(self.measure(Parts(self.out / "parts")))
        result = {"scale": self.scale, **result, "provenance": collect_provenance()}
        tables = self.format_tables(result)
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", tables + "\n")
        self.draw(result)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")


# Runtime and memory.


RUNTIME_VIEWS = (2, 4, 8, 16, 32, 50)
RUNTIME_SIZES = {"small": 112, "paper": 518}


@dataclass(frozen=True)
class Runtime(Analysis):
    """Seconds and peak memory with ray angles and with grid indices: one checkpoint, paired trials, 2 to 50 views."""

    weights: str | None = None
    """The checkpoint of all modes; by default g-ray-photos, at paper scale random weights of the paper's size."""
    views: tuple[int, ...] = RUNTIME_VIEWS
    size: int | None = None
    """Pixels per side; 112 by default, at paper scale 518."""
    trials: int = 12
    """Rounds of all modes. Multiples of 6 have every order of the modes equally often."""
    precision: str | None = None
    """fp32 or bf16; fp32 by default, at paper scale bf16."""
    device: str = "auto"
    """cpu (one thread, CPU seconds), cuda, …; auto takes a GPU where there is one."""

    def measure(self, parts: "Parts") -> dict[str, Any]:
        from g_ray.cli.text import ProgressLine
        from g_ray.predictors.model_settings import WEIGHTS
        from g_ray.runtime.device import choose_device
        from g_ray_lab.bench.paired_runtime import MODES, measure_runtime

        device = str(choose_device(self.device, 0))
        settings = {
            "model": self.scale if self.scale == "paper" else "dino_small",
            "size": self.size or RUNTIME_SIZES[self.scale],
            "trials": self.trials,
            "precision": self.precision or {"small": "fp32", "paper": "bf16"}[self.scale],
            "device": device,
        }
        weights = self.weights or {"small": WEIGHTS, "paper": None}[self.scale]
        rows = measure_runtime(weights, self.views, **settings, parts=parts, progress=ProgressLine())
        unit = "CPU seconds on one thread" if device == "cpu" else "seconds"
        memory = "resident memory of the process" if device == "cpu" else "memory allocated on the GPU"
        return {
            "name": "runtime",
            "rows": rows,
            "settings": {**settings, "weights": weights, "modes": MODES, "unit": unit, "memory": memory},
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        from g_ray_lab.bench.paired_runtime import format_runtime

        return format_runtime(result["rows"])

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures.table_figures import draw_runtime

        write_png(draw_runtime(result["rows"], LIGHT), self.out / "runtime.png")


# Networks of a finished study.


@dataclass(frozen=True)
class NetworkAnalysis(Analysis):
    """Options of measurements of several trained networks."""

    networks: Path | None = None
    """Folder of a finished study with runs/ROW-seedN (the --out of recon-ablation-dino), or a file of weights; by
    default the weights that come with g-ray."""
    methods: tuple[str, ...] = ()
    """Only these rows; all that are finished if none is given."""
    seeds: int | None = None
    """Only the first so many networks of each row; all that are finished if not given. Intervals are Student's over
    the networks of a row; with a single one they are over pairs or sets."""

    def find_networks(self) -> "list[TrainedNetwork]":
        """Find the networks to measure."""
        from g_ray.predictors.model_settings import WEIGHTS
        from g_ray_lab.scoring.analysis.trained_networks import find_networks

        return find_networks(self.networks or Path(WEIGHTS), self.methods, self.seeds)


def compare_with_first(networks: "list[TrainedNetwork]") -> tuple[tuple[str, str], ...]:
    """Return the first row beside each of the others, to be compared pair by pair."""
    rows = list(dict.fromkeys(network.method for network in networks))
    return tuple((rows[0], row) for row in rows[1:])


# Attention across fields of view.


PAIRS = {"small": 48, "paper": 200}
CENTER, ANYWHERE = "center", "anywhere"


@dataclass(frozen=True)
class Attention(NetworkAnalysis):
    """Where global attention looks between a wide image and a crop of it: inside the shared field of view or not."""

    data: tuple[Path, ...] = ()
    """Scene folders, or folders of them: a setting each, with crops from the middle and with crops from anywhere."""
    pairs: int | None = None
    """Pairs per setting; 48 by default, at paper scale 200."""

    def measure(self, parts: "Parts") -> dict[str, Any]:
        from g_ray.cli.text import ProgressLine
        from g_ray_lab.scoring.analysis.fov_attention import (
            ATTENTION_METRICS,
            CHANCE,
            PRIOR,
            make_scored_run,
            score_pairs,
        )
        from g_ray_lab.scoring.study import compute_differences, make_rows

        networks, progress = self.find_networks(), ProgressLine()
        pairs = self.make_pairs(networks[0].load())
        textures = {setting: [pair.measure_texture() for pair in group] for setting, group in pairs.items()}
        names = {setting: [pair.name for pair in group] for setting, group in pairs.items()}
        runs, references = [], {}
        for network in networks:
            progress(f"attention of {network.name}")
            key = {"weights": network.digest, "pairs": names, "textures": textures}
            scores = parts.measure(
                network.name, key, lambda network=network: score_pairs(network.load(), pairs)
            )
            runs.append(make_scored_run(network.method, network.seed, scores["attention"], textures))
            # Rows with one encoding have one prior, which does not depend on the seed.
            prior = make_scored_run(f"{network.method}, {PRIOR}", 0, scores["prior"], textures)
            references.setdefault(prior.method, prior)
            references.setdefault(CHANCE, make_scored_run(CHANCE, 0, scores["chance"], textures))
        return {
            "name": "attention",
            "rows": make_rows(runs),
            "references": make_rows(list(references.values())),
            "differences": compute_differences(runs, compare_with_first(networks)),
            "settings": {
                "metrics": ATTENTION_METRICS,
                "folders": [str(f) for f in self.data],
                "pairs": names,
            },
        }

    def make_pairs(self, model: "ReconstructionModel") -> "dict[str, list[FovPair]]":
        """Make the pairs of all settings at the size of the network."""
        from g_ray.models.inference import PatchFraming
        from g_ray_lab.scoring.analysis.fov_pairs import PairSource

        if not self.data:
            raise ValueError("attention needs images with cameras: give --data FOLDER …, scene folders")
        count = self.pairs or PAIRS[self.scale]
        framing = PatchFraming(model.config.long_side, model.config.patch)
        return {
            f"{folder.name} {where}": PairSource(folder, count, where == CENTER).make_pairs(framing)
            for folder in self.data
            for where in (CENTER, ANYWHERE)
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        from g_ray_lab.tables.trained_table import format_tables

        return format_tables(result)

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures.attention_figure import draw_attention
        from g_ray_lab.scoring.analysis.fov_pairs import choose_examples

        first = {network.method: network for network in reversed(self.find_networks())}
        models = {method: first[method].load() for method in reversed(first)}
        groups = self.make_pairs(next(iter(models.values())))
        rows = [
            make_attention_row(models, pair)
            for setting, group in groups.items()
            if setting.endswith(ANYWHERE)
            for pair in choose_examples(group)
        ]
        write_png(draw_attention(rows, LIGHT), self.out / "attention.png")


def make_attention_row(models: "dict[str, ReconstructionModel]", pair: "FovPair") -> "AttentionRow":
    """Return the maps of all methods and of the first two distinct priors for one pair."""
    from g_ray_lab.figures.attention_figure import AttentionRow
    from g_ray_lab.scoring.analysis.fov_attention import PRIOR, PairAttention

    patch = next(iter(models.values())).config.patch
    coverage = pair.compute_coverage(patch)
    attentions = [(method, PairAttention.from_model(model, pair)) for method, model in models.items()]
    # Rows with one coordinate have one prior.
    coordinates = {
        method: getattr(model.aggregator.across, "coordinate", "none") for method, model in models.items()
    }
    priors = {coordinates[method]: (method, model) for method, model in reversed(models.items())}
    for method, model in reversed(priors.values()):
        attentions.append((f"{method}, {PRIOR}", PairAttention.from_positions(model, pair)))
    maps = tuple(
        (title, attention.compute_map(len(coverage)), attention.score(pair, patch)["inside"])
        for title, attention in attentions
    )
    return AttentionRow(pair.wide.image, pair.narrow.image, pair.box, maps, float(coverage.mean()))
