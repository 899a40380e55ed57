"""What a clip of RealEstate10K is, whichever files it lies in."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose

Axes = Literal["opencv", "blender"]
"""Camera axes of the poses in the files: x right, y down, z forward; or x right, y up, z backward."""


@dataclass(frozen=True)
class Frame:
    """A picture and the camera that took it."""

    image: Float[Tensor, "3 h w"]  # in [0, 1]
    camera: Pinhole


@dataclass(frozen=True)
class Clip:
    """A video with a camera and a pose per frame; pictures are decoded when asked for."""

    key: str
    poses: Pose  # [frame], OpenCV axes, world_from_cam
    frame: Callable[[int], Frame]

    def __len__(self) -> int:
        return len(self.poses.world_from_cam)


class Clips(ABC):
    """The clips of one split. A damaged file is a ValueError or OSError that names it, the clip and the frame."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Names of the clips, sorted."""

    @abstractmethod
    def get_clip(self, key: str) -> Clip:
        """One of them."""

    def order_by_file(self) -> tuple[str, ...]:
        """The keys in an order in which every file is opened once."""
        return self.keys


def convert_poses(cam_from_world: Float[Tensor, "frame 4 4"], axes: Axes, where: str) -> Pose:
    """Poses of a file, whose camera axes are `axes`, as this project writes them.

    pixelSplat's and LVSM's own files have OpenCV axes. Only pictures can tell: see `g_ray.data.checks.axes`.
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


def decode_frame(encoded: bytes, intrinsics: Tensor, normalized: bool, where: str) -> Frame:
    """A frame from JPEG or PNG bytes and fx, fy, cx, cy, in pixels or in units of the picture's size."""
    image = decode_image(encoded, where)
    height, width = image.shape[-2:]
    unit = intrinsics.new_tensor([width, height, width, height]) if normalized else 1
    fx, fy, cx, cy = (intrinsics * unit).tolist()
    if not (fx > 0 and fy > 0 and 0 < cx < width and 0 < cy < height):
        raise ValueError(
            f"{where}: fx {fx:.6g}, fy {fy:.6g}, cx {cx:.6g}, cy {cy:.6g} px do not belong to a picture of "
            f"{width}×{height} px; picture and camera must be resized together"
        )
    return Frame(image, Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy))


def decode_image(encoded: bytes, where: str) -> Float[Tensor, "3 h w"]:
    try:
        with Image.open(BytesIO(encoded)) as picture:
            pixels = np.array(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: the picture cannot be read ({error})") from None
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def resolve_inside(folder: Path, name: str, where: str) -> Path:
    """A file of the data set by the name that it is given there; names that lead out of the folder are refused."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{where} names the file {name!r}, which is not inside {folder}: mend the entry")
    return folder / path
