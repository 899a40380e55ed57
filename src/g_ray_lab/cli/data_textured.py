"""`g-ray data levels` and `g-ray data textured-rooms`: walks with exact depth, as scene folders."""

import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from g_ray.cli.text import CountBar, follow_outcomes

if TYPE_CHECKING:
    from g_ray_lab.textured.assets import AssetFolders
    from g_ray_lab.textured.walk_writer import WalkJob, WalkSettings


@dataclass(frozen=True)
class TexturedWalks(ABC):
    """What all sources of textured scenes have in common: how many walks, through which lenses, in which sizes."""

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
    """Of walks and lenses."""
    workers: int | None = None
    """Processes; by default one for each core."""

    @abstractmethod
    def describe_source(self) -> str:
        """Name the source for dataset.json."""

    @abstractmethod
    def list_jobs(self) -> "list[WalkJob]":
        """List the walks through scenes of the split."""

    def run(self) -> None:
        from g_ray.runtime.out_folder import lock_folder
        from g_ray_lab.sources.dataset_folder import claim_folder
        from g_ray_lab.textured.walk_writer import PARTIAL

        settings = self.make_settings()
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers {self.workers}: give 1 or more")
        jobs = self.list_jobs()
        with lock_folder(self.out):
            claim_folder(self.out, settings)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)  # what a killed run left behind
            refused = self._write(jobs, settings)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)
        print(f"{len(jobs) - refused} of {len(jobs)} scenes are in {self.out}")
        if refused == len(jobs):
            raise ValueError(f"{self.out}: no scene could be rendered, see above")

    def make_settings(self) -> "WalkSettings":
        from g_ray_lab.textured.walk_writer import WalkSettings

        return WalkSettings(
            source=self.describe_source(),
            split=self.split,
            lenses=self.lenses,
            views=self.views,
            sizes=tuple(parse_size(size) for size in self.sizes),
            faults=self.faults,
            seed=self.seed,
        )

    def _write(self, jobs: "list[WalkJob]", settings: "WalkSettings") -> int:
        """Write all walks with a progress bar; return how many could not be made."""
        from g_ray_lab.textured.walk_writer import find_unfinished_walks, write_walks

        bar = CountBar(len(jobs), len(jobs) - len(find_unfinished_walks(self.out, jobs)), "scenes")
        walks = write_walks(self.out, jobs, settings, self.workers or os.cpu_count() or 1)
        return len(follow_outcomes(walks, bar))


@dataclass(frozen=True)
class Levels(TexturedWalks):
    """Render walks through the levels of an installed game (Quake-3 BSP in .pk3 archives) with exact depth.

    After Ctrl-C the same command resumes: scenes that are finished are skipped.
    """

    package: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder of .pk3 archives; by default that of Debian's openarena."""

    @property
    def folder(self) -> Path:
        from g_ray_lab.textured.levels import OPENARENA

        return OPENARENA if self.package is None else self.package

    def describe_source(self) -> str:
        return f"levels of {self.folder.resolve().name}"

    def list_jobs(self) -> "list[WalkJob]":
        from g_ray_lab.textured.levels import list_levels
        from g_ray_lab.textured.walk_writer import list_walks

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
        from g_ray_lab.textured.assets import AssetFolders

        chosen = {"furniture": self.furniture, "objects": self.objects, "images": self.images}
        given = {name: Path(value) for name, value in chosen.items() if value not in ("none", "installed")}
        for name, folder in given.items():
            if not folder.is_dir():
                raise ValueError(f"--{name} {folder}: no such folder; write none to do without")
        left_out = {name: None for name, value in chosen.items() if value == "none"}
        return AssetFolders(**given, **left_out)

    def describe_source(self) -> str:
        from g_ray_lab.textured.assets import open_assets

        assets = open_assets(self.folders, self.split)
        for line in assets.missing:
            print(line)
        return (
            f"rooms with {len(assets.furniture)} pieces of furniture, {len(assets.objects)} objects and "
            f"{len(assets.images)} images"
        )

    def list_jobs(self) -> "list[WalkJob]":
        from g_ray_lab.textured.room_source import RoomSource
        from g_ray_lab.textured.walk_writer import WalkJob

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
