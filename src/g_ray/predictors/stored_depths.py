"""Depth maps that an interrupted run has left, found again by what they were computed from."""

import hashlib
import zipfile
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from g_ray.media.view import View
from g_ray.runtime.files import atomic_path
from g_ray.stereo import DepthMap, SparsePoints


class StoredDepths(MutableMapping[int, DepthMap]):
    """Depth maps of an unfinished run by the number of the view; a damaged file counts as missing."""

    ARRAYS = ("ray_depth", "confidence", "valid", "candidates")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, view: int) -> DepthMap:
        try:
            with np.load(self._get_path(view), allow_pickle=False) as stored:
                return DepthMap(*(torch.from_numpy(stored[name]) for name in self.ARRAYS))
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            raise KeyError(view) from None

    def __setitem__(self, view: int, depth: DepthMap) -> None:
        candidates = torch.zeros_like(depth.ray_depth) if depth.candidates is None else depth.candidates
        depth = replace(depth, candidates=candidates)
        arrays = {name: getattr(depth, name).numpy(force=True) for name in self.ARRAYS}
        with atomic_path(self._get_path(view)) as scratch, scratch.open("wb") as file:
            np.savez(file, **arrays)

    def __delitem__(self, view: int) -> None:
        self._get_path(view).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[int]:
        return (int(path.stem) for path in sorted(self.folder.glob("*.npz")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _get_path(self, view: int) -> Path:
        return self.folder / f"{view:05d}.npz"


def hash_geometry(views: Sequence[View], points: SparsePoints | None) -> str:
    """Return a digest of the lenses, poses and points that depth is computed from: with others it is not the same."""
    digest = hashlib.sha256()
    for view in views:
        digest.update(view.camera.compute_digest().encode())
        digest.update(view.get_pose().world_from_cam.numpy(force=True).tobytes())
    if points is not None:
        digest.update(points.positions.numpy(force=True).tobytes())
    return digest.hexdigest()[:16]
