"""Tables of the paper that need no training: finished models on the evaluation protocols, or on miniatures of them."""

import gzip
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.trained_table import Scale

if TYPE_CHECKING:
    from g_ray_lab.scoring.protocols.protocol import Protocol
    from g_ray_lab.scoring.running.comparison import Column, Contender

GIVEN = "+poses"
"""End of the name of a row whose model is given the true poses."""
MATCHED = "+matches"
"""End of the name of a row whose network is placed by matches, as by `g-ray reconstruct`, instead of by itself."""
SMALL_WIDTH = 224
"""Pixels that models are shown; networks resize them to those of their training."""
SMALL_SCENES, SMALL_FRAMES = 4, 8
"""Of a miniature."""
SMALL_VIEWS = (2, 4, 8)
SMALL_SETS = 1
HETEROGENEOUS = ("pandaset", "eth3d-fov", "scannetpp-mixed")
HOMOGENEOUS = (
    "tum-pose",
    "sintel-pose",
    "sintel-depth",
    "kitti-depth",
    "7scenes-sparse",
    "7scenes-dense",
    "nrgbd-sparse",
    "nrgbd-dense",
    "dtu",
    "eth3d-points",
)
IN_MILLIMETERS = ("dtu",)
"""Columns whose distances are not in meters."""
SMALL_HOMOGENEOUS = (
    "tum-pose",
    "sintel-pose",
    "sintel-depth",
    "kitti-depth",
    "7scenes-dense",
    "nrgbd-dense",
    "dtu",
)


@dataclass(frozen=True)
class EvaluationTable(ABC):
    """Options that all tables of finished models have."""

    out: Path
    """Folder for runs, result.json, table.md and pictures; finished runs in it are reused."""
    scale: Scale = "small"
    """small: rooms written in the datasets' formats, minutes on a CPU. paper: the datasets in --data."""
    data: Path | None = None
    """Folder with a folder for each dataset (pandaset, eth3d, scannetpp, …), as `g-ray data prepare` makes them."""
    models: tuple[str, ...] = ("standing", "colmap", "stereo", "network")
    """Rows: models as for `g-ray evaluate`; network is a row for each of the weights that come with g-ray, alone;
    network+matches is its default weights as `g-ray reconstruct` uses them; stereo+poses is stereo with the true
    poses."""
    weights: tuple[str, ...] = ()
    """Further rows, NAME=FILE: weights of the reconstruction network, e.g. with grid RoPE. Files with one name are
    networks trained alike with other seeds: a row of their means. The first name is compared with all others."""
    limit: int | None = None
    """Sets of each scene and number of views; 1 at small scale, all at paper scale."""
    jobs: int = 1
    """Processes that share the work."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the table."""

    @abstractmethod
    def build_columns(self) -> "dict[str, Column]":
        """Return the protocols and their data."""

    def format_tables(self, result: dict[str, Any]) -> str:
        """Format a table for each column."""
        from g_ray_lab.scoring.running.comparison_tables import format_comparison
        from g_ray_lab.scoring.running.run_report import TITLES, format_metric

        return format_comparison(result, list(TITLES), TITLES, format_metric)

    def draw(self, result: dict[str, Any]) -> None:
        """Write bars for the metrics of all columns."""
        draw_largest_sets(result, self.out)

    def build_rows(self) -> "dict[str, Contender]":
        """Return the models; ValueError for weights that are no NAME=FILE."""
        from g_ray.predictors.model_settings import ROOMS_WEIGHTS, WEIGHTS, ModelSettings
        from g_ray_lab.scoring.running.comparison import Contender

        rows: dict[str, Contender] = {}
        for model in self.models:
            if model == "network":
                for weights in (WEIGHTS, ROOMS_WEIGHTS):
                    rows[weights] = Contender("network", (ModelSettings(weights=weights),))
            elif model == "network" + MATCHED:
                settings = ModelSettings(weights=WEIGHTS, place_by="matches")
                rows[WEIGHTS + MATCHED] = Contender("network", (settings,))
            else:
                rows[model] = Contender(model.removesuffix(GIVEN), poses=model.endswith(GIVEN))
        for name, files in self.group_weights().items():
            if name in rows:
                raise ValueError(f"--weights {name}={files[0]}: there is a row {name}; give another name")
            rows[name] = Contender("network", tuple(ModelSettings(weights=file) for file in files))
        return rows

    def group_weights(self) -> dict[str, list[str]]:
        """Return the files of each name; ValueError for what is no NAME=FILE or is there twice."""
        groups: dict[str, list[str]] = {}
        for entry in self.weights:
            name, _, file = entry.partition("=")
            if not name or not file or file in groups.get(name, ()):
                raise ValueError(f"--weights {entry}: give NAME=FILE, each file once")
            if not Path(file).is_file():
                raise ValueError(f"--weights {entry}: no such file")
            groups.setdefault(name, []).append(file)
        return groups

    def run(self) -> None:
        from g_ray.cli.text import ProgressLine
        from g_ray.runtime.files import write_atomically, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.provenance import collect_provenance
        from g_ray_lab.scoring.running.comparison import run_comparison
        from g_ray_lab.scoring.running.comparison_tables import describe_intervals
        from g_ray_lab.scoring.study_runs import SCORES

        claim_out(self.out, "reproduce")
        comparison = run_comparison(
            self.build_rows(),
            self.build_columns(),
            self.out,
            compared=list(self.group_weights()),
            jobs=self.jobs,
            report=print,
            progress=ProgressLine(),
        )
        result = {
            "name": self.name,
            "scale": self.scale,
            **comparison.make_document(),
            "provenance": collect_provenance(),
        }
        notes = [f"- {line}" for line in [*describe_intervals(result), *result["gaps"]]]
        text = "\n\n".join([self.format_tables(result), "\n".join(notes)])
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", text + "\n")
        write_atomically(self.out / SCORES, gzip.compress(comparison.format_scores().encode(), mtime=0))
        self.draw(result)
        print(f"{text}\n\n{self.out / 'result.json'}, {SCORES} and pictures beside it")

    def get_limit(self) -> int | None:
        """Return the sets of each scene and number of views."""
        return SMALL_SETS if self.limit is None and self.scale == "small" else self.limit

    def get_width(self) -> int | None:
        """Return the width of images, or None for that of the protocol."""
        return SMALL_WIDTH if self.scale == "small" else None

    def find_data(self, protocol: "Protocol") -> Path:
        """Return the folder of a protocol's dataset; at small scale a miniature is written into OUT/data first."""
        from g_ray_lab.datasets.dataset_registry import DATASETS

        if self.scale == "paper":
            if self.data is None:
                raise ValueError("--scale paper needs --data FOLDER with a folder for each dataset")
            return self.data / DATASETS[protocol.dataset].download
        if self.data is not None:
            raise ValueError("--data belongs to --scale paper; --scale small writes rooms of its own")
        # Zooming into an image needs more pixels than are shown.
        width = (2 if protocol.zoom_max > 1 else 1) * SMALL_WIDTH
        return write_small_dataset(protocol.dataset, self.out / "data", width)


