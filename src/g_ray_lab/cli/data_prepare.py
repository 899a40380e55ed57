"""`g-ray data prepare` and `g-ray data miniature`: datasets for evaluation, real ones and rooms in their formats."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Prepare:
    """Unpack a downloaded evaluation dataset, verify it, and freeze which frames are scored.

    Without --from and --to it says where to download the dataset and under which license. After an interruption the
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
        from g_ray_lab.preparation.downloads import DOWNLOADS, explain

        if self.name == "list":
            print("\n".join(f"{name:16} {download.title}" for name, download in DOWNLOADS.items()))
            return 0
        if self.name not in DOWNLOADS:
            raise ValueError(f"unknown dataset {self.name!r}; known are {', '.join(DOWNLOADS)}")
        if self.source is None and self.to is None:
            print(explain(self.name))
            return 0
        if self.check < 0:
            raise ValueError(f"--check {self.check}: give 0 or more")
        if self.source is None or self.to is None:
            raise ValueError(
                "give both --from, the folder of the download, and --to, the folder for the dataset"
            )
        return self._prepare(self.source, self.to)

    def _prepare(self, source: Path, to: Path) -> int:
        from g_ray.runtime.out_folder import lock_folder
        from g_ray_lab.preparation.prepare import prepare_dataset

        with lock_folder(to):
            prepared = prepare_dataset(
                self.name, source, to, _print_line, freeze=self.freeze, probes=self.check
            )
        sound = len(prepared.checks) - len(prepared.broken)
        print(
            f"{to}: {sound} of {len(prepared.checks)} scenes are sound, {len(prepared.indices)} protocols are frozen"
        )
        return 1 if prepared.broken else 0


def _print_line(text: str) -> None:
    print(text, flush=True)


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
    """Of images, where the dataset does not fix it."""
    seed: int = 0

    def run(self) -> None:
        from g_ray_lab.datasets.dataset_registry import DATASETS
        from g_ray_lab.miniatures.miniature_room import MiniatureSize

        if self.name not in DATASETS:
            raise ValueError(f"unknown dataset {self.name!r}; known are {', '.join(DATASETS)}")
        if min(self.scenes, self.frames) < 1 or self.width < 24:
            raise ValueError("--scenes and --frames must be 1 or more, and --width 24 or more")
        if self.out.is_dir() and any(self.out.iterdir()):
            raise ValueError(f"{self.out} is not empty: give another folder")
        size = MiniatureSize(self.scenes, self.frames, self.width, self.seed)
        DATASETS[self.name].write_miniature(self.out, size)
        known = DATASETS[self.name].list_scenes(self.out)
        print(f"wrote {', '.join(known)} of {DATASETS[self.name].title} to {self.out}")
