"""Read RealEstate10K: clips in pixelSplat's chunks or LVSM's folders."""

import json
import pickle
import struct
import zipfile
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from PIL import Image
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.media.images import FORMATS
from g_ray_lab.datasets.torch_archive import StoredTensor, read_layout

Axes = Literal["opencv", "blender"]
"""Camera axes of the poses in the files: x right, y down, z forward; or x right, y up, z backward."""


@dataclass(frozen=True)
class ClipFrame:
    """A picture and its camera."""

    image: Float[Tensor, "3 h w"]  # in [0, 1]
    camera: Pinhole


@dataclass(frozen=True)
class Clip:
    """A video with a camera and a pose per frame; pictures are decoded when used."""

    key: str
    poses: Pose  # [frame], OpenCV axes, world_from_cam
    frame: Callable[[int], ClipFrame]

    def __len__(self) -> int:
        return len(self.poses.world_from_cam)


class Clips(ABC):
    """The clips of one split. A damaged file is a ValueError or OSError that names it, the clip and the frame."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Return the names of the clips, sorted."""

    @abstractmethod
    def get_clip(self, key: str) -> Clip:
        """Return a clip by its name."""

    def order_by_file(self) -> tuple[str, ...]:
        """Return the keys in an order in which every file is opened once."""
        return self.keys


def convert_poses(cam_from_world: Float[Tensor, "frame 4 4"], axes: Axes, where: str) -> Pose:
    """Convert poses of a file, whose camera axes are `axes`, to OpenCV axes.

    pixelSplat's and LVSM's own files have OpenCV axes. Only pictures can tell: see `sources.axes_check`.
    """
    rotation = cam_from_world[:, :3, :3]
    error = (rotation @ rotation.mT - torch.eye(3, dtype=rotation.dtype)).abs().amax((1, 2))
    wrong = ~(
        torch.isfinite(cam_from_world).all(2).all(1) & (error < 1e-2) & (torch.linalg.det(rotation) > 0)
    )
    if wrong.any():
        raise ValueError(
            f"{where}, frame {int(wrong.nonzero()[0])}: the pose is no rotation with a translation; "
            "prepare this clip again or leave it out"
        )
    if axes == "blender":
        # The same camera with its y and z axes reversed: rows of cam_from_world.
        cam_from_world = cam_from_world * cam_from_world.new_tensor([1.0, -1.0, -1.0, 1.0])[:, None]
    return Pose(cam_from_world).inverse()


def decode_frame(encoded: bytes, intrinsics: Tensor, normalized: bool, where: str) -> ClipFrame:
    """Make a frame from JPEG or PNG bytes and fx, fy, cx, cy, in pixels or in units of the picture's size."""
    image = decode_image(encoded, where)
    height, width = image.shape[-2:]
    unit = intrinsics.new_tensor([width, height, width, height]) if normalized else 1
    fx, fy, cx, cy = (intrinsics * unit).tolist()
    if not (fx > 0 and fy > 0 and 0 < cx < width and 0 < cy < height):
        raise ValueError(
            f"{where}: fx {fx:.6g}, fy {fy:.6g}, cx {cx:.6g}, cy {cy:.6g} px do not belong to a picture of "
            f"{width}×{height} px; picture and camera must be resized together"
        )
    return ClipFrame(image, Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy))


