"""A table of the paper as a command: what all of them share, from the result to its files."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from g_ray.runtime.out_folder import claim_out
from g_ray_lab.cluster import ClusterName

if TYPE_CHECKING:
    from g_ray_lab.cluster import Task
    from g_ray_lab.scoring.evaluated_models import TrainedNetwork
    from g_ray_lab.scoring.store import Shard
    from g_ray_lab.tables.dry_run import Part

Scale = Literal["small", "paper"]


class Measured(NamedTuple):
    """A table before it is written."""

    result: dict[str, Any]
    """Content of result.json."""
    text: str
    """The tables in Markdown."""
    scores: str | None = None
    """All scores as CSV, if they are not written yet."""


@dataclass(frozen=True)
class Table(ABC):
    """Options that all tables have."""

    out: Path
    """Folder for result.json, table.md and pictures; finished parts in it are reused."""
    scale: Scale = "small"
    """small: sizes for a CPU. paper: the settings of the paper, for GPUs and real data."""
    dry_run: bool = False
    """Only try everything out: read one scene of each dataset, take one step of each network and score one batch or
    set, and print the time, memory and disk that the whole would need. Nothing is written."""

    @abstractmethod
    def list_parts(self) -> "Iterable[Part]":
        """Return the kinds of work of the table, for a dry run."""

    @abstractmethod
    def measure(self) -> Measured | None:
        """Measure everything that is not measured yet; None if other processes have not finished."""

    @abstractmethod
    def draw(self, result: dict[str, Any]) -> None:
        """Write the pictures of the table."""

    def run(self) -> None:
        if self.dry_run:
            self.try_out()
        else:
            self.make()

    def try_out(self) -> None:
        """Do everything once in a folder that is removed afterwards."""
        from tempfile import TemporaryDirectory

        from g_ray_lab.tables.dry_run import run_dry

        with TemporaryDirectory(prefix="g-ray-") as folder:
            run_dry(replace(self, out=Path(folder)).list_parts(), partial(print, flush=True))

    def make(self) -> None:
        """Measure everything, and write and draw the table."""
        from g_ray.runtime.files import strip_paths
        from g_ray_lab.scoring.table_writer import RESULT, write_table

        claim_out(self.out, "reproduce", ours=is_table_folder(self.out))
        measured = self.measure()
        if measured is None:
            return
        result = {"scale": self.scale, **strip_paths(measured.result)}
        write_table(self.out, result, measured.text, measured.scores)
        self.draw(result)
        print(f"{measured.text}\n\n{self.out / RESULT} and pictures next to it")


@dataclass(frozen=True)
class SharedTable(Table):
    """Options of tables whose work several processes or machines share."""

    shard: str | None = None
    """Share of the scoring, e.g. 2/8, for several processes on any machines; or start all with torchrun. The last one
    writes the table. Tables of trained networks need them to be trained before."""
    cluster: ClusterName = "none"
    """Start jobs that share the work, wait for them and write the table: slurm and local (processes of this machine)
    with submitit, or ray. Tables of trained networks have a job per network, which trains and scores it."""
    cluster_jobs: int = 8
    """Number of jobs on a cluster that score."""
    cluster_options: tuple[str, ...] = ()
    """Options of submitit, such as slurm_partition=gpu gpus_per_node=1, or of Ray's tasks, such as num_gpus=1, and
    address, the address of a Ray cluster."""

    def list_tasks(self) -> "list[Task]":
        """Return what the jobs of a cluster do: each scores a share."""
        count = self.cluster_jobs
        shares = [replace(self, cluster="none", shard=f"{number}/{count}") for number in range(1, count + 1)]
        return [share.run for share in shares]

    def make(self) -> None:
        if self.cluster == "none":
            super().make()
            return
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.cluster import Cluster, parse_options

        options = parse_options(self.cluster_options)
        cluster = Cluster(self.cluster, self.cluster_jobs, options=options, name=f"g-ray-{self.out.name}")
        claim_out(self.out, "reproduce", ours=is_table_folder(self.out))
        cluster.run(self.list_tasks(), self.out, ProgressLine())
        replace(self, cluster="none", shard="1/1").run()

    def report_share(self, shard: "Shard") -> None:
        """Tell the user that the table has to wait for other shares."""
        print(
            f"\nshare {shard.number} of {shard.count} is scored: the last process writes the table",
            flush=True,
        )


def is_table_folder(folder: Path) -> bool:
    """Return whether an earlier run, perhaps of an earlier version, has made a folder."""
    # Scored on a frozen index, which `g-ray data objects-index` may have put there before the first run.
    if any(folder.glob("runs/*/checkpoints")) or (folder / "index" / "novel.json").is_file():
        return True
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(result, dict) and {"name", "scale", "rows", "provenance"} <= set(result)


@dataclass(frozen=True)
class NetworkAnalysis(Table):
    """Options of measurements of trained networks; finished parts are kept in OUT/parts and reused."""

    networks: Path | None = None
    """Folder of a finished study with runs/ROW-seedN (the --out of recon-ablation-dino), or a file of weights; by
    default the weights that come with g-ray."""
    methods: tuple[str, ...] = ()
    """Only these rows; all that are finished if none is given."""
    seeds: int | None = None
    """Number of networks of each row; all that are finished if not given. Intervals are Student's over the networks of
    a row; with a single one they are over pairs or sets."""

    def find_networks(self) -> "list[TrainedNetwork]":
        """Find the networks to measure."""
        from g_ray.predictors.model_settings import WEIGHTS
        from g_ray_lab.scoring.evaluated_models import find_networks

        return find_networks(self.networks or Path(WEIGHTS), self.methods, self.seeds)


def compare_with_first(networks: "list[TrainedNetwork]") -> tuple[tuple[str, str], ...]:
    """Return pairs of the first row and each of the others."""
    rows = list(dict.fromkeys(network.method for network in networks))
    return tuple((rows[0], row) for row in rows[1:])
