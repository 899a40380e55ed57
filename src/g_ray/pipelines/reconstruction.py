"""Hundreds of views, a few at a time: chunks that share views, so that their worlds can be joined."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.export.options import ExportOptions
from g_ray.export.result import Result, ResultView, Unit
from g_ray.export.write import write_result
from g_ray.formats.images import PhotoLike
from g_ray.geometry.pose import Pose
from g_ray.models.checkpoint import load_reconstruction
from g_ray.models.framing import restore_maps
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.pipelines.alignment import ViewPiece, align_to_poses, join_chunk, scale_to_distance
from g_ray.pipelines.scoring import TrueView, score_views
from g_ray.pipelines.work import PartialResults
from g_ray.training.distributed import choose_device
from g_ray.viewer.reconstruction_report import write_report

OVERLAP = 3
"""Views that neighbouring chunks share: enough for a robust scale."""


def split_into_chunks(count: int, size: int, overlap: int = OVERLAP) -> list[tuple[int, ...]]:
    """Chunks of at most `size` of `count` views in their order; each shares `overlap` views with the one before.

    The last chunk is as full as the others: it shares more rather than being short of views.
    """
    if count < 1:
        raise ValueError("no views to reconstruct")
    if size >= count:
        return [tuple(range(count))]
    if not 1 <= overlap < size:
        raise ValueError(
            f"chunks of {size} views cannot share {overlap} and go on: allow more views at a time"
        )
    starts = [*range(0, count - size, size - overlap), count - size]
    return [tuple(range(start, start + size)) for start in starts]


# One chunk through the network: photographs and cameras in, a piece for every view out.


@runtime_checkable
class Loadable(Protocol):
    """A photograph that is read when it is its turn, e.g. `g_ray.capture.Photo`."""

    def load(self) -> Float[Tensor, "3 h w"]: ...


Image = Loadable | Float[Tensor, "3 _ _"]


@dataclass(frozen=True)
class ChunkRunner:
    """How the network is run."""

    model: ReconstructionModel
    size: int
    """Long side that it sees, in pixels."""
    precision: str = "fp32"
    query_chunk: int | None = None
    """Queries of global attention at a time: less memory, the same result."""

    def __call__(
        self, numbers: Sequence[int], images: Sequence[Image], cameras: Sequence[Camera]
    ) -> list[ViewPiece]:
        """Of the views with these numbers in the whole set."""
        loaded = [image if isinstance(image, Tensor) else image.load() for image in images]
        try:
            inference = run_inference(
                self.model,
                loaded,
                cameras,
                size=self.size,
                query_chunk=self.query_chunk,
                precision=self.precision,
            )
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, MemoryError) and not re.search(
                "out of memory|allocate memory", str(error)
            ):
                raise
            raise ValueError(
                f"{len(images)} views at {self.size} px do not fit into memory: "
                "give --max-memory, a smaller --size or --precision bf16"
            ) from None
        return [
            ViewPiece(
                number,
                view.camera.unproject_grid()[0].to("cpu", torch.float32),
                view.maps.ray_depth.cpu(),
                view.maps.camera_confidence.cpu(),
                view.valid.cpu(),
                view.maps.poses.to("cpu"),
            )
            for number, view in zip(numbers, inference.views, strict=True)
        ]


# Reconstruct: photographs with cameras in, one scene out, whatever their number, sizes and lenses.


WEIGHTS = "g-ray-rooms"
"""Weights that come with g-ray."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """All views in one world: that of the first, or of known poses."""

    views: tuple[ResultView, ...]
    unit: Unit = "unknown"
    metrics: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def save(
        self,
        folder: Path,
        images: Sequence[PhotoLike],
        options: ExportOptions | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Result:
        """Every file that `g-ray reconstruct` writes, the page among them."""
        result = Result(self.views, Path(folder), self.unit, self.metrics, settings or {}, self.notes)
        return write_result(result, images, options, page=write_report)


@dataclass(frozen=True)
class KnownGeometry:
    """What a user knows of a scene beside its cameras."""

    poses: Sequence[Pose | None] = ()
    """World_from_cam of views, in one world; the scene is aligned to them and scored with them."""
    metric: bool = False
    """The known poses are in metres."""
    distance: tuple[int, int, float] | None = None
    """Two views, and how many metres lie between their cameras."""
    truth: Sequence[TrueView | None] = ()
    """Depth that is known of views (`read_truth`); the scene is scored with it."""

    def select_first(self, count: int) -> "KnownGeometry":
        """What of it concerns the first views alone: of poses and of true views, too few are none."""
        poses, truth = self.poses[:count], self.truth[:count]
        enough = sum(pose is not None for pose in poses) >= 2
        distance = self.distance if self.distance and max(self.distance[:2]) < count else None
        scored = sum(view is not None for view in truth) >= 2
        return KnownGeometry(
            poses if enough else (), self.metric and enough, distance, truth if scored else ()
        )


def load_network(weights: str | Path | ReconstructionModel, device: str = "auto") -> ReconstructionModel:
    """A file, a folder, a Hugging Face id, the name of shipped weights, or a network that is there already."""
    model = weights if isinstance(weights, ReconstructionModel) else load_reconstruction(weights)
    return model.to(choose_device(device, 0)).eval()


def reconstruct(
    images: Sequence[Image],
    cameras: Sequence[Camera],
    *,
    weights: str | Path | ReconstructionModel = WEIGHTS,
    names: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    known: KnownGeometry | None = None,
    size: int | None = None,
    at_once: int | None = None,
    precision: str = "fp32",
    query_chunk: int | None = None,
    device: str = "auto",
    work: PartialResults | None = None,
    progress: Callable[[int, int], None] = lambda done, chunks: None,
) -> Reconstruction:
    """Images in [0, 1] (or objects with `load()`) with one camera each, of any models and sizes.

    `at_once` views go through the network together; more are taken in chunks that overlap by three views and are
    joined by similarities. `size` is the long side that the network sees, if not that of its training. With `work`,
    finished chunks are kept on disk and used again.
    """
    if len(images) != len(cameras) or len(images) < 2:
        raise ValueError(
            f"{len(images)} images and {len(cameras)} cameras: give two or more views, each with its camera"
        )
    model = load_network(weights, device)
    run = ChunkRunner(model, size or model.config.long_side, precision, query_chunk)
    chunks = split_into_chunks(
        len(images), at_once or len(images), min(OVERLAP, (at_once or OVERLAP + 1) - 1)
    )
    pieces: dict[int, ViewPiece] = {}
    notes = []
    before: tuple[ViewPiece, ...] = ()
    for number, views in enumerate(chunks):
        progress(number, len(chunks))
        lenses = [cameras[view] for view in views]
        pieces_on_disk = None if work is None else work.load(number, views, lenses)
        if pieces_on_disk is None:
            pieces_on_disk = run(views, [images[view] for view in views], lenses)
            if work is not None:
                work.save(number, pieces_on_disk)
        joined = join_chunk(before, pieces_on_disk)
        before = joined.all
        pieces |= {piece.view: piece for piece in joined.new}
        if joined.disagreement > MAX_DISAGREEMENT:
            notes.append(
                f"chunk {number + 1} disagrees with the one before by {100 * joined.disagreement:.0f} % of depth"
            )
    progress(len(chunks), len(chunks))
    ordered = [pieces[view] for view in range(len(images))]
    return _assemble(ordered, cameras, names, sources, known or KnownGeometry(), notes)


MAX_DISAGREEMENT = 0.1


def _assemble(
    pieces: Sequence[ViewPiece],
    cameras: Sequence[Camera],
    names: Sequence[str] | None,
    sources: Sequence[str] | None,
    known: KnownGeometry,
    notes: list[str],
) -> Reconstruction:
    """In the world and the unit that are known, at the photographs' own pixels."""
    poses: Sequence[Pose | None] = known.poses or [None] * len(pieces)
    metrics: dict[str, Any] = {}
    unit: Unit = "unknown"
    if sum(pose is not None for pose in poses) >= 2:
        aligned = align_to_poses([piece.pose for piece in pieces], poses)
        pieces = [piece.transform(aligned.similarity) for piece in pieces]
        metrics = aligned.to_metrics()
        unit = "metre" if known.metric else "unknown"
    elif known.metric:
        raise ValueError("poses in metres were announced, but fewer than two views have a known pose")
    if known.distance is not None:
        if metrics:
            raise ValueError(
                "known poses fix the scale already: leave out the known distance, or the alignment"
            )
        one, other, length = known.distance
        scale = scale_to_distance(pieces[one].pose, pieces[other].pose, length)
        pieces, unit = [piece.transform(scale) for piece in pieces], "metre"
    views = tuple(
        _restore_view(
            piece,
            cameras[number],
            names[number] if names else f"view{number:03d}.png",
            sources[number] if sources else "given",
            poses[number],
        )
        for number, piece in enumerate(pieces)
    )
    if known.truth:
        metrics |= score_views(views, known.truth)
    return Reconstruction(views, unit, metrics, tuple(notes))


def _restore_view(
    piece: ViewPiece, camera: Camera, name: str, source: str, true_pose: Pose | None
) -> ResultView:
    maps = torch.stack([piece.ray_depth, piece.confidence], -1)
    height, width = piece.valid.shape
    values, valid = restore_maps(
        maps, piece.valid, camera.width, camera.height, (0.0, 0.0, float(width), float(height))
    )
    valid = valid & camera.unproject_grid()[1]
    depth, confidence = (values * valid[..., None]).unbind(-1)
    return ResultView(name, camera, piece.pose, depth, confidence, valid, source, true_pose)
