"""`g-ray reconstruct`: reconstruct cameras, depth and points from photographs of any cameras."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from g_ray.export.options import ExportOptions


@dataclass(frozen=True)
class Reconstruct:
    """Reconstruct a scene from photographs with known (or estimated) calibration, whatever their lenses and sizes."""

    images: tyro.conf.Positional[tuple[str, ...]]
    """Photographs: files, folders, patterns, or a video."""
    calibration: tuple[str, ...]
    """Where cameras come from: a file or folder (COLMAP, nerfstudio, OpenCV, Kalibr, ROS, ScanNet++, ETH3D, Aria,
    cameras.json, ray maps), exif, estimate[:NAME], or several as PATTERN=SOURCE."""
    out: Path
    """Folder for the result; an interrupted run is resumed there."""
    weights: str = "g-ray-rooms"
    """A file, a Hugging Face id owner/name, or the name of weights that come with g-ray."""
    size: int | None = None
    """Long side of the network's input in pixels; by default that of its training."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the trunk."""
    max_memory: float | None = None
    """GiB that the network may take: views then go through it in chunks, which are joined."""
    at_once: int | None = None
    """Views in a chunk, instead of as many as the memory allows."""
    poses: Literal["align", "ignore"] = "align"
    """Poses that the calibration has: align the scene to them and score it, or do not use them."""
    metric: bool = False
    """The known poses are in meters, so the result is too."""
    distance: tuple[str, str, float] | None = None
    """Two photographs and the meters between their cameras: gives the result its scale."""
    truth: Path | None = None
    """A scene folder with depth maps (nerfstudio, COLMAP, WAI, 7-Scenes) or a COLMAP model with points: the result is
    scored with them."""
    every: int | None = None
    """Of a video take every n-th frame."""
    frames: int | None = None
    """Of a video take so many frames, evenly spread (32)."""
    resize_calibration: bool = False
    """Scale calibrations that were made at another size of the same photograph."""
    as_stored: bool = False
    """Take pixels as they are stored instead of turning them upright by EXIF."""
    export: Annotated[ExportOptions, tyro.conf.arg(name="")] = field(default_factory=ExportOptions)

    def run(self) -> None:
        self._check()
        print("g-ray reconstruct: loading torch", flush=True)
        from g_ray.capture import format_calibration_table
        from g_ray.cli.text import ProgressLine
        from g_ray.pipelines.inputs import PhotoOptions, collect_known, read_views
        from g_ray.pipelines.reconstruction_run import NetworkSettings, run_reconstruction

        def report(sentence: str) -> None:
            print(sentence, flush=True)

        settings = NetworkSettings(
            self.weights, self.size, self.device, self.precision, self.max_memory, self.at_once
        )
        photo_options = PhotoOptions(self.every, self.frames, not self.as_stored, self.resize_calibration)
        views = read_views(self.images, self.calibration, photo_options, report)
        report(format_calibration_table(views))
        known = collect_known(
            views,
            use_poses=self.poses == "align",
            metric=self.metric,
            distance=self.distance,
            truth=self.truth,
            report=report,
        )
        line = ProgressLine()
        scene = run_reconstruction(
            views,
            known,
            settings,
            self.out,
            self.export,
            report=report,
            progress=lambda done, chunks: line(f"chunk {done} of {chunks} done"),
        )
        for name, value in scene.metrics.items():
            print(f"{name}: {value:.4g}")
        for note in scene.notes:
            print(f"note: {note}")
        print(f"{self.out}: open report.html in a browser, or g-ray view {self.out}")

    def _check(self) -> None:
        """Refuse what is wrong with the options alone, before anything is loaded."""
        if not self.images:
            raise ValueError("no images: give files, folders, patterns or a video")
        if self.max_memory is not None and not self.max_memory > 0:
            raise ValueError(f"--max-memory {self.max_memory} GiB: give a number above 0")
        if self.at_once is not None and self.max_memory is not None:
            raise ValueError("--at-once and --max-memory both fix the views in a chunk: give one of them")
        if self.metric and self.poses == "ignore":
            raise ValueError(
                "--metric says that known poses are in metres, but --poses ignore leaves them aside"
            )
        if self.distance is not None and not self.distance[2] > 0:
            raise ValueError(f"--distance {self.distance[2]} m: give a length above 0")
        if self.size is not None and self.size < 1:
            raise ValueError(f"--size {self.size}: give a number of pixels")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out} is a file: give a folder")
