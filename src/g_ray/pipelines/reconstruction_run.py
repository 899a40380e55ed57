"""Reconstruct into a folder: plan the chunks, resume an interrupted run, keep finished views on Ctrl-C, write files."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from g_ray.export.options import ExportOptions
from g_ray.export.reconstruction import RESULT, Reconstruction, write_views
from g_ray.formats.calibration import CalibratedView
from g_ray.formats.images import PhotoLike
from g_ray.formats.photos import Photo
from g_ray.models.checkpoint import find_file
from g_ray.pipelines import planning
from g_ray.pipelines.chunks import MIN_CHUNK, PartialResults, hash_camera, split_into_chunks
from g_ray.pipelines.inputs import KnownGeometry
from g_ray.pipelines.predictors import WEIGHTS, NetworkPredictor, load_network
from g_ray.pipelines.reconstruction import reconstruct_views

GIB = 2**30
COPIED = (".jpg", ".jpeg", ".png")
"""Suffixes of photographs that are copied instead of encoded again."""


@dataclass(frozen=True)
class NetworkSettings:
    """How the network is run."""

    weights: str = WEIGHTS
    size: int | None = None
    """Long side of its input in pixels; by default that of its training."""
    device: str = "auto"
    precision: Literal["fp32", "bf16"] = "fp32"
    max_memory: float | int | None = None
    """GiB that the network may take; decides how many views a chunk has."""
    at_once: int | None = None
    """Views in a chunk, instead of as many as the memory allows."""

    def __post_init__(self) -> None:
        if self.at_once is not None and self.at_once < MIN_CHUNK:
            raise ValueError(f"--at-once {self.at_once}: chunks need {MIN_CHUNK} views or more to be joined")


def run_reconstruction(
    views: Sequence[CalibratedView],
    known: KnownGeometry,
    settings: NetworkSettings,
    out: Path,
    options: ExportOptions,
    *,
    report: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> Reconstruction:
    """Reconstruct views into the folder `out`, or resume there; `report` is called with sentences for users.

    On Ctrl-C the views of finished chunks are written, so that they can be looked at, and KeyboardInterrupt is raised
    again.
    """
    if (out / RESULT).is_file():
        raise ValueError(f"{out} holds a finished result: choose another --out, or delete it")
    model = load_network(settings.weights, settings.device)
    predict = NetworkPredictor(model, settings.size or model.config.long_side, settings.precision)
    at_once = plan_chunks(predict, views, settings, report)
    work = PartialResults(out, make_resume_key(views, settings, at_once))

    def reconstruct_first(count: int) -> Reconstruction:
        return reconstruct_views(
            views[:count],
            predict,
            known=known if count == len(views) else known.select_first(count),
            at_once=at_once,
            work=work,
            progress=progress,
        )

    try:
        scene = reconstruct_first(len(views))
    except KeyboardInterrupt:
        finished = split_into_chunks(len(views), at_once)[: work.count_finished()]
        if finished:
            part = reconstruct_first(finished[-1][-1] + 1)
            write_views(out, part.views, [get_stored_photo(view) for view in views[: len(part.views)]])
            report(
                f"\n{len(part.views)} of {len(views)} views are in {out}; the same command resumes the run"
            )
        raise
    report("\nwriting files")
    stored = scene.save(
        out,
        [get_stored_photo(view) for view in views],
        options,
        {
            "weights": str(settings.weights),
            "method": model.config.method,
            "size": predict.size,
            "precision": settings.precision,
            "export": asdict(options),
        },
    )
    work.clear()
    return stored


def plan_chunks(
    predict: NetworkPredictor,
    views: Sequence[CalibratedView],
    settings: NetworkSettings,
    report: Callable[[str], None],
) -> int:
    """Return the number of views in a chunk, and report what the run will cost."""
    model = predict.model
    weights = planning.count_weights(model)
    patches = planning.count_patches([view.camera for view in views], predict.size, model.config.patch)
    at_once = min(settings.at_once or len(views), len(views))
    if settings.max_memory is not None:
        memory = int(settings.max_memory * GIB)
        at_once = planning.find_chunk_size(model.config, weights, patches, memory, MIN_CHUNK)
    chunks = [
        planning.estimate_chunk_cost(model.config, weights, [patches[view] for view in chunk])
        for chunk in split_into_chunks(len(views), at_once)
    ]
    speed = planning.EFFICIENCY * planning.measure_operations_per_second(next(model.parameters()).device)
    seconds = sum(chunk.operations for chunk in chunks) / speed
    memory = max(chunk.memory for chunk in chunks) / GIB
    parts = "one chunk" if len(chunks) == 1 else f"{len(chunks)} chunks of {at_once}"
    duration = planning.format_estimate(seconds)
    report(
        f"{len(views)} views in {parts} at {predict.size} px: about {duration} for the network, {memory:.2g} GiB"
    )
    return at_once


def make_resume_key(
    views: Sequence[CalibratedView], settings: NetworkSettings, at_once: int
) -> dict[str, Any]:
    """Collect everything that changes a chunk; a run with another key cannot resume."""
    files = {str(path): path.stat() for path in (_get_photo(view).path for view in views)}
    weights = find_file(settings.weights)
    return {
        "photographs": [view.name for view in views],
        "files": {path: [stat.st_size, stat.st_mtime_ns] for path, stat in files.items()},
        "calibration": [[view.source, hash_camera(view.camera)] for view in views],
        "weights": [str(settings.weights), weights.stat().st_size, weights.stat().st_mtime_ns],
        "size": settings.size,
        "precision": settings.precision,
        "at_once": at_once,
    }


def get_stored_photo(view: CalibratedView) -> PhotoLike:
    """Return the file of a photograph if it can be copied as it is, or its pixels."""
    photo = _get_photo(view)
    plain = photo.time is None and not photo.is_turned and photo.path.suffix.lower() in COPIED
    return photo.path if plain and photo.orientation == 1 else photo.load()


def _get_photo(view: CalibratedView) -> Photo:
    if not isinstance(view.photo, Photo):
        raise ValueError(f"view {view.name!r} has no photograph on disk")
    return view.photo
