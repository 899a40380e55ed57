"""`g-ray data`: prepare downloads, check data (`check`, `re10k-check`), find which views overlap (`covisibility`)."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from g_ray.runtime.progress import CountBar, ProgressLine
from g_ray_lab.cli.data_rendering import Levels, Objects, ObjectsIndex, Sheet, TexturedRooms, count_workers

if TYPE_CHECKING:
    from g_ray_lab.datasets.re10k import Clips
    from g_ray_lab.sources.scene_check import SceneReport
    from g_ray_lab.sources.scene_store import DepthReading

# Bring downloads in, and write rooms in the formats of datasets


@dataclass(frozen=True)
class Prepare:
    """Unpack a downloaded evaluation dataset, verify it, and freeze which frames are scored.

    Without --from and --to it prints where to download the dataset and under which license. After an interruption the
    same command resumes. Exit code 1 if a scene cannot be used, or a protocol's published list of frames is missing.
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
        from g_ray.runtime.out_folder import lock_folder
        from g_ray_lab.preparation import prepare_dataset

        with lock_folder(to):
            report = partial(print, flush=True)
            prepared = prepare_dataset(self.name, source, to, report, freeze=self.freeze, probes=self.check)
        sound = len(prepared.checks) - len(prepared.broken)
        print(
            f"{to}: {sound} of {len(prepared.checks)} scenes are sound, {len(prepared.indices)} protocols are frozen"
            + (f"; not or not whole: {', '.join(prepared.unfrozen)}" if prepared.unfrozen else "")
        )
        return 1 if prepared.broken or prepared.unfrozen else 0


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


# Check data, and find which views overlap

SELDOM = 50
"""Scenes between two lines of progress without a terminal."""


@dataclass(frozen=True)
class Check:
    """Read scene folders (WAI, nerfstudio, COLMAP, 7-Scenes) and report what is wrong. Exit code 1 on errors."""

    root: tyro.conf.Positional[Path]
    """A scene folder, or a folder of scene folders."""
    frames: int = 24
    """Views per scene whose files are read, and pairs that are compared; 0 reads all files."""
    scenes: int = 0
    """Largest number of scenes, spread over the data set; 0 is all."""
    depth_convention: Literal["z", "ray"] | None = None
    """What depth files hold, where it differs from their format."""
    depth_unit: float | None = None
    """Length per stored number, where it differs from the format: 0.001 for millimeters."""
    depth_modality: str | None = None
    """Which depth of WAI folders, e.g. pred_depth/mvsanywhere."""
    masks: Path | None = None
    """Folder of masks inside every scene folder, named as its photographs; else those that transforms.json names."""
    json: Path | None = None
    """Write the findings to this file too."""

    def run(self) -> int:
        from g_ray.formats import find_scenes
        from g_ray.runtime.files import write_json
        from g_ray_lab.sources.scene_check import pick_evenly

        if self.frames < 0 or self.scenes < 0 or (self.depth_unit is not None and self.depth_unit <= 0):
            raise ValueError("--frames and --scenes must be 0 or more, and --depth-unit positive")
        folders = find_scenes(self.root)
        chosen = [folders[index] for index in pick_evenly(range(len(folders)), self.scenes)]
        reports = []
        for report in self._check_scenes(chosen):
            reports.append(report)
            for finding in report.findings:
                print(f"{finding.level}: {finding.file}: {finding.text}", flush=True)
        levels = [finding.level for report in reports for finding in report.findings]
        counts = {level: levels.count(level) for level in ("error", "warning")}
        views = sum(report.views for report in reports)
        print(
            f"{self.root}: {_format_count(len(reports), 'scene')} of {len(folders)}, {_format_count(views, 'view')}: "
            f"{_format_count(counts['error'], 'error')}, {_format_count(counts['warning'], 'warning')}"
        )
        if self.json is not None:
            head = {"root": str(self.root), "errors": counts["error"], "warnings": counts["warning"]}
            write_json(self.json, {**head, "scenes": [_to_document(report) for report in reports]})
        return 1 if counts["error"] else 0

    def _check_scenes(self, folders: Sequence[Path]) -> "Iterator[SceneReport]":
        from g_ray.formats.masks import add_masks
        from g_ray.formats.posed_scene import PosedScene
        from g_ray_lab.sources.scene_check import check_scene
        from g_ray_lab.sources.scene_store import DepthReading

        reading = DepthReading(self.depth_convention, self.depth_unit, self.depth_modality)

        def adapt(scene: PosedScene) -> PosedScene:
            return reading.apply_to(scene if self.masks is None else add_masks(scene, self.masks))

        line, terminal = ProgressLine(on_stderr=True), sys.stderr.isatty()
        for number, folder in enumerate(folders):
            if len(folders) > 1 and (terminal or (number and number % SELDOM == 0)):
                line(f"scene {number + 1} of {len(folders)}: {folder.name}")
            report = check_scene(folder, self.frames, adapt, reading.modality)
            if terminal and len(folders) > 1:
                line("")
            yield report


def _to_document(report: "SceneReport") -> dict[str, Any]:
    findings = [
        {"level": finding.level, "file": str(finding.file), "text": finding.text}
        for finding in report.findings
    ]
    return {"folder": str(report.folder), "kind": report.kind, "views": report.views, "findings": findings}


