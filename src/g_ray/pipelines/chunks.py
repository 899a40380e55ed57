"""Run a predictor over many views, a few at a time: chunks that share views, and are kept on disk when finished."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from g_ray.cameras.base import Camera
from g_ray.export.reconstruction import ReconstructedView
from g_ray.formats.calibration import CalibratedView
from g_ray.geometry.pose import Pose
from g_ray.pipelines.predictors import Predictor
from g_ray.runtime.files import atomic_path, write_json

OVERLAP = 3
"""Views that neighboring chunks share: enough for a robust scale."""
MIN_CHUNK = OVERLAP + 1
"""Smallest chunk that adds a view to those that it shares."""
FOLDER, KEY = "unfinished", "settings.json"
ARRAYS = ("ray_depth", "confidence", "valid", "world_from_cam")


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


class PartialResults:
    """FOLDER/unfinished: a file per finished chunk, and the settings that they were computed with."""

    def __init__(self, out: Path, key: dict[str, Any]) -> None:
        """Open or create the folder; `key` is everything that changes a chunk.

        ValueError if it has chunks of another key: they must not be mixed.
        """
        self.folder = out / FOLDER
        stored_key = json.loads(json.dumps(key))
        path = self.folder / KEY
        if path.is_file():
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = [name for name in {**before, **stored_key} if before.get(name) != stored_key.get(name)]
            if changed:
                raise ValueError(
                    f"{out} holds an unfinished run with other {', '.join(changed)}: "
                    "repeat its command, choose another --out, or delete the folder"
                )
        else:
            write_json(path, stored_key)

    def load(
        self, chunk: int, numbers: Sequence[int], views: Sequence[CalibratedView]
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

    def count_finished(self) -> int:
        """Count finished chunks, from the first one without a gap."""
        number = 0
        while self._get_path(number).is_file():
            number += 1
        return number

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _get_path(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:04d}.npz"


def predict_chunks(
    predict: Predictor,
    views: Sequence[CalibratedView],
    chunks: Sequence[Sequence[int]],
    work: PartialResults | None = None,
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


def hash_camera(camera: Camera) -> str:
    """Return a digest that changes with any number of a calibration, whatever its model: of rays over the image."""
    rays = camera.resize(8, 8).unproject_grid()[0]
    return hashlib.sha256(rays.to(torch.float64).numpy(force=True).tobytes()).hexdigest()[:16]


def _restore_view(
    view: CalibratedView,
    ray_depth: torch.Tensor,
    confidence: torch.Tensor,
    valid: torch.Tensor,
    pose: torch.Tensor,
) -> ReconstructedView:
    """Build a view from stored arrays; its camera is that of the photograph, at the size of the depth map."""
    camera = view.camera.resize(ray_depth.shape[1], ray_depth.shape[0])
    return ReconstructedView(view.name, camera, Pose(pose), ray_depth, confidence, valid)
