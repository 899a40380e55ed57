"""What tables of finished models share: models as rows, evaluation protocols or miniatures of them as columns."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from g_ray_lab.tables.paper_table import Measured, Scale, SharedTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.comparison import Column, Contender, MeanColumn
    from g_ray_lab.scoring.protocol import Protocol
    from g_ray_lab.tables.dry_run import Part

GRAY = "gray"
"""Row of the reconstruction network, with the weights of that name or those that come with g-ray."""
POSES, MATCHES, IMAGES = "poses", "matches", "images"
"""After a + in the name of a row: given the true poses; placed by matches, as by `g-ray reconstruct`; given images
alone. The name of an estimator there: given the calibration that it estimates from the images."""
SMALL_WIDTH = 224
"""Pixels that models are shown; networks resize them to those of their training."""
SMALL_SCENES, SMALL_FRAMES = 4, 8
"""Size of a miniature."""
SMALL_SETS = 1


@dataclass(frozen=True)
class EvaluationTable(SharedTable):
    """Options that all tables of finished models have."""

    NAME: ClassVar[str]
    out: Path
    """Folder for runs, result.json, table.md and pictures; finished runs in it are reused."""
    scale: Scale = "small"
    """small: rooms written in the datasets' formats, minutes on a CPU. paper: the datasets in --data."""
    data: Path | None = None
    """Folder with a folder for each dataset (pandaset, eth3d, scannetpp, …), as `g-ray data prepare` makes them."""
    models: tuple[str, ...] = ("standing", "colmap", "stereo", "network")
    """Rows: models as for `g-ray evaluate`; network is a row for each of the weights that come with g-ray, alone; gray
    is the network with the weights of that name, or g-ray's. After a +: stereo+poses has the true poses,
    network+matches is placed as by `g-ray reconstruct`, mapanything+images sees images alone, as do models that take no
    calibration, and gray+anycalib has calibrations that AnyCalib (vggt, geocalib, …) estimates from the images."""
    weights: tuple[str, ...] = ()
    """Further rows, NAME=FILE: weights of the reconstruction network, e.g. with grid RoPE. Files with one name are
    networks trained alike with other seeds: a row of their means. The first name is compared with all others."""
    limit: int | None = None
    """Sets of each scene and number of views; 1 at small scale, all at paper scale."""
    jobs: int = 1
    """Processes of this machine that share the work."""
    keep_predictions: bool = False
    """Keep predictions too (16 bits, compressed), so that they can be scored again without the models."""

    @abstractmethod
    def build_columns(self) -> "dict[str, Column]":
        """Return the protocols and their data."""

    def list_means(self) -> "dict[str, MeanColumn]":
        """Return the columns of means over others, by name."""
        return {}

    def format_tables(self, result: dict[str, Any]) -> str:
        """Format a table for each column."""
        from g_ray_lab.scoring.table_writer import format_comparison

        return format_comparison(result)

    def draw(self, result: dict[str, Any]) -> None:
        """Write bars for the metrics of all columns."""
        draw_largest_sets(result, self.out)

    def list_parts(self) -> "Iterator[Part]":
        """Yield a set of every model on every protocol."""
        from g_ray_lab.tables.dry_run import list_cell_parts

        return list_cell_parts(self.build_rows(), self.build_columns(), self.out, self.keep_predictions)

    def measure(self) -> Measured | None:
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.scoring.comparison import run_comparison
        from g_ray_lab.scoring.store import Shard
        from g_ray_lab.scoring.table_writer import describe_intervals

        rows, columns, compared = self.build_rows(), self.build_columns(), list(self.group_weights())
        shard = Shard.parse(self.shard)
        options = {"jobs": self.jobs, "shard": shard, "keep": self.keep_predictions}
        options |= {"report": print, "progress": ProgressLine()}
        comparison = run_comparison(
            rows, columns, self.out, compared=compared, means=self.list_means(), **options
        )
        if comparison.is_unfinished:
            return self.report_share(shard)
        result = {"name": self.NAME, **comparison.make_document()}
        notes = [f"- {line}" for line in [*describe_intervals(result), *result["gaps"]]]
        text = "\n\n".join([self.format_tables(result), "\n".join(notes)])
        return Measured(result, text, comparison.format_scores())

    def build_rows(self) -> "dict[str, Contender]":
        """Return the models, in the order in which they are named; ValueError for names that do not exist."""
        from g_ray.predictors import MODELS
        from g_ray.predictors.model_settings import ROOMS_WEIGHTS, WEIGHTS
        from g_ray_lab.scoring.evaluated_models import REFERENCES

        networks = self.group_weights()
        for name in networks:
            if name in (*MODELS, *REFERENCES, WEIGHTS, ROOMS_WEIGHTS):
                raise ValueError(f"--weights {name}=…: there is a row {name}; give another name")
        rows: dict[str, Contender] = {}
        for model in self.models:
            name, _, extra = model.partition("+")
            if model == "network":
                rows |= {one: make_contender("network", (one,), "") for one in (WEIGHTS, ROOMS_WEIGHTS)}
            elif name in ("network", GRAY) or name in networks:
                title = WEIGHTS if name == "network" else name
                files = tuple(networks.get(name, [WEIGHTS]))
                rows[f"{title}+{extra}" if extra else title] = make_contender("network", files, extra)
            else:
                rows[model] = make_contender(name, (None,), extra)
        for name, files in networks.items():
            rows.setdefault(name, make_contender("network", tuple(files), ""))
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


