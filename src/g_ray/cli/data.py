"""`g-ray data`: check scene folders and RealEstate10K, render objects, freeze indices, prepare evaluation datasets."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from g_ray.cli.data_covisibility import Covisibility
from g_ray.cli.data_textured import Levels, TexturedRooms
from g_ray.cli.data_waymo import Waymo
from g_ray.cli.prepare import Miniature, Prepare
from g_ray.cli.text import CountBar

if TYPE_CHECKING:
    from g_ray.data.checks.scene import SceneReport
    from g_ray.data.objects.index import ContextPairs
    from g_ray.data.objects.run import ObjectJob, ObjectSettings
    from g_ray.formats.re10k import Clips

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
    """At most so many scenes, spread over the data set; 0 is all."""
    depth_convention: Literal["z", "ray"] | None = None
    """What depth files hold, instead of what their format says."""
    depth_unit: float | None = None
    """Length per stored number, instead of what the format says: 0.001 for millimetres."""
    depth_modality: str | None = None
    """Of WAI folders: which depth, e.g. pred_depth/mvsanywhere."""
    masks: Path | None = None
    """Folder of masks inside every scene folder, named as its photographs; else those that transforms.json names."""
    json: Path | None = None
    """Write the findings to this file too."""

    def run(self) -> int:
        from g_ray.data.checks.scene import pick_evenly
        from g_ray.formats import find_scenes

        if self.frames < 0 or self.scenes < 0 or (self.depth_unit is not None and self.depth_unit <= 0):
            raise ValueError("--frames and --scenes must be 0 or more, and --depth-unit positive")
        folders = find_scenes(self.root)
        chosen = [folders[index] for index in pick_evenly(range(len(folders)), self.scenes)]
        reports = []
        for report in self._check_scenes(chosen):
            reports.append(report)
            for finding in report.findings:
                print(f"{finding.level}: {finding.file}: {finding.text}", flush=True)
        counts = {level: _count_findings(reports, level) for level in ("error", "warning")}
        views = sum(report.views for report in reports)
        print(
            f"{self.root}: {_format_count(len(reports), 'scene')} of {len(folders)}, {_format_count(views, 'view')}: "
            f"{_format_count(counts['error'], 'error')}, {_format_count(counts['warning'], 'warning')}"
        )
        if self.json is not None:
            self._write_json(self.json, reports, counts)
        return 1 if counts["error"] else 0

    def _check_scenes(self, folders: Sequence[Path]) -> "Iterator[SceneReport]":
        from g_ray.cli.text import ProgressLine
        from g_ray.data.checks.scene import check_scene
        from g_ray.data.scenes.store import DepthReading
        from g_ray.formats.masks import add_masks
        from g_ray.formats.scene import PosedScene

        reading = DepthReading(self.depth_convention, self.depth_unit, self.depth_modality)

        def adapt(scene: PosedScene) -> PosedScene:
            return reading.apply_to(scene if self.masks is None else add_masks(scene, self.masks))

        line, terminal = ProgressLine(beside_output=True), sys.stderr.isatty()
        for number, folder in enumerate(folders):
            if len(folders) > 1 and (terminal or (number and number % SELDOM == 0)):
                line(f"scene {number + 1} of {len(folders)}: {folder.name}")
            report = check_scene(folder, self.frames, adapt, reading.modality)
            if terminal and len(folders) > 1:
                line("")
            yield report

    def _write_json(self, path: Path, reports: "Sequence[SceneReport]", counts: dict[str, int]) -> None:
        from g_ray.runtime.files import write_json

        scenes = [_to_document(report) for report in reports]
        write_json(
            path,
            {
                "root": str(self.root),
                "errors": counts["error"],
                "warnings": counts["warning"],
                "scenes": scenes,
            },
        )


def _to_document(report: "SceneReport") -> dict[str, Any]:
    findings = [
        {"level": finding.level, "file": str(finding.file), "text": finding.text}
        for finding in report.findings
    ]
    return {"folder": str(report.folder), "kind": report.kind, "views": report.views, "findings": findings}


def _count_findings(reports: "Sequence[SceneReport]", level: str) -> int:
    return sum(finding.level == level for report in reports for finding in report.findings)


def _format_count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# `g-ray data objects` and `g-ray data sheet`: render meshes, and draw the results.


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
    """Shade surfaces by their slope; without, colours are those of the texture."""
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

        from g_ray.data.dataset_folder import claim_folder
        from g_ray.data.objects.run import list_object_jobs
        from g_ray.formats.objaverse import PARTIAL
        from g_ray.runtime.lock import lock_folder

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
        from g_ray.data.objects.run import PROCEDURAL, ObjectSettings

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
        from g_ray.data.objects.run import find_unfinished

        before = len(jobs) - len(find_unfinished(self.out, jobs))
        bar, refused = CountBar(len(jobs), before, "objects"), {}
        with closing(self.start_rendering(jobs, settings)) as outcomes:
            try:
                for done, outcome in enumerate(outcomes, start=before + 1):
                    if outcome.refused:
                        refused[outcome.name] = outcome.refused
                        bar.print_line(f"skipped {outcome.refused}")
                    bar.advance(done)
            except KeyboardInterrupt:
                bar.print_line("stopping after the objects under way; the same command resumes from there")
                raise
            finally:
                bar.close()
        return refused

    def start_rendering(self, jobs: "list[ObjectJob]", settings: "ObjectSettings") -> Any:
        from g_ray.data.objects.cluster import Cluster, render_on_cluster
        from g_ray.data.objects.run import render_objects

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
        from g_ray.viewer.table_figures import draw_object_sheet

        check_out_file(self.out)
        picture = draw_object_sheet(self.root, self.count)
        with atomic_path(self.out) as scratch:
            picture.save(scratch, format="png")
        print(f"wrote {self.out}")


# `g-ray data objects-index`: freeze what test objects are scored on.


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
        from g_ray.data.objects.index import PROTOCOLS, read_index, write_indices
        from g_ray.data.objects.released_index import write_released

        for name, digest in write_indices(self.root, self.out, self._choose_contexts()).items():
            targets = len(PROTOCOLS[name].list_names((0, 1)))
            print(f"{digest[:16]}  {self.out / name}.json  {targets} targets per object")
        if self.write_released:
            indices = {name: read_index(self.out, name, self.root) for name in PROTOCOLS}
            for path in write_released(indices, self.out):
                print(f"{path}, as released")

    def _choose_contexts(self) -> "ContextPairs":
        from g_ray.data.objects.index import draw_contexts
        from g_ray.data.objects.released_index import read_released_contexts
        from g_ray.formats.objaverse import find_objects

        if self.released is None:
            return draw_contexts(self.root, self.seed)
        listed, there = read_released_contexts(self.released), set(find_objects(self.root))
        found = {uid: pair for uid, pair in listed.items() if uid in there}
        print(f"{len(found)} of {len(listed)} objects of {self.released} are in {self.root}")
        if not found:
            raise ValueError(f"none of the objects of {self.released} is in {self.root}: render them first")
        return found


# `g-ray data re10k-check`: is this copy of RealEstate10K complete, and do its poses fit its pictures?


SPLITS = ("train", "test")


@dataclass(frozen=True)
class RE10KCheck:
    """Count the clips of RealEstate10K, compare them with the evaluation index, and check the camera axes."""

    root: tyro.conf.Positional[Path]
    """Folder with train/ and test/, as pixelSplat's chunks or in LVSM's layout."""
    index: Path | None = None
    """pixelSplat's evaluation_index_re10k.json, to compare the test split with."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes that the poses are said to have."""
    clips: int = 8
    """Clips per split whose poses are checked against their pictures."""

    def run(self) -> None:
        splits = [split for split in SPLITS if (self.root / split).is_dir()]
        verdicts = [self._check_split(split) for split in splits or SPLITS[:1]]
        if not all(verdicts):
            raise ValueError(f"{self.root}: poses and pictures contradict each other, see above")

    def _check_split(self, split: str) -> bool:
        """Print clips and axes of a split; return whether the axes are consistent with the pictures."""
        from g_ray.data.checks.axes import check_axes
        from g_ray.data.re10k import match_clips
        from g_ray.formats.re10k import open_clips

        if self.clips < 1:
            raise ValueError(f"--clips {self.clips} must be at least 1")
        clips = open_clips(self.root, split, self.axes)
        print(f"{split}: {count_clips(clips)}")
        if split == "test" and self.index is not None:
            from g_ray.formats.re10k import read_index

            print(f"{split}: {read_index(self.index).select_available(clips.keys).coverage}")
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


# `g-ray data`: make data sets, and check them.


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
