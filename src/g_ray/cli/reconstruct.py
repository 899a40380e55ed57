"""`g-ray reconstruct`: photographs from any cameras become cameras, depth, points and a page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from g_ray.export.options import ExportOptions

if TYPE_CHECKING:
    from g_ray.capture import CalibratedPhoto, Photo
    from g_ray.models.reconstruction import ReconstructionModel
    from g_ray.pipelines.reconstruction import KnownGeometry, Reconstruction
    from g_ray.pipelines.scoring import TrueView

GIB = 2**30
MIN_CHUNK = 4
"""Views: three to share and one to go on."""


@dataclass(frozen=True)
class Reconstruct:
    """Reconstruct a scene from photographs with known (or estimated) calibration, whatever their lenses and sizes."""

    images: tyro.conf.Positional[tuple[str, ...]]
    """Photographs: files, folders, patterns, or a video."""
    calibration: tuple[str, ...]
    """Where cameras come from: a file or folder (COLMAP, nerfstudio, OpenCV, Kalibr, ROS, ScanNet++, ETH3D, Aria,
    cameras.json, ray maps), exif, estimate[:NAME], or several as PATTERN=SOURCE."""
    out: Path
    """Folder for the result; a run that was interrupted goes on there."""
    weights: str = "g-ray-rooms"
    """A file, a Hugging Face id owner/name, or the name of weights that come with g-ray."""
    size: int | None = None
    """Long side that the network sees, in pixels; that of its training if not given."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the trunk."""
    max_memory: float | None = None
    """GiB that the network may take: views then go through it in chunks, which are joined."""
    at_once: int | None = None
    """Views in a chunk, instead of as many as the memory allows."""
    poses: Literal["align", "ignore"] = "align"
    """Poses that the calibration has: bring the scene to them and score it, or leave them aside."""
    metric: bool = False
    """The known poses are in metres, so the result is too."""
    distance: tuple[str, str, float] | None = None
    """Two photographs and the metres between their cameras: gives the result its scale."""
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
        from g_ray.capture import assign_cameras, find_photos, format_calibration_table
        from g_ray.cli.text import ProgressLine
        from g_ray.export.result import write_views
        from g_ray.pipelines.reconstruction import load_network, reconstruct, split_into_chunks
        from g_ray.pipelines.work import PartialResults

        photos = find_photos(
            self.images,
            every=self.every,
            frames=self.frames,
            upright=not self.as_stored,
            note=lambda text: print(f"note: {text}"),
        )
        if len(photos) < 2:
            raise ValueError(f"one photograph ({photos[0].name}) is no scene: give two or more views of it")
        views = assign_cameras(photos, self.calibration, resize=self.resize_calibration, report=print)
        print(format_calibration_table(views), flush=True)
        known = replace(self._collect_known(views), truth=self._read_truth(photos, views))
        self._check_unfinished()
        model = load_network(self.weights, self.device)
        at_once = self._plan_chunks(model, views)
        work = PartialResults(self.out, self._make_key(photos, views, at_once))
        line = ProgressLine()

        def reconstruct_first(count: int) -> "Reconstruction":
            return reconstruct(
                photos[:count],
                [view.camera for view in views[:count]],
                weights=model,
                names=[view.name for view in views[:count]],
                sources=[view.source for view in views[:count]],
                known=known.select_first(count),
                size=self.size,
                at_once=at_once,
                precision=self.precision,
                device=self.device,
                work=work,
                progress=lambda done, chunks: line(f"chunk {done} of {chunks} done"),
            )

        try:
            scene = reconstruct_first(len(photos))
        except KeyboardInterrupt:
            chunks = split_into_chunks(len(photos), at_once)[: work.count_finished()]
            if chunks:  # what there is can be looked at, and the same command goes on from it
                part = reconstruct_first(chunks[-1][-1] + 1)
                write_views(
                    self.out, part.views, [_load_for_export(photo) for photo in photos[: len(part.views)]]
                )
                print(
                    f"\n{len(part.views)} of {len(photos)} views are in {self.out}; the same command goes on"
                )
            raise
        print("\nwriting files", flush=True)
        scene.save(
            self.out,
            [_load_for_export(photo) for photo in photos],
            self.export,
            self._collect_settings(model),
        )
        work.clear()
        for name, value in scene.metrics.items():
            print(f"{name}: {value:.4g}")
        for note in scene.notes:
            print(f"note: {note}")
        print(f"{self.out}: open report.html in a browser, or g-ray view {self.out}")

    # What was asked for

    def _check(self) -> None:
        """Everything that can be refused before anything is loaded."""
        if not self.images:
            raise ValueError("no images: give files, folders, patterns or a video")
        if self.max_memory is not None and not self.max_memory > 0:
            raise ValueError(f"--max-memory {self.max_memory} GiB: give a number above 0")
        if self.at_once is not None and self.at_once < MIN_CHUNK:
            raise ValueError(f"--at-once {self.at_once}: chunks need {MIN_CHUNK} views or more to be joined")
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

    def _check_unfinished(self) -> None:
        if (self.out / "result.json").is_file():
            raise ValueError(f"{self.out} holds a finished result: choose another --out, or delete it")

    def _collect_known(self, views: "Sequence[CalibratedPhoto]") -> "KnownGeometry":
        from g_ray.pipelines.reconstruction import KnownGeometry

        poses = [view.pose for view in views]
        count = sum(pose is not None for pose in poses)
        if self.poses == "ignore":
            poses = []
        elif count == 1:
            print("one known pose cannot align a scene and is left aside")
            poses = []
        elif count:
            print(
                f"{count} known poses: the scene is aligned to them and scored with them (--poses ignore: not)"
            )
        return KnownGeometry(poses, self.metric, self._parse_distance([view.name for view in views]))

    def _read_truth(
        self, photos: "Sequence[Photo]", views: "Sequence[CalibratedPhoto]"
    ) -> "list[TrueView | None]":
        from g_ray.pipelines.scoring import read_truth

        if self.truth is None:
            return []
        turned = [photo.name for photo in photos if photo.orientation != 1 and photo.upright]
        if turned:
            raise ValueError(
                f"--truth is about pixels as they are stored, but {turned[0]} is turned upright: add --as-stored"
            )
        true_views = read_truth(self.truth, [view.name for view in views], [view.camera for view in views])
        print(
            f"{self.truth}: knows depth of {sum(view is not None for view in true_views)} of {len(views)} views"
        )
        return true_views

    def _parse_distance(self, names: list[str]) -> tuple[int, int, float] | None:
        if self.distance is None:
            return None
        first, second, length = self.distance
        for name in (first, second):
            if name not in names:
                raise ValueError(f"--distance names {name}, which is none of the photographs")
        if first == second:
            raise ValueError(f"--distance names {first} twice: give two photographs")
        return names.index(first), names.index(second), length

    def _plan_chunks(self, model: "ReconstructionModel", views: "Sequence[CalibratedPhoto]") -> int:
        """Views in a chunk; says what the run will cost."""
        from g_ray.pipelines import planning
        from g_ray.pipelines.reconstruction import split_into_chunks

        size = self.size or model.config.long_side
        weights = planning.count_weights(model)
        patches = planning.count_patches([view.camera for view in views], size, model.config.patch)
        at_once = min(self.at_once or len(views), len(views))
        if self.max_memory is not None:
            memory = int(self.max_memory * GIB)
            at_once = planning.find_chunk_size(model.config, weights, patches, memory, MIN_CHUNK)
        chunks = [
            planning.estimate_chunk_cost(model.config, weights, [patches[view] for view in chunk])
            for chunk in split_into_chunks(len(views), at_once)
        ]
        speed = planning.EFFICIENCY * planning.measure_operations_per_second(next(model.parameters()).device)
        seconds = sum(chunk.operations for chunk in chunks) / speed
        memory = max(chunk.memory for chunk in chunks) / GIB
        parts = "one chunk" if len(chunks) == 1 else f"{len(chunks)} chunks of {at_once}"
        print(
            f"{len(views)} views in {parts} at {size} px: about {_format_duration(seconds)} for the network, "
            f"{memory:.2g} GiB",
            flush=True,
        )
        return at_once

    def _make_key(
        self, photos: "Sequence[Photo]", views: "Sequence[CalibratedPhoto]", at_once: int
    ) -> dict[str, Any]:
        """What decides the pieces of an unfinished run."""
        from g_ray.models.checkpoint import find_file
        from g_ray.pipelines.work import hash_camera

        files = {str(photo.path): photo.path.stat() for photo in photos}
        weights = find_file(self.weights)
        return {
            "photographs": [photo.name for photo in photos],
            "files": {path: [stat.st_size, stat.st_mtime_ns] for path, stat in files.items()},
            "calibration": [[view.source, hash_camera(view.camera)] for view in views],
            "weights": [str(self.weights), weights.stat().st_size, weights.stat().st_mtime_ns],
            "size": self.size,
            "precision": self.precision,
            "at_once": at_once,
        }

    def _collect_settings(self, model: "ReconstructionModel") -> dict[str, Any]:
        return {
            "weights": str(self.weights),
            "method": model.config.method,
            "size": self.size or model.config.long_side,
            "precision": self.precision,
            "export": asdict(self.export),
        }


def _load_for_export(photo: "Photo") -> Any:
    """A file that can be copied as it is, or its upright pixels."""
    plain = photo.time is None and (photo.orientation == 1 or not photo.upright)
    return photo.path if plain and photo.path.suffix.lower() in (".jpg", ".jpeg", ".png") else photo.load()


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