def write_small_dataset(name: str, folder: Path, width: int) -> Path:
    """Write a miniature of a dataset, unless it is there; rooms have textures, which stereo needs."""
    from g_ray_lab.miniatures import MINIATURES
    from g_ray_lab.miniatures.miniature_room import MiniatureSize

    root, done = folder / name, folder / f"{name}.done"
    if not done.is_file():
        MINIATURES[name](root, MiniatureSize(SMALL_SCENES, SMALL_FRAMES, width, fine=True))
        done.touch()
    return root


def draw_largest_sets(result: dict[str, Any], out: Path, prefix: str = "") -> None:
    """Write bars for each metric of the sets with most views."""
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_bars
    from g_ray_lab.scoring.running.comparison_tables import select_rows

    table = select_rows(result, views=max(row["views"] for row in result["rows"]))
    for metric in list_metrics(table):
        write_png(draw_bars(table, metric, LIGHT), out / f"{prefix}{metric}.png")


def list_metrics(result: dict[str, Any]) -> list[str]:
    """List the metrics of any row, in the order of tables."""
    from g_ray_lab.scoring.running.run_report import TITLES

    return [name for name in TITLES if any(name in row["metrics"] for row in result["rows"])]


@dataclass(frozen=True)
class Heterogeneous(EvaluationTable):
    """The main table and the curves over 2 to 50 views: PandaSet, ETH3D with zooms, ScanNet++ with two devices."""

    @property
    def name(self) -> str:
        return "recon-heterogeneous"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.protocols.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.running.comparison import Column
        from g_ray_lab.scoring.running.plan import Limits

        small = self.scale == "small"
        limits = Limits(views=SMALL_VIEWS if small else (), sets=self.get_limit(), width=self.get_width())
        return {
            name: Column(name, PROTOCOLS[name], self.find_data(PROTOCOLS[name]), limits)
            for name in HETEROGENEOUS
        }

    def draw(self, result: dict[str, Any]) -> None:
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures.table_figures import draw_curves
        from g_ray_lab.scoring.running.comparison_tables import select_rows

        super().draw(result)
        for name in dict.fromkeys(row["setting"] for row in result["rows"]):
            table = select_rows(result, setting=name)
            for metric in list_metrics(table):
                write_png(draw_curves(table, metric, LIGHT, "views"), self.out / f"{name}_{metric}.png")


@dataclass(frozen=True)
class Homogeneous(EvaluationTable):
    """Poses on TUM RGB-D and Sintel, video depth on Sintel and KITTI, points on 7-Scenes, NRGBD, DTU and ETH3D."""

    @property
    def name(self) -> str:
        return "recon-homogeneous"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray_lab.scoring.protocols.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.running.comparison import Column
        from g_ray_lab.scoring.running.plan import Limits

        small = self.scale == "small"
        names = SMALL_HOMOGENEOUS if small else HOMOGENEOUS
        return {
            name: Column(
                name,
                _use_short_recordings(PROTOCOLS[name]) if small else PROTOCOLS[name],
                self.find_data(PROTOCOLS[name]),
                Limits(sets=self.limit, width=self.choose_width(PROTOCOLS[name])),
            )
            for name in names
        }

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
    from g_ray_lab.scoring.protocols.sampling import Strided

    return replace(protocol, sampling=Strided(2 if protocol.alignment == "umeyama+icp" else 1))


@dataclass(frozen=True)
class RealSmall(EvaluationTable):
    """Real photographs: frames of the red kitchen, Sceaux castle, nine rectified pairs."""

    data: Path | None = None
    """Folder of the photographs, as `g-ray data prepare real-small` describes it; by default shared/data beside the
    checkout."""
    models: tuple[str, ...] = ("standing", "colmap", "stereo", "stereo+poses", "network", "network+matches")

    @property
    def name(self) -> str:
        return "real-small"

    def build_columns(self) -> "dict[str, Column]":
        from g_ray.runtime.files import find_shared_data
        from g_ray_lab.datasets.real_small import KITCHEN, PAIRS, SCEAUX
        from g_ray_lab.scoring.protocols.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.running.comparison import Column
        from g_ray_lab.scoring.running.plan import Limits

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
