"""`g-ray data objects`, `levels`, `textured-rooms`, `sheet`, `objects-index`: render data sets, and index objects."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from g_ray.runtime.progress import CountBar, follow_outcomes
from g_ray_lab.cluster import ClusterName

if TYPE_CHECKING:
    from g_ray_lab.sources.object_index import ContextPairs
    from g_ray_lab.sources.render_objects import ObjectJob, ObjectSettings
    from g_ray_lab.textured import AssetFolders, WalkJob

REFUSED = "refused.json"


@contextmanager
def _claim_dataset(out: Path, settings: Any, partial: str) -> Iterator[None]:
    """Lock a folder that is made with these settings, and remove its folder of partial results before and after."""
    from g_ray.runtime.out_folder import lock_folder
    from g_ray_lab.sources.render_objects import claim_folder

    with lock_folder(out):
        claim_folder(out, settings)
        shutil.rmtree(out / partial, ignore_errors=True)  # what a killed run left behind
        yield
        shutil.rmtree(out / partial, ignore_errors=True)


def count_workers(workers: int | None, default: int | None = None) -> int:
    """Return the number of processes, by default one for each core; ValueError for one below 1."""
    if workers is not None and workers < 1:
        raise ValueError(f"--workers {workers}: give 1 or more")
    return workers or default or os.cpu_count() or 1


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
    """Seed of cameras and procedural meshes; every object has cameras of its own."""
    antialias: int | None = None
    """Rays per pixel and axis; by default 2, and 4 below 128 pixels."""
    light: bool = True
    """Shade surfaces by their slope; without, colors are those of the texture."""
    depth: bool = False
    """Write z-depth next to every image, as npz."""
    up: Literal["file", "y", "z"] = "file"
    """Axis that points up in the files; by default y for glTF and OBJ, z for PLY and npz."""
    workers: int | None = None
    """Processes, on a cluster in each job; by default one for each core, on a cluster one."""
    strict: bool = False
    """Exit with an error if any mesh could not be read; otherwise only if none could."""
    cluster: ClusterName = "none"
    """Render in jobs: of Slurm or as processes of this machine (submitit), or on Ray."""
    jobs: int = 8
    """Number of jobs on a cluster."""
    cluster_options: tuple[str, ...] = ()
    """Further options of submitit, such as slurm_partition=cpu timeout_min=240, or of Ray's tasks."""

    @property
    def folder(self) -> Path | None:
        return None if self.meshes == "none" else Path(self.meshes)

    def run(self) -> None:
        from g_ray_lab.datasets.objaverse import PARTIAL
        from g_ray_lab.sources.render_objects import (
            PROCEDURAL,
            ObjectSettings,
            find_unfinished,
            list_object_jobs,
        )

        settings = ObjectSettings(
            meshes=PROCEDURAL if self.folder is None else self.folder.resolve().name,
            seed=self.seed,
            size=self.size,
            antialias=(2 if self.size >= 128 else 4) if self.antialias is None else self.antialias,
            light=self.light,
            depth=self.depth,
            up=None if self.up == "file" else self.up,
        )
        jobs = list_object_jobs(self.folder, self.count, self.seed)
        with _claim_dataset(self.out, settings, PARTIAL):
            before = len(jobs) - len(find_unfinished(self.out, jobs))
            outcomes = self._start_rendering(jobs, settings)
            self._report(len(jobs), follow_outcomes(outcomes, CountBar(len(jobs), before, "objects")))

    def _start_rendering(self, jobs: "list[ObjectJob]", settings: "ObjectSettings") -> Any:
        from g_ray_lab.cluster import Cluster, parse_options
        from g_ray_lab.sources.render_objects import render_objects, render_on_cluster

        if self.cluster == "none":
            return render_objects(self.out, jobs, settings, count_workers(self.workers))
        workers = count_workers(self.workers, default=1)
        options = parse_options(self.cluster_options)
        where = Cluster(self.cluster, self.jobs, workers, options, name="g-ray-objects")
        return render_on_cluster(self.out, jobs, settings, where)

    def _report(self, wanted: int, refused: dict[str, str]) -> None:
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
        from g_ray_lab.result_pictures import draw_object_sheet

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
    """Seed of the two views that are given."""
    released: Path | None = None
    """Take objects and given views from an index as released with RayRoPE (objaverse_index_test_context2_all.json)."""
    write_released: bool = False
    """Write the three files in the released format too."""

    def run(self) -> None:
        from g_ray_lab.sources.object_index import PROTOCOLS, read_index, write_indices, write_released

        for name, digest in write_indices(self.root, self.out, self._choose_contexts()).items():
            targets = len(PROTOCOLS[name].list_names((0, 1)))
            print(f"{digest[:16]}  {self.out / name}.json  {targets} targets per object")
        if self.write_released:
            indices = {name: read_index(self.out, name, self.root) for name in PROTOCOLS}
            for path in write_released(indices, self.out):
                print(f"{path}, as released")

    def _choose_contexts(self) -> "ContextPairs":
        from g_ray_lab.datasets.objaverse import find_objects
        from g_ray_lab.sources.object_index import draw_contexts, read_released_contexts

        if self.released is None:
            return draw_contexts(self.root, self.seed)
        listed, there = read_released_contexts(self.released), set(find_objects(self.root))
        pairs = {uid: pair for uid, pair in listed.items() if uid in there}
        print(f"{len(pairs)} of {len(listed)} objects of {self.released} are in {self.root}")
        if not pairs:
            raise ValueError(f"none of the objects of {self.released} is in {self.root}: render them first")
        return pairs