def make_contender(model: str, weights: Sequence[str | None], extra: str) -> "Contender":
    """Return a row: a model with weights, and what its name has after the +; ValueError for what there is not."""
    from g_ray.calibration.estimators import ESTIMATORS
    from g_ray.predictors.model_settings import ModelSettings
    from g_ray.predictors.peers import PEERS
    from g_ray_lab.scoring.comparison import Contender

    known = (POSES, MATCHES, IMAGES, *ESTIMATORS)
    if extra and extra not in known:
        raise ValueError(f"--models {model}+{extra}: give one of {', '.join(known)} after the +")
    if extra == IMAGES and model not in PEERS:
        raise ValueError(f"--models {model}+{extra}: {model} needs a calibration; leave out +{extra}")
    # With true rays a model that takes no calibration would be scored as if it had found them.
    alone = extra == IMAGES or (model in PEERS and not PEERS[model].takes_calibration(extra == POSES))
    place_by = "matches" if extra == MATCHES else None
    settings = tuple(
        ModelSettings(weights=one, place_by=place_by, lenses="predicted" if alone else "given")
        for one in weights
    )
    return Contender(model, settings, extra == POSES, extra if extra in ESTIMATORS else None)


def write_small_dataset(name: str, folder: Path, width: int) -> Path:
    """Write a miniature of a dataset, unless it is there; rooms have textures, which stereo needs."""
    from g_ray.runtime.out_folder import lock_folder
    from g_ray_lab.miniatures import MINIATURES
    from g_ray_lab.miniatures.miniature_room import MiniatureSize

    root, done = folder / name, folder / f"{name}.done"
    with lock_folder(folder, timeout_s=math.inf):  # shares start at the same time
        if not done.is_file():
            MINIATURES[name](root, MiniatureSize(SMALL_SCENES, SMALL_FRAMES, width, fine=True))
            done.touch()
    return root


def draw_largest_sets(result: dict[str, Any], out: Path, prefix: str = "") -> None:
    """Write bars for each metric of the sets with most views."""
    from g_ray_lab.figures import draw_bars, write_metrics
    from g_ray_lab.scoring.table_writer import list_metrics, select_rows

    table = select_rows(result, views=max(row["views"] for row in result["rows"]))
    write_metrics(table, out, draw_bars, list_metrics(table["rows"]), prefix)
