"""`g-ray data levels`: walks through textured scenes, rendered with exact depth, as scene folders."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from g_ray.cli.text import CountBar

if TYPE_CHECKING:
    from g_ray.data.textured.writer import SceneSource, WalkSettings


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
    def list_sources(self) -> "Sequence[SceneSource]":
        """List the scenes of the split."""

    def run(self) -> None:
        from g_ray.data.dataset_folder import claim_folder
        from g_ray.data.textured.writer import PARTIAL, list_walks
        from g_ray.runtime.lock import lock_folder

        settings = self.make_settings()
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers {self.workers}: give 1 or more")
        jobs = list_walks(self.list_sources(), self.scenes)
        with lock_folder(self.out):
            claim_folder(self.out, settings)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)  # what a killed run left behind
            bar = CountBar(len(jobs), 0, "scenes")
            refused = self._write(jobs, settings, bar)
            shutil.rmtree(self.out / PARTIAL, ignore_errors=True)
        print(f"{len(jobs) - refused} of {len(jobs)} scenes are in {self.out}")
        if refused == len(jobs):
            raise ValueError(f"{self.out}: no scene could be rendered, see above")

    def make_settings(self) -> "WalkSettings":
        from g_ray.data.textured.writer import WalkSettings

        return WalkSettings(
            source=self.describe_source(),
            split=self.split,
            lenses=self.lenses,
            views=self.views,
            sizes=tuple(parse_size(size) for size in self.sizes),
            faults=self.faults,
            seed=self.seed,
        )

    def _write(self, jobs: list, settings: "WalkSettings", bar: CountBar) -> int:
        """Write all walks with a progress bar; return how many could not be made."""
        from g_ray.data.textured.writer import find_unfinished_walks, write_walks

        before, refused = len(jobs) - len(find_unfinished_walks(self.out, jobs)), 0
        bar.step = before
        with closing(write_walks(self.out, jobs, settings, self.workers or os.cpu_count() or 1)) as outcomes:
            try:
                for done, outcome in enumerate(outcomes, start=before + 1):
                    if outcome.refused:
                        refused += 1
                        bar.print_line(f"skipped {outcome.refused}")
                    bar.advance(done)
            except KeyboardInterrupt:
                bar.print_line("stopping after the scenes under way; the same command resumes from there")
                raise
            finally:
                bar.close()
        return refused


@dataclass(frozen=True)
class Levels(TexturedWalks):
    """Render walks through the levels of an installed game (Quake-3 BSP in .pk3 archives) with exact depth.

    After Ctrl-C the same command resumes: scenes that are finished are skipped.
    """

    package: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder of .pk3 archives; by default that of Debian's openarena."""

    @property
    def folder(self) -> Path:
        from g_ray.data.textured.levels import OPENARENA

        return OPENARENA if self.package is None else self.package

    def describe_source(self) -> str:
        return f"levels of {self.folder.resolve().name}"

    def list_sources(self) -> "Sequence[SceneSource]":
        from g_ray.data.textured.levels import list_levels

        return list_levels(self.folder, self.split)


def parse_size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT."""
    width, cross, height = text.lower().replace("×", "x").partition("x")
    if not cross or not width.isdigit() or not height.isdigit():
        raise ValueError(f"--sizes {text}: write WIDTHxHEIGHT in pixels, as 168x126")
    return int(width), int(height)