# Walks through textured scenes


@dataclass(frozen=True)
class TexturedWalks(ABC):
    """What all sources of textured scenes have in common: number of walks, lenses and sizes."""

    out: Path
    """Folder of the data set: a scene folder in nerfstudio's layout for each walk."""
    scenes: int = 100
    """Number of walks; a larger one only adds to a smaller one."""
    views: int = 12
    """Views of each walk."""
    lenses: Literal["pinhole", "zoom", "fisheye", "mixed"] = "pinhole"
    """Pinholes of 30° to 110°, pinholes that differ strongly within a walk, fisheyes of 100° to 200°, or all of them
    and a few panoramas."""
    split: Literal["train", "test"] = "train"
    """Scenes to train on, or those that are held out."""
    sizes: tuple[str, ...] = ("168x168", "168x126", "126x168")
    """Width and height of images in pixels; each walk has one of them."""
    faults: bool = True
    """Noise, blur and small differences in exposure and white balance, as photographs have."""
    seed: int = 0
    """Seed of walks and lenses."""
    workers: int | None = None
    """Processes; by default one for each core."""

    @abstractmethod
    def describe_source(self) -> str:
        """Name the source for dataset.json."""

    @abstractmethod
    def list_jobs(self) -> "list[WalkJob]":
        """List the walks through scenes of the split."""

    def run(self) -> None:
        from g_ray_lab.textured import PARTIAL, WalkSettings, find_unfinished_walks, write_walks

        settings = WalkSettings(
            source=self.describe_source(),
            split=self.split,
            lenses=self.lenses,
            views=self.views,
            sizes=tuple(parse_size(size) for size in self.sizes),
            faults=self.faults,
            seed=self.seed,
        )
        workers, jobs = count_workers(self.workers), self.list_jobs()
        with _claim_dataset(self.out, settings, PARTIAL):
            bar = CountBar(len(jobs), len(jobs) - len(find_unfinished_walks(self.out, jobs)), "scenes")
            refused = len(follow_outcomes(write_walks(self.out, jobs, settings, workers), bar))
        print(f"{len(jobs) - refused} of {len(jobs)} scenes are in {self.out}")
        if refused == len(jobs):
            raise ValueError(f"{self.out}: no scene could be rendered, see above")


@dataclass(frozen=True)
class Levels(TexturedWalks):
    """Render walks through the levels of an installed game (Quake-3 BSP in .pk3 archives) with exact depth.

    After Ctrl-C the same command resumes: scenes that are finished are skipped.
    """

    package: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder of .pk3 archives; by default that of Debian's openarena."""

    @property
    def folder(self) -> Path:
        from g_ray_lab.textured import OPENARENA

        return OPENARENA if self.package is None else self.package

    def describe_source(self) -> str:
        return f"levels of {self.folder.resolve().name}"

    def list_jobs(self) -> "list[WalkJob]":
        from g_ray_lab.textured import list_levels, list_walks

        return list_walks(list_levels(self.folder, self.split), self.scenes)


@dataclass(frozen=True)
class TexturedRooms(TexturedWalks):
    """Render walks through furnished rooms with exact depth; every walk has a room of its own.

    Furniture, objects and images are read from where they are installed. What is missing is replaced: furniture by
    boxes, images by procedural materials. After Ctrl-C the same command resumes: scenes that are finished are skipped.
    """

    furniture: str = "installed"
    """Folder of Sweet Home 3D libraries (*.sh3f), or none; by default that of Debian's sweethome3d-furniture."""
    objects: str = "none"
    """Folder of meshes of small objects in meters (GLB, glTF, OBJ, PLY or npz) that stand around."""
    images: str = "installed"
    """Folder of game archives (*.pk3) with images of walls and floors, or none; by default Debian's openarena."""

    @property
    def folders(self) -> "AssetFolders":
        from g_ray_lab.textured import AssetFolders

        chosen = {"furniture": self.furniture, "objects": self.objects, "images": self.images}
        given = {name: Path(value) for name, value in chosen.items() if value not in ("none", "installed")}
        for name, folder in given.items():
            if not folder.is_dir():
                raise ValueError(f"--{name} {folder}: no such folder; write none to do without")
        left_out = {name: None for name, value in chosen.items() if value == "none"}
        return AssetFolders(**given, **left_out)

    def describe_source(self) -> str:
        from g_ray_lab.textured import open_assets

        assets = open_assets(self.folders, self.split)
        for line in assets.missing:
            print(line)
        return (
            f"rooms with {len(assets.furniture)} pieces of furniture, {len(assets.objects)} objects and "
            f"{len(assets.images)} images"
        )

    def list_jobs(self) -> "list[WalkJob]":
        from g_ray_lab.textured import RoomSource, WalkJob

        if self.scenes < 1:
            raise ValueError(f"--scenes {self.scenes}: give 1 or more")
        return [
            WalkJob(number, RoomSource(number, self.seed, self.split, self.folders))
            for number in range(self.scenes)
        ]


def parse_size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT."""
    width, cross, height = text.lower().replace("×", "x").partition("x")
    if not cross or not width.isdigit() or not height.isdigit():
        raise ValueError(f"--sizes {text}: write WIDTHxHEIGHT in pixels, as 168x126")
    return int(width), int(height)