def _format_count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True)
class Covisibility:
    """Compute which views of scenes overlap, and store it next to each scene, so that training only reads it.

    What is stored already is kept: after new views, other depth or Ctrl-C the same command computes what is missing.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Scene folders with depth, or folders of them."""
    depth_convention: Literal["z", "ray"] | None = None
    """What depth files hold, where it differs from their format; as in training."""
    depth_unit: float | None = None
    """Length per stored number, where it differs from the format: 0.001 for millimeters."""
    depth_modality: str | None = None
    """Which depth of WAI folders, e.g. pred_depth/mvsanywhere."""
    workers: int | None = None
    """Processes; by default one for each core."""

    def run(self) -> int:
        from g_ray.formats import find_scenes
        from g_ray.runtime.parallel import run_in_processes
        from g_ray_lab.sources.scene_store import DepthReading

        if not self.folders:
            raise ValueError("no scenes: give one or more folders, each a scene or a folder of scenes")
        workers = count_workers(self.workers)
        reading = DepthReading(self.depth_convention, self.depth_unit, self.depth_modality)
        scenes = [scene for folder in self.folders for scene in find_scenes(folder)]
        bar, broken, computed = CountBar(len(scenes), 0, "scenes"), 0, 0
        store = partial(_store_covisibility, reading)
        outcomes: Any = run_in_processes(store, scenes, min(workers, len(scenes)), lambda scene: scene.name)
        with closing(outcomes) as done:
            for number, outcome in enumerate(done, 1):
                computed += outcome is True
                if isinstance(outcome, str):
                    broken += 1
                    bar.print_line(f"skipped: {outcome}")
                bar.advance(number)
        bar.close()
        print(
            f"{len(scenes)} scenes: {computed} computed, {len(scenes) - computed - broken} there, {broken} skipped"
        )
        return 1 if broken else 0


def _store_covisibility(reading: "DepthReading", folder: Path) -> bool | str:
    """Store the covisibility of a scene; return whether it was computed, or why it cannot be."""
    from g_ray.formats import read_scene
    from g_ray_lab.sources.covisibility import store_covisibility

    try:
        return store_covisibility(reading.apply_to(read_scene(folder, False, reading.modality)))
    except (ValueError, OSError) as error:
        return str(error)


# RealEstate10K


RE10K_SPLITS = ("train", "test")


@dataclass(frozen=True)
class RE10KCheck:
    """Count the clips of RealEstate10K, compare them with the evaluation index, and check the camera axes."""

    root: tyro.conf.Positional[Path]
    """Folder with train/ and test/, as pixelSplat's chunks or in LVSM's layout."""
    index: Path | None = None
    """pixelSplat's evaluation_index_re10k.json, to compare the test split with."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes that the poses should have."""
    clips: int = 8
    """Clips per split whose poses are checked against their pictures."""

    def run(self) -> None:
        splits = [split for split in RE10K_SPLITS if (self.root / split).is_dir()]
        verdicts = [self._check_split(split) for split in splits or RE10K_SPLITS[:1]]
        if not all(verdicts):
            raise ValueError(f"{self.root}: poses and pictures contradict each other, see above")

    def _check_split(self, split: str) -> bool:
        """Print clips and axes of a split; return whether the axes are consistent with the pictures."""
        from g_ray_lab.datasets.re10k import open_clips
        from g_ray_lab.datasets.re10k_index import read_clip_index
        from g_ray_lab.sources.axes_check import check_axes
        from g_ray_lab.sources.re10k_nvs import match_clips

        if self.clips < 1:
            raise ValueError(f"--clips {self.clips} must be at least 1")
        clips = open_clips(self.root, split, self.axes)
        print(f"{split}: {count_clips(clips)}")
        if split == "test" and self.index is not None:
            print(f"{split}: {read_clip_index(self.index).select_available(clips.keys).coverage}")
        report = check_axes(match_clips(clips, self.clips))
        verdict = "refused" if report.better else "confirmed" if report.certain else "undecided"
        print(f"{split}: axes {self.axes} {verdict}: {report.verdict}")
        return report.better is None


def count_clips(clips: "Clips") -> str:
    """Count clips and frames by reading the cameras of every clip, and no picture."""
    lengths, broken = [], []
    for key in clips.order_by_file():
        try:
            lengths.append(len(clips.get_clip(key)))
        except (ValueError, OSError) as error:
            broken.append(str(error))
    short = sum(length <= 25 for length in lengths)
    line = f"{len(lengths)} clips with {sum(lengths)} frames, {short} too short to train on"
    return line if not broken else f"{line}; {len(broken)} cannot be read, the first: {broken[0]}"


@dataclass(frozen=True)
class Data:
    """Make data sets, and check them."""

    what: (
        Annotated[Check, tyro.conf.subcommand("check")]
        | Annotated[Covisibility, tyro.conf.subcommand("covisibility")]
        | Annotated[Objects, tyro.conf.subcommand("objects")]
        | Annotated[ObjectsIndex, tyro.conf.subcommand("objects-index")]
        | Annotated[Levels, tyro.conf.subcommand("levels")]
        | Annotated[TexturedRooms, tyro.conf.subcommand("textured-rooms")]
        | Annotated[Sheet, tyro.conf.subcommand("sheet")]
        | Annotated[RE10KCheck, tyro.conf.subcommand("re10k-check")]
        | Annotated[Waymo, tyro.conf.subcommand("waymo")]
        | Annotated[Prepare, tyro.conf.subcommand("prepare")]
        | Annotated[Miniature, tyro.conf.subcommand("miniature")]
    )

    def run(self) -> int | None:
        return self.what.run()
