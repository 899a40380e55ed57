"""`g-ray data objects`, `sheet` and `objects-index`: render meshes, draw them, freeze what is scored."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from g_ray.cli.text import CountBar, follow_outcomes

if TYPE_CHECKING:
    from g_ray_lab.sources.objects.object_index import ContextPairs
    from g_ray_lab.sources.objects.render_objects import ObjectJob, ObjectSettings

REFUSED = "refused.json"


@dataclass(frozen=True)
class Objects:
    """Render objects from eight directions, each natively, with another focal length and from another distance.

    After Ctrl-C the same command resumes: objects that are finished are skipped.
    """

    out: Path
    """Folder of the data set; see docs/objects.md for its layout."""
    meshes: str = "none"
    """Folder of GLB, glTF, OBJ, PLY or npz files, searched with all below it; none makes meshes by itself."""
    count: int | None = None
    """Number of objects; by default all of the folder. A larger one only adds to a smaller one."""
    size: int = 256
    """Width and height of images in pixels."""
    seed: int = 0
    """Of cameras and procedural meshes; every object has cameras of its own."""
    antialias: int | None = None
    """Rays per pixel and axis; by default 2, and 4 below 128 pixels."""
    light: bool = True
    """Shade surfaces by their slope; without, colors are those of the texture."""
    depth: bool = False
    """Write z-depth beside every image, as npz."""
    up: Literal["file", "y", "z"] = "file"
    """Axis that points up in the files; by default y for glTF and OBJ, z for PLY and npz."""
    workers: int | None = None
    """Processes, on a cluster in each job; by default one for each core, on a cluster one."""
    strict: bool = False
    """Exit with an error if any mesh could not be read; otherwise only if none could."""
    cluster: Literal["none", "slurm", "local"] = "none"
    """Render in jobs that submitit starts, with Slurm or as processes of this machine."""
    jobs: int = 8
    """Number of jobs on a cluster."""
    cluster_options: tuple[str, ...] = ()
    """Further options of submitit, such as slurm_partition=cpu timeout_min=240."""

    def run(self) -> None:
        import shutil

        from g_ray.runtime.out_folder import lock_folder
        from g_ray_lab.datasets.objaverse import PARTIAL
        from g_ray_lab.sources.dataset_folder import claim_folder
        from g_ray_lab.sources.objects.render_objects import list_object_jobs

        settings = self.make_settings()
        jobs = list_object_jobs(self.folder, self.count, self.seed)
        with lock_folder(self.out):
            claim_folder(self.out, settings)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)  # what a killed run left behind
            refused = self.render(jobs, settings)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)
            self.report(len(jobs), refused)

    @property
    def folder(self) -> Path | None:
        return None if self.meshes == "none" else Path(self.meshes)

    def make_settings(self) -> "ObjectSettings":
        from g_ray_lab.sources.objects.render_objects import PROCEDURAL, ObjectSettings

        return ObjectSettings(
            meshes=PROCEDURAL if self.folder is None else self.folder.resolve().name,
            seed=self.seed,
            size=self.size,
            antialias=(2 if self.size >= 128 else 4) if self.antialias is None else self.antialias,
            light=self.light,
            depth=self.depth,
            up=None if self.up == "file" else self.up,
        )

    def render(self, jobs: "list[ObjectJob]", settings: "ObjectSettings") -> dict[str, str]:
        """Render all objects with a progress bar; return the reasons for those that failed, by name."""
        from g_ray_lab.sources.objects.render_objects import find_unfinished

        before = len(jobs) - len(find_unfinished(self.out, jobs))
        return follow_outcomes(self.start_rendering(jobs, settings), CountBar(len(jobs), before, "objects"))

    def start_rendering(self, jobs: "list[ObjectJob]", settings: "ObjectSettings") -> Any:
        from g_ray_lab.sources.objects.render_cluster import Cluster, render_on_cluster
        from g_ray_lab.sources.objects.render_objects import render_objects

        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers {self.workers}: give 1 or more")
        if self.cluster == "none":
            return render_objects(self.out, jobs, settings, self.workers or os.cpu_count() or 1)
        where = Cluster(self.cluster, self.jobs, self.workers or 1, parse_options(self.cluster_options))
        return render_on_cluster(self.out, jobs, settings, where)

    def report(self, wanted: int, refused: dict[str, str]) -> None:
        from g_ray.runtime.files import write_json

        (self.out / REFUSED).unlink(missing_ok=True)
        print(f"{wanted - len(refused)} of {wanted} objects are in {self.out}")
        if not refused:
            return
        write_json(self.out / REFUSED, refused)
        message = (
            f"{len(refused)} of {wanted} meshes could not be read; they are listed in {self.out / REFUSED}"
        )
        if self.strict or len(refused) == wanted:
            raise ValueError(message)
        print(message)


def parse_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; whole numbers become numbers."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--cluster-options {pair}: write KEY=VALUE")
        options[key] = int(value) if value.lstrip("-").isdigit() else value
    return options


@dataclass(frozen=True)
class Sheet:
    """Draw rendered objects on one picture, a row for each."""

    root: Path
    """Folder of rendered objects."""
    out: Path
    """PNG file to write."""
    count: int = 8
    """Number of objects."""

    def run(self) -> None:
        from g_ray.runtime.files import atomic_path
        from g_ray.runtime.out_folder import check_out_file
        from g_ray_lab.figures.table_figures import draw_object_sheet

        check_out_file(self.out)
        picture = draw_object_sheet(self.root, self.count)
        with atomic_path(self.out) as scratch:
            picture.save(scratch, format="png")
        print(f"wrote {self.out}")


@dataclass(frozen=True)
class ObjectsIndex:
    """Write the paper's six target protocols for the test objects of a folder, one JSON file each.

    One object in ten is for testing, by the name of its product, or those of a released index. The same folder and seed
    always give the same files; files that are there for other objects are not replaced.
    """

    root: tyro.conf.Positional[Path]
    """Folder of rendered objects."""
    out: Path
    """Folder for the index files."""
    seed: int = 0
    """Of the two views that are given."""
    released: Path | None = None
    """Take objects and given views from an index as released with RayRoPE (objaverse_index_test_context2_all.json)."""
    write_released: bool = False
    """Write the three files in the released format too."""

    def run(self) -> None:
        from g_ray_lab.sources.objects.object_index import PROTOCOLS, read_index, write_indices
        from g_ray_lab.sources.objects.released_index import write_released

        for name, digest in write_indices(self.root, self.out, self._choose_contexts()).items():
            targets = len(PROTOCOLS[name].list_names((0, 1)))
            print(f"{digest[:16]}  {self.out / name}.json  {targets} targets per object")
        if self.write_released:
            indices = {name: read_index(self.out, name, self.root) for name in PROTOCOLS}
            for path in write_released(indices, self.out):
                print(f"{path}, as released")

    def _choose_contexts(self) -> "ContextPairs":
        from g_ray_lab.datasets.objaverse import find_objects
        from g_ray_lab.sources.objects.object_index import draw_contexts
        from g_ray_lab.sources.objects.released_index import read_released_contexts

        if self.released is None:
            return draw_contexts(self.root, self.seed)
        listed, there = read_released_contexts(self.released), set(find_objects(self.root))
        pairs = {uid: pair for uid, pair in listed.items() if uid in there}
        print(f"{len(pairs)} of {len(listed)} objects of {self.released} are in {self.root}")
        if not pairs:
            raise ValueError(f"none of the objects of {self.released} is in {self.root}: render them first")
        return pairs
