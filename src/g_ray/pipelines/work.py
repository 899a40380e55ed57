"""What a run has finished: pieces of each chunk on disk, so that the same command goes on where it was."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from g_ray.cameras.base import Camera
from g_ray.geometry.pose import Pose
from g_ray.pipelines.alignment import ViewPiece
from g_ray.runtime.files import atomic_path, write_json

FOLDER, KEY = "unfinished", "settings.json"


class PartialResults:
    """FOLDER/unfinished: a file per chunk, and what they were made with."""

    def __init__(self, out: Path, key: dict[str, Any]) -> None:
        """`key` is everything that changes a piece; chunks of another key are refused, not mixed in."""
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

    def load(self, chunk: int, views: Sequence[int], cameras: Sequence[Camera]) -> list[ViewPiece] | None:
        """The pieces of a chunk, or None if it is not finished (or its file is damaged)."""
        try:
            with np.load(self._get_path(chunk), allow_pickle=False) as stored:
                return [
                    _make_piece(view, camera, *(torch.from_numpy(stored[f"{view}.{name}"]) for name in NAMES))
                    for view, camera in zip(views, cameras, strict=True)
                ]
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, chunk: int, pieces: Sequence[ViewPiece]) -> None:
        arrays = {}
        for piece in pieces:
            parts = (piece.ray_depth, piece.confidence, piece.valid, piece.pose.world_from_cam)
            arrays |= {f"{piece.view}.{name}": part.numpy() for name, part in zip(NAMES, parts, strict=True)}
        with atomic_path(self._get_path(chunk)) as scratch, scratch.open("wb") as file:
            np.savez(file, **arrays)

    def count_finished(self) -> int:
        """Chunks that are there, from the first one on without a gap."""
        number = 0
        while self._get_path(number).is_file():
            number += 1
        return number

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _get_path(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:04d}.npz"


NAMES = ("ray_depth", "confidence", "valid", "world_from_cam")


def _make_piece(
    view: int,
    camera: Camera,
    depth: torch.Tensor,
    confidence: torch.Tensor,
    valid: torch.Tensor,
    pose: torch.Tensor,
) -> ViewPiece:
    """Rays are not stored: the camera gives them at the size of the depth map."""
    rays = camera.resize(depth.shape[1], depth.shape[0]).unproject_grid()[0]
    return ViewPiece(view, rays.to(torch.float32), depth, confidence, valid, Pose(pose))


def hash_camera(camera: Camera) -> str:
    """Changes with any number of a calibration, whatever its model: of rays spread over the image."""
    rays = camera.resize(8, 8).unproject_grid()[0]
    return hashlib.sha256(rays.to(torch.float64).numpy(force=True).tobytes()).hexdigest()[:16]
