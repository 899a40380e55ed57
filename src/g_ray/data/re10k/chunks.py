"""pixelSplat's layout: `{split}/index.json` (clip → chunk) and chunks `*.torch` with many clips each.

A chunk is a list of dictionaries: key, url, timestamps, cameras [frame 18] = fx fy cx cy in units of the picture's
size, 0, 0, camera_from_world 3×4 row by row, and images, the bytes of one JPEG per frame.
"""

import json
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from g_ray.data.re10k.clips import Axes, Clip, Clips, Frame, convert_poses, decode_frame, resolve_inside

OPEN = 4
"""Chunks kept open."""


@dataclass(frozen=True)
class ChunkClips(Clips):
    """Clips in chunks. Chunks are mapped, not read: only the pictures that are asked for leave the disk."""

    folder: Path
    axes: Axes = "opencv"
    chunks: dict[str, str] = field(init=False, repr=False)
    _open: "OrderedDict[str, dict[str, Any]]" = field(
        init=False, repr=False, compare=False, default_factory=OrderedDict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", _read_index(self.folder / "index.json"))

    def __reduce__(self) -> Any:
        """Open chunks stay behind when a source goes to another process."""
        return ChunkClips, (self.folder, self.axes)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(self.chunks))

    def order_by_file(self) -> tuple[str, ...]:
        return tuple(sorted(self.chunks, key=lambda key: (self.chunks[key], key)))

    def get_clip(self, key: str) -> Clip:
        if key not in self.chunks:
            raise ValueError(f"{self.folder / 'index.json'} has no clip {key!r}")
        path = resolve_inside(self.folder, self.chunks[key], f"{self.folder / 'index.json'}, clip {key}")
        entry = self._load_chunk(self.chunks[key], path).get(key)
        if entry is None:
            raise ValueError(
                f"{path} has no clip {key}, though index.json says so: download or convert it again"
            )
        where = f"{path}, clip {key}"
        cameras, images = _parse_entry(entry, where)

        def frame(number: int) -> Frame:
            encoded = images[number].contiguous().numpy().tobytes()
            return decode_frame(encoded, cameras[number, :4], True, f"{where}, frame {number}")

        bottom = cameras.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(len(cameras), 1, 4)
        matrices = torch.cat([cameras[:, 6:].reshape(-1, 3, 4), bottom], 1)
        return Clip(key, convert_poses(matrices, self.axes, where), frame)

    def _load_chunk(self, name: str, path: Path) -> dict[str, Any]:
        """Clips of a chunk by key; the chunk longest unused is closed for a new one."""
        if name in self._open:
            self._open.move_to_end(name)
        else:
            self._open[name] = read_chunk(path)
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        return self._open[name]


def read_chunk(path: Path) -> dict[str, Any]:
    """What a chunk holds, by clip. Nothing but tensors and plain values is unpickled: a chunk cannot run code."""
    try:
        entries = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path} holds more than tensors and plain values, or is damaged, and is not opened: download it again"
        ) from None
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, RuntimeError, EOFError, IndexError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split()[:12])
        raise ValueError(f"{path} is damaged ({reason}): download it again") from None
    if not isinstance(entries, list) or not all(isinstance(e, dict) and "key" in e for e in entries):
        raise ValueError(f"{path} is not a chunk of RealEstate10K: expected a list of clips with their keys")
    return {entry["key"]: entry for entry in entries}


def _read_index(path: Path) -> dict[str, str]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): download it again") from None
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise ValueError(f'{path}: expected {{"clip": "chunk.torch", …}}')
    return index


def _parse_entry(entry: dict[str, Any], where: str) -> tuple[Tensor, list[Tensor]]:
    """Cameras in float64 and encoded pictures, one each per frame."""
    cameras, images = entry.get("cameras"), entry.get("images")
    if not isinstance(cameras, Tensor) or cameras.ndim != 2 or cameras.shape[1] != 18:
        raise ValueError(f"{where}: cameras must be a tensor [frame, 18]")
    if not isinstance(images, list) or not all(
        isinstance(i, Tensor) and i.dtype == torch.uint8 for i in images
    ):
        raise ValueError(f"{where}: images must be a list of byte tensors, one encoded picture each")
    if len(images) != len(cameras):
        raise ValueError(f"{where}: {len(images)} pictures but {len(cameras)} cameras")
    return cameras.double(), images
