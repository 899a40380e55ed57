"""`g-ray data prepare`, `miniature` and `waymo`: bring downloads in, and write rooms in the formats of datasets."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from g_ray.cli.text import CountBar


@dataclass(frozen=True)
class Prepare:
    """Unpack a downloaded evaluation dataset, verify it, and freeze which frames are scored.

    Without --from and --to it prints where to download the dataset and under which license. After an interruption the
    same command resumes. Exit code 1 if a scene cannot be used.
    """

    name: tyro.conf.Positional[str] = "list"
    """Dataset, e.g. eth3d; list names all of them."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder with the downloaded files: archives, or what was unpacked from them."""
    to: Path | None = None
    """Folder for the dataset. Folders that are unpacked already are linked, not copied."""
    check: int = 3
    """Frames per scene whose image and depth are read; 0 reads all. Files and sizes are always checked."""
    freeze: bool = True
    """Freeze the view indices; covisibility of a large dataset takes hours."""

    def run(self) -> int:
        from g_ray_lab.datasets.dataset_registry import DOWNLOADS

        if self.name == "list":
            print("\n".join(f"{name:16} {download.title}" for name, download in DOWNLOADS.items()))
            return 0
        if self.name not in DOWNLOADS:
            raise ValueError(f"unknown dataset {self.name!r}; known are {', '.join(DOWNLOADS)}")
        if self.source is None and self.to is None:
            print(DOWNLOADS[self.name].explain())
            return 0
        if self.check < 0:
            raise ValueError(f"--check {self.check}: give 0 or more")
        if self.source is None or self.to is None:
            raise ValueError(
                "give both --from, the folder of the download, and --to, the folder for the dataset"
            )
        return self._prepare(self.source, self.to)

    def _prepare(self, source: Path, to: Path) -> int:
        from g_ray.runtime.lock import lock_folder
        from g_ray_lab.preparation.prepare import prepare_dataset

        with lock_folder(to):
            report = partial(print, flush=True)
            prepared = prepare_dataset(self.name, source, to, report, freeze=self.freeze, probes=self.check)
        sound = len(prepared.checks) - len(prepared.broken)
        print(
            f"{to}: {sound} of {len(prepared.checks)} scenes are sound, {len(prepared.indices)} protocols are frozen"
        )
        return 1 if prepared.broken else 0


@dataclass(frozen=True)
class Miniature:
    """Write procedural rooms in the format of an evaluation dataset, with exact depth and poses."""

    name: tyro.conf.Positional[str]
    """Dataset, e.g. pandaset or scannetpp-mixed."""
    out: Path
    """Folder of the miniature."""
    scenes: int = 1
    frames: int = 6
    """Per scene and device."""
    width: int = 96
    """Width of images, where the dataset does not fix it."""
    seed: int = 0

    def run(self) -> None:
        from g_ray_lab.datasets.dataset_registry import DATASETS
        from g_ray_lab.miniatures import MINIATURES
        from g_ray_lab.miniatures.miniature_room import MiniatureSize

        if self.name not in DATASETS:
            raise ValueError(f"unknown dataset {self.name!r}; known are {', '.join(DATASETS)}")
        if min(self.scenes, self.frames) < 1 or self.width < 24:
            raise ValueError("--scenes and --frames must be 1 or more, and --width 24 or more")
        if self.out.is_dir() and any(self.out.iterdir()):
            raise ValueError(f"{self.out} is not empty: give another folder")
        size = MiniatureSize(self.scenes, self.frames, self.width, self.seed)
        MINIATURES[self.name](self.out, size)
        known = DATASETS[self.name].list_scenes(self.out)
        print(f"wrote {', '.join(known)} of {DATASETS[self.name].title} to {self.out}")


@dataclass(frozen=True)
class Waymo:
    """Unpack recordings of the Waymo Open Dataset (version 1, TFRecord) to scene folders with depth of its LiDARs.

    Recordings that are unpacked already are kept: after Ctrl-C the same command continues.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files segment-….tfrecord, or folders of them."""
    out: Path
    """Folder for a scene folder per recording."""
    every: int = 1
    """Take every n-th frame; there are ten per second."""

    def run(self) -> int:
        from g_ray.formats.nerfstudio import TRANSFORMS
        from g_ray.runtime.out_folder import claim_out
        from g_ray_lab.datasets.waymo import unpack_waymo

        if self.every < 1:
            raise ValueError(f"--every {self.every}: give 1 or more")
        paths = [path for file in self.files for path in _list_recordings(file)]
        claim_out(self.out, "data waymo")
        bar, broken = CountBar(len(paths), 0, "recordings"), 0
        for number, path in enumerate(paths, 1):
            folder = self.out / path.stem
            try:
                if not (folder / TRANSFORMS).is_file():
                    unpack_waymo(path, folder, self.every)
            except (ValueError, OSError) as error:
                broken += 1
                bar.print_line(f"skipped: {error}")
            bar.advance(number)
        bar.close()
        print(f"{len(paths)} recordings: {len(paths) - broken} unpacked in {self.out}, {broken} skipped")
        return 1 if broken else 0


def _list_recordings(file: Path) -> list[Path]:
    """Return the recordings that a path stands for; ValueError if there are none."""
    files = sorted(file.glob("*.tfrecord")) if file.is_dir() else [file]
    if not files or not all(path.is_file() for path in files):
        raise ValueError(f"{file}: no recording; give segment-….tfrecord files, or a folder of them")
    return files
