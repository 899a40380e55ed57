"""`g-ray data covisibility`: compute once which views of scene folders see the same, and store it beside them."""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro

from g_ray.cli.text import CountBar


class Job(NamedTuple):
    """One scene, and how its depth is read."""

    folder: Path
    convention: Literal["z", "ray"] | None
    unit: float | None
    modality: str | None


@dataclass(frozen=True)
class Covisibility:
    """Compute which views of scenes overlap, and store it beside each scene, so that training only reads it.

    What is stored already is kept: after new views, other depth or Ctrl-C the same command computes what is missing.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Scene folders with depth, or folders of them."""
    depth_convention: Literal["z", "ray"] | None = None
    """What depth files hold, instead of what their format says; as in training."""
    depth_unit: float | None = None
    """Length per stored number, instead of what the format says: 0.001 for millimeters."""
    depth_modality: str | None = None
    """Of WAI folders: which depth, e.g. pred_depth/mvsanywhere."""
    workers: int | None = None
    """Processes; by default one for each core."""

    def run(self) -> int:
        from g_ray.formats import find_scenes
        from g_ray.runtime.parallel import run_in_processes

        if not self.folders:
            raise ValueError("no scenes: give one or more folders, each a scene or a folder of scenes")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers {self.workers}: give 1 or more")
        reading = (self.depth_convention, self.depth_unit, self.depth_modality)
        jobs = [Job(scene, *reading) for folder in self.folders for scene in find_scenes(folder)]
        workers = self.workers or os.cpu_count() or 1
        bar, broken, computed = CountBar(len(jobs), 0, "scenes"), 0, 0
        outcomes: Any = run_in_processes(store, jobs, min(workers, len(jobs)), lambda job: job.folder.name)
        with closing(outcomes) as done:
            for number, outcome in enumerate(done, 1):
                computed += outcome is True
                if isinstance(outcome, str):
                    broken += 1
                    bar.print_line(f"skipped: {outcome}")
                bar.advance(number)
        bar.close()
        print(
            f"{len(jobs)} scenes: {computed} computed, {len(jobs) - computed - broken} there, {broken} skipped"
        )
        return 1 if broken else 0


def store(job: Job) -> bool | str:
    """Store the covisibility of a scene; return whether it was computed, or why it cannot be."""
    from g_ray.formats import read_scene
    from g_ray_lab.sources.covisibility import store_covisibility
    from g_ray_lab.sources.scenes_reconstruction import DepthReading

    reading = DepthReading(job.convention, job.unit, job.modality)
    try:
        return store_covisibility(reading.apply_to(read_scene(job.folder, False, reading.modality)))
    except (ValueError, OSError) as error:
        return str(error)