def decode_image(encoded: bytes, where: str) -> Float[Tensor, "3 h w"]:
    try:
        with Image.open(BytesIO(encoded), formats=FORMATS) as picture:
            pixels = np.array(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: the picture cannot be read ({error})") from None
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def resolve_inside(folder: Path, name: str, where: str) -> Path:
    """Return the path of a file by its name in the data set; ValueError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{where} names the file {name!r}, which is not inside {folder}: mend the entry")
    return folder / path


# pixelSplat's layout: `{split}/index.json` (clip → chunk) and chunks `*.torch` with many clips each.
#
# A chunk is a list of dictionaries: key, url, timestamps, cameras [frame 18] = fx fy cx cy in units of the picture's
# size, 0, 0, camera_from_world 3×4 row by row, and images, the bytes of one JPEG per frame.


KEPT = 8192
"""Chunks whose layout is remembered: 12 bytes a picture, 30 kB a chunk."""


class ClipTable(NamedTuple):
    """Where a clip lies in its chunk."""

    cameras: StoredTensor
    starts: Int64[np.ndarray, "frame"]
    """First byte of each encoded picture."""
    sizes: Int32[np.ndarray, "frame"]
    """Bytes of each encoded picture."""


@dataclass(frozen=True)
class ChunkClips(Clips):
    """Clips in chunks, of which only the pictures that are used are read from disk.

    Where they lie is found out once per chunk, which takes longer than reading and decoding the pictures of a scene.
    """

    folder: Path
    axes: Axes = "opencv"
    chunks: dict[str, str] = field(init=False, repr=False)
    _tables: "OrderedDict[str, dict[str, ClipTable | str]]" = field(
        init=False, repr=False, compare=False, default_factory=OrderedDict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", _read_index(self.folder / "index.json"))

    def __reduce__(self) -> Any:
        """Leave the layout of chunks out when the object is sent to another process."""
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
        table = self._get_tables(self.chunks[key], path).get(key)
        where = f"{path}, clip {key}"
        if table is None:
            raise ValueError(
                f"{path} has no clip {key}, although index.json lists it: download or convert it again"
            )
        if isinstance(table, str):
            raise ValueError(f"{where}: {table}")
        cameras = table.cameras.load(path).double()

        def frame(number: int) -> ClipFrame:
            picture = StoredTensor(int(table.starts[number]), torch.uint8, (int(table.sizes[number]),))
            encoded = picture.read_bytes(path)
            return decode_frame(encoded, cameras[number, :4], True, f"{where}, frame {number}")

        bottom = cameras.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(len(cameras), 1, 4)
        matrices = torch.cat([cameras[:, 6:].reshape(-1, 3, 4), bottom], 1)
        return Clip(key, convert_poses(matrices, self.axes, where), frame)

    def _get_tables(self, name: str, path: Path) -> "dict[str, ClipTable | str]":
        """Return the clips of a chunk by key; the layout that was not used for longest is forgotten."""
        if name in self._tables:
            self._tables.move_to_end(name)
        else:
            self._tables[name] = {key: _make_table(entry) for key, entry in read_chunk(path).items()}
            while len(self._tables) > KEPT:
                self._tables.popitem(last=False)
        return self._tables[name]


def read_chunk(path: Path) -> dict[str, Any]:
    """Read the layout of a chunk by clip. Only tensors and plain values are unpickled: a chunk cannot run code."""
    try:
        entries = read_layout(path)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path} holds more than tensors and plain values, or is damaged, and is not opened: download it again"
        ) from None
    except (FileNotFoundError, PermissionError):
        raise
    except (*DAMAGE, OSError) as error:
        reason = " ".join(str(error).split()[:12])
        raise ValueError(
            f"{path} is damaged, or older than torch 1.6 ({reason}): download it again, or load and save it with torch"
        ) from None
    if not isinstance(entries, list) or not all(isinstance(e, dict) and "key" in e for e in entries):
        raise ValueError(f"{path} is not a chunk of RealEstate10K: expected a list of clips with their keys")
    return {entry["key"]: entry for entry in entries}


DAMAGE = (zipfile.BadZipFile, RuntimeError, ValueError, LookupError, EOFError, TypeError, struct.error)
"""What reading a damaged archive raises."""


def _read_index(path: Path) -> dict[str, str]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): download it again") from None
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise ValueError(f'{path}: expected {{"clip": "chunk.torch", …}}')
    return index


def _make_table(entry: dict[str, Any]) -> ClipTable | str:
    """Return where a clip lies in its chunk, or what is wrong with it: other clips of the chunk can be used."""
    cameras, images = entry.get("cameras"), entry.get("images")
    if (
        not isinstance(cameras, StoredTensor)
        or len(cameras.shape) != 2
        or cameras.shape[1] != 18
        or not cameras.dtype.is_floating_point
    ):
        return "cameras must be a tensor [frame, 18]"
    if not isinstance(images, list) or not all(
        isinstance(i, StoredTensor) and i.dtype == torch.uint8 for i in images
    ):
        return "images must be a list of byte tensors, one encoded picture each"
    if len(images) != cameras.shape[0]:
        return f"{len(images)} pictures but {cameras.shape[0]} cameras"
    starts = np.array([image.start for image in images], dtype=np.int64)
    return ClipTable(cameras, starts, np.array([image.nbytes for image in images], dtype=np.int32))


# LVSM's layout: `{split}/images/<clip>/%05d.png`, `{split}/metadata/<clip>.json` and `{split}/full_list.txt`.
#
# The metadata's frames have image_path, fxfycxcy in pixels and w2c 4×4. Paths in these files are often absolute and of
# the machine that made them: what counts is the part below `images/` and `metadata/`.


@dataclass(frozen=True)
class FolderClips(Clips):
    """Clips as folders of pictures."""

    folder: Path
    axes: Axes = "opencv"
    listed: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "listed", _list_clips(self.folder))

    @property
    def keys(self) -> tuple[str, ...]:
        return self.listed

    def get_clip(self, key: str) -> Clip:
        path = resolve_inside(self.folder, f"metadata/{key}.json", f"clip {key!r}")
        frames = _read_frames(path)
        matrices = torch.tensor([frame["w2c"] for frame in frames], dtype=torch.float64)
        intrinsics = torch.tensor([frame["fxfycxcy"] for frame in frames], dtype=torch.float64)

        def frame(number: int) -> ClipFrame:
            where = f"{path}, frame {number}"
            picture = self._find_picture(frames[number]["image_path"], key, where)
            return decode_frame(picture.read_bytes(), intrinsics[number], False, f"{picture}, clip {key}")

        return Clip(key, convert_poses(matrices, self.axes, str(path)), frame)

    def _find_picture(self, image_path: str, key: str, where: str) -> Path:
        parts = PurePosixPath(image_path.replace("\\", "/")).parts
        below = len(parts) - parts[::-1].index("images") if "images" in parts else 0
        relative = "/".join(parts[below:]) if below else f"{key}/{image_path}"
        return resolve_inside(self.folder / "images", relative, where)


def _list_clips(folder: Path) -> tuple[str, ...]:
    """List the clips of full_list.txt that exist, or all existing clips if there is no such file."""
    there = {path.stem for path in (folder / "metadata").glob("*.json")}
    full_list = folder / "full_list.txt"
    if full_list.is_file():
        lines = full_list.read_text(encoding="utf-8").split()
        there &= {PurePosixPath(line.replace("\\", "/")).stem for line in lines}
    return tuple(sorted(there))


def _read_frames(path: Path) -> list[dict[str, Any]]:
    try:
        frames = json.loads(path.read_text(encoding="utf-8"))["frames"]
        for number, frame in enumerate(frames):
            rows = [len(row) for row in frame["w2c"]]
            if rows != [4] * 4 or len(frame["fxfycxcy"]) != 4 or not isinstance(frame["image_path"], str):
                raise ValueError(f"frame {number} needs image_path, fxfycxcy [4] and w2c [4, 4]")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not the metadata of a clip: {error}") from None
    except KeyError as error:
        raise ValueError(f"{path} is not the metadata of a clip: {error} is missing") from None
    if not frames:
        raise ValueError(f"{path} has no frames: remove the clip")
    return frames


# Which of the layouts a folder has.


EXPECTED = (
    "expected {split}/index.json with {split}/*.torch (pixelSplat's chunks, see its README for the download) or "
    "{split}/metadata/*.json with {split}/images/ (LVSM's conversion of them)"
)


def open_clips(root: Path, split: str, axes: Axes = "opencv") -> Clips:
    """Open the clips of a split, in either layout."""
    folder = root / split
    if (folder / "index.json").is_file():
        clips: Clips = ChunkClips(folder, axes)
    elif (folder / "metadata").is_dir():
        clips = FolderClips(folder, axes)
    else:
        raise ValueError(f"no RealEstate10K at {root}: {EXPECTED.replace('{split}', split)}")
    if not clips.keys:
        raise ValueError(f"{folder} has no clips: {EXPECTED.replace('{split}', split)}")
    return clips
