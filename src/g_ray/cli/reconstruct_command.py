"""`g-ray reconstruct`: reconstruct cameras, depth and points from photographs of any cameras."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from g_ray.export.export_options import ExportOptions
from g_ray.predictors.model_settings import ModelName, ModelSettings

if TYPE_CHECKING:
    from g_ray.export.result import Reconstruction
    from g_ray.reconstruction.inputs import KnownGeometry


GROUPS = {
    "photographs": ("every", "frames", "as-stored", "masks", "rig", "into"),
    "calibration": (
        "calibration",
        "resize-calibration",
        "poses",
        "metric",
        "distance",
        "board",
        "gps",
        "truth",
    ),
    "model": (
        *("model", "weights", "size", "device", "max-memory", "at-once", "precision", "lenses", "fit"),
        *("near", "far", "refine", "place-by", "stereo", "fill", "unplaced"),
    ),
    "output": (
        *("out", "confidence", "edges", "voxel", "sky", "max-points", "max-tracks"),
        *("mesh", "faces", "texture-size", "depth-size", "depth-exr", "depth-npy", "georeference"),
    ),
}
"""Options by the heading that the help lists them under."""


@dataclass(frozen=True)
class Reconstruct:
    """Reconstruct a scene from photographs with known (or estimated) calibration, whatever their lenses and sizes."""

    GROUPS: ClassVar = GROUPS

    images: tyro.conf.Positional[tuple[str, ...]]
    """Photographs: files, folders, patterns, or a video."""
    out: Path
    """Folder for the result; an interrupted run is resumed there."""
    calibration: tuple[str, ...] = ()
    """Where cameras come from: a file or folder (COLMAP, nerfstudio, OpenCV, Kalibr, ROS, ScanNet++, ETH3D, Aria,
    CamOdoCal, ORB-SLAM, Basalt, Open3D, Metashape, cameras.json, ray maps), exif, estimate[:NAME], or several as
    PATTERN=SOURCE. Without it, a COLMAP model, transforms.json, cameras.json or other scene folder next to the
    photographs, or an estimate."""
    model: ModelName | None = None
    """stereo (default): structure from motion with the lenses as they are, then depth by comparing photographs along
    their rays; network: poses and depth predicted by a network; vggt and others: networks of other projects (docs:
    models). With --weights the model is theirs."""
    poses: Literal["given", "align", "ignore"] = "given"
    """Poses that the calibration has: keep them, align the scene to them and score it, or do not use them."""
    masks: Path | None = None
    """Folder of masks, named as the photographs (a.jpg.png or a.png); zero: do not use the pixel."""
    rig: str | None = None
    """Cameras that move together: COLMAP's rig_config.json, a Kalibr camchain or Aria's calibration, whose labels are
    in the photographs' names."""
    into: Path | None = None
    """A finished result: localize the photographs in it, and reconstruct both together in --out."""
    metric: bool = False
    """The known poses are in meters, so the result is too."""
    distance: tuple[str, str, float] | None = None
    """Two photographs and the meters between their cameras, or two points: a.jpg:x,y in pixels, or
    a.jpg:x,y+b.jpg:x,y where depth is missing. Gives the result its scale."""
    board: str | None = None
    """A chessboard in two or more photographs, e.g. 7x5:0.03: inner corners along both sides, and the meters of a
    square's side. Gives the result its scale."""
    gps: Literal["use", "ignore"] = "use"
    """GPS in the EXIF of the photographs: it gives scale, heading and level where it is accurate enough."""
    georeference: bool = False
    """Write where on the earth the result is (scene.geo: origin, EPSG code, matrices), from GPS."""
    truth: Path | None = None
    """A scene folder with depth maps (nerfstudio, COLMAP, WAI, 7-Scenes) or a COLMAP model with points: the result is
    scored with them."""
    every: int | None = None
    """Take every n-th frame of a video."""
    frames: int | None = None
    """Take this many frames of a video, evenly spread (default: 32)."""
    resize_calibration: bool = False
    """Scale calibrations that were made at another size of the same photograph."""
    as_stored: bool = False
    """Take pixels as they are stored instead of turning them upright by EXIF."""
    settings: Annotated[ModelSettings, tyro.conf.arg(name="")] = field(default_factory=ModelSettings)
    export: Annotated[ExportOptions, tyro.conf.arg(name="")] = field(default_factory=ExportOptions)

    def run(self) -> None:
        self._check()
        print("g-ray reconstruct: loading torch", flush=True)
        from g_ray.calibration import format_calibration_table
        from g_ray.predictors import choose_model, make_predictor
        from g_ray.predictors.predictor import SceneInput
        from g_ray.reconstruction.inputs import (
            PhotoOptions,
            collect_known,
            join_views,
            read_finished_views,
            read_rig,
            read_views,
        )
        from g_ray.reconstruction.reconstruction_run import check_result_folder, run_reconstruction
        from g_ray.runtime.device import choose_device
        from g_ray.runtime.progress import ProgressLine

        choose_device(self.settings.device)
        check_result_folder(self.out)
        photo_options = PhotoOptions(
            self.every,
            self.frames,
            not self.as_stored,
            self.resize_calibration,
            self.masks,
            min_photos=2
            if self.into is None and (self.model or choose_model(self.settings)) == "stereo"
            else 1,
        )
        views = read_views(self.images, self.calibration, photo_options, report)
        report(format_calibration_table(views))
        if self.poses == "align" and all(view.pose is None for view in views):
            raise ValueError("--poses align: the calibration has no poses to align to; leave it out")
        predictor = make_predictor(self.model, self.settings)
        if self.into is None:
            known = collect_known(
                views,
                poses=self.poses if "poses" in predictor.USES or self.poses == "ignore" else "align",
                metric=self.metric,
                distance=self.distance,
                board=self.board,
                truth=self.truth,
                report=report,
                gps=self.gps,
                georeference=self.georeference,
            )
            self._check_range(known)
        else:
            views, known = join_views(*read_finished_views(self.into), views, report)
        line = ProgressLine()
        results = run_reconstruction(
            SceneInput(views, None if self.rig is None else read_rig(self.rig, views)),
            known,
            predictor,
            self.out,
            self.export,
            report=report,
            progress=lambda stage, share: line(f"{stage} {share:.0%}"),
        )
        for result in results:
            if len(results) > 1:
                print(f"{result.saved_folder.name} has {len(result.views)} photographs:")
            print_verdict(result)
        if len(results) > 1:
            print(f"{len(results)} groups that nothing connects, each a result of its own")
        print(f"{self.out}: open report.html in a browser, or g-ray view {results[0].saved_folder}")

    def _check(self) -> None:
        """Refuse what is wrong with the options alone, before anything is loaded."""
        if not self.images:
            raise ValueError("no images: give files, folders, patterns or a video")
        if self.into is not None and (
            self.model not in (None, "stereo")
            or self.settings.weights
            or self.metric
            or self.distance
            or self.board
            or self.georeference
            or self.truth
            or self.rig
            or self.poses != "given"
        ):
            raise ValueError(
                "--into keeps the world and the unit of the finished result: leave out --model network, --weights, "
                "--metric, --distance, --board, --georeference, --truth, --rig and --poses"
            )
        if self.georeference and self.gps == "ignore":
            raise ValueError(
                "--georeference needs GPS, which --gps ignore does not use: leave out one of them"
            )
        if self.metric and self.poses == "ignore":
            raise ValueError(
                "--metric declares known poses to be in meters, but --poses ignore does not use them"
            )
        if self.distance is not None and not 0 < self.distance[2] < math.inf:
            raise ValueError(f"--distance {self.distance[2]} m: give a length above 0")
        if self.board is not None:
            from g_ray.media.chessboard import BoardSize

            BoardSize.parse(self.board)

    def _check_range(self, known: "KnownGeometry") -> None:
        """Refuse a range of depth in the unit of poses that have none."""
        ranged = self.settings.near is not None or self.settings.far is not None
        if ranged and known.estimated and known.count_poses() and self.rig is None:
            raise ValueError(
                "--near and --far are in the unit of known poses or of a rig, and estimated poses have none: leave "
                "them out"
            )


def report(sentence: str) -> None:
    """Print a sentence at once, also into a pipe."""
    print(sentence, flush=True)


def print_verdict(scene: "Reconstruction") -> None:
    """Print scores, notes and, last, how good the result is."""
    for name, value in scene.metrics.items():
        print(f"{name}: {value:.4g}")
    for note in scene.notes:
        print(f"note: {note}")
    print(f"result: {scene.quality.get('grade', 'unknown')}")
    if scene.quality.get("limit"):
        print(f"  {scene.quality['limit']}")
    for sentence in scene.quality.get("verdict", []):
        print(f"  {sentence}")
