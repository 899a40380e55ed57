"""`g-ray data`: check scene folders and RealEstate10K, render objects, freeze indices, prepare evaluation datasets."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from g_ray_lab.cli.data_covisibility import Covisibility
from g_ray_lab.cli.data_objects import Objects, ObjectsIndex, Sheet
from g_ray_lab.cli.data_prepare import Miniature, Prepare
from g_ray_lab.cli.data_re10k import RE10KCheck
from g_ray_lab.cli.data_textured import Levels, TexturedRooms
from g_ray_lab.cli.data_waymo import Waymo

if TYPE_CHECKING:
    from g_ray_lab.sources.scene_check import SceneReport

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
    """Length per stored number, instead of what the format says: 0.001 for millimeters."""
    depth_modality: str | None = None
    """Of WAI folders: which depth, e.g. pred_depth/mvsanywhere."""
    masks: Path | None = None
    """Folder of masks inside every scene folder, named as its photographs; else those that transforms.json names."""
    json: Path | None = None
    """Write the findings to this file too."""

    def run(self) -> int:
        from g_ray.formats import find_scenes
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
        from g_ray.formats.masks import add_masks
        from g_ray.formats.posed_scene import PosedScene
        from g_ray_lab.sources.scene_check import check_scene
        from g_ray_lab.sources.scenes_reconstruction import DepthReading

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
