"""Run a model of a few views over many: chunks that share views, are kept on disk when finished, and are joined."""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_robustly
from g_ray.media.view import View
from g_ray.predictors.model_settings import OVERLAP
from g_ray.runtime.files import atomic_path

ARRAYS = ("ray_depth", "confidence", "valid", "world_from_cam")
SAMPLES = 20_000
"""Pixels of the shared views that determine a similarity; more do not make it better."""
MAX_DISAGREEMENT = 0.1
"""Relative depth difference between two chunks beyond which a warning is issued."""

FewViews = Callable[[Sequence[View]], list[ReconstructedView]]
"""Predicts views that fit into memory together, in a world of their own."""


def split_into_chunks(count: int, size: int, overlap: int = OVERLAP) -> list[tuple[int, ...]]:
    """Split `count` views, in their order, into chunks of at most `size`; each shares `overlap` with the one before.

    The last chunk is as large as the others: it shares more views rather than being short of them.
    """
    if count < 1:
        raise ValueError("no views to reconstruct")
    if size >= count:
        return [tuple(range(count))]
    if not 1 <= overlap < size:
        raise ValueError(
            f"chunks of {size} views cannot share {overlap} and add new ones: allow more views at a time"
        )
    starts = [*range(0, count - size, size - overlap), count - size]
    return [tuple(range(start, start + size)) for start in starts]


class StoredChunks:
    """A file per finished chunk in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(
        self, chunk: int, numbers: Sequence[int], views: Sequence[View]
    ) -> list[ReconstructedView] | None:
        """Load a chunk with the views of these numbers; None if it is not finished, or its file is damaged."""
        try:
            with np.load(self._get_path(chunk), allow_pickle=False) as stored:
                return [
                    _restore_view(view, *(torch.from_numpy(stored[f"{number}.{name}"]) for name in ARRAYS))
                    for number, view in zip(numbers, views, strict=True)
                ]
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, chunk: int, numbers: Sequence[int], views: Sequence[ReconstructedView]) -> None:
        """Store the views of a chunk under their numbers in the whole set."""
        arrays = {}
        for number, view in zip(numbers, views, strict=True):
            parts = (view.ray_depth, view.confidence, view.valid, view.pose.world_from_cam)
            arrays |= {f"{number}.{name}": part.numpy() for name, part in zip(ARRAYS, parts, strict=True)}
        with atomic_path(self._get_path(chunk)) as scratch, scratch.open("wb") as file:
            np.savez(file, **arrays)

    def _get_path(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:04d}.npz"


def predict_chunks(
    predict: FewViews,
    views: Sequence[View],
    chunks: Sequence[Sequence[int]],
    work: StoredChunks | None = None,
    progress: Callable[[int, int], None] = lambda done, chunks: None,
) -> Iterator[list[ReconstructedView]]:
    """Yield the predicted views of each chunk, each in a world of its own; finished ones are loaded from `work`."""
    for number, chunk in enumerate(chunks):
        progress(number, len(chunks))
        inputs = [views[view] for view in chunk]
        predicted = None if work is None else work.load(number, chunk, inputs)
        if predicted is None:
            predicted = predict(inputs)
            if work is not None:
                work.save(number, chunk, predicted)
        yield predicted
    progress(len(chunks), len(chunks))


def _restore_view(
    view: View,
    ray_depth: torch.Tensor,
    confidence: torch.Tensor,
    valid: torch.Tensor,
    pose: torch.Tensor,
) -> ReconstructedView:
    """Build a view from stored arrays; its camera is that of the photograph, at the size of the depth map."""
    camera = view.camera.resize(ray_depth.shape[1], ray_depth.shape[0])
    return ReconstructedView(
        view.name, camera, Pose(pose), ray_depth, confidence, valid, photo_camera=view.camera
    )


# Joining


@dataclass(frozen=True, eq=False)
class JoinedChunk:
    """A chunk in the world of the first one."""

    new: tuple[ReconstructedView, ...]
    """Views that no earlier chunk had."""
    all: tuple[ReconstructedView, ...]
    disagreement: float
    """Median distance between the two chunks' points of shared views, as a share of their depth; 0 for the first."""


def join_chunks(chunks: Iterable[Sequence[ReconstructedView]]) -> tuple[list[ReconstructedView], list[str]]:
    """Join chunks that overlap, one after the other; returns all views in the first one's world, and notes."""
    views: list[ReconstructedView] = []
    notes = []
    before: tuple[ReconstructedView, ...] = ()
    for number, chunk in enumerate(chunks, 1):
        joined = join_chunk(before, chunk)
        before = joined.all
        views += joined.new
        if joined.disagreement > MAX_DISAGREEMENT:
            notes.append(
                f"chunk {number} disagrees with the one before by {100 * joined.disagreement:.0f} % of depth"
            )
    return views, notes


def join_chunk(before: Sequence[ReconstructedView], chunk: Sequence[ReconstructedView]) -> JoinedChunk:
    """Move a chunk so that the views it shares with `before` agree. A shared view stays as it was in `before`."""
    known = {view.name: view for view in before}
    shared = [view for view in chunk if view.name in known]
    if not before:
        return JoinedChunk(tuple(chunk), tuple(chunk), 0.0)
    if not shared:
        raise ValueError("chunks that share no view cannot be joined")
    # Pixels that disagree are mostly wrong depths at edges.
    similarity = fit_similarity_robustly(
        *_collect_common_points(shared, [known[view.name] for view in shared])
    )
    moved = tuple(view.transform(similarity) for view in chunk)
    new = tuple(view for view in moved if view.name not in known)
    here = [view for view in moved if view.name in known]
    return JoinedChunk(new, moved, _compute_disagreement(here, [known[view.name] for view in here]))


def _compute_disagreement(ours: Sequence[ReconstructedView], theirs: Sequence[ReconstructedView]) -> float:
    source, target, _ = _collect_common_points(ours, theirs)
    depth = torch.cat([view.ray_depth[view.valid] for view in theirs]).median()
    return float((source - target).norm(dim=-1).median() / depth)


def _collect_common_points(
    ours: Sequence[ReconstructedView], theirs: Sequence[ReconstructedView]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"], Float[Tensor, "n"]]:
    """Return points of the same pixels in both worlds, and the geometric mean of their confidences."""
    source, target, weight = [], [], []
    for one, other in zip(ours, theirs, strict=True):
        both = one.valid & other.valid
        source.append(one.points()[both])
        target.append(other.points()[both])
        weight.append((one.confidence * other.confidence)[both].sqrt())
    points = torch.cat(source)
    step = max(1, len(points) // SAMPLES)
    return points[::step], torch.cat(target)[::step], torch.cat(weight)[::step]
