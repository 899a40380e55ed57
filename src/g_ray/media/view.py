"""One view: a photograph with the camera that took it, and what else is known of it, from the reader to the score."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile, convert_to_ray_depth, resize_depth
from g_ray.media.images import (
    TURNED,
    open_photo,
    read_header,
    read_orientation,
    read_photo,
    read_photo_size,
    rotate_upright,
)
from g_ray.media.photos import Loadable, Photo, fit_size, has_same_aspect, orient_photo, reduce_image
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import resample_image
from g_ray.runtime.files import atomic_path

ESTIMATED_BY = "estimated by "
"""How the source of an estimated calibration begins."""
WHOLE = 0.999
"""Share of a reduced pixel that the mask must leave for the pixel to be used."""

Image = Path | Loadable | Float[Tensor, "3 _ _"]
"""A file of stored pixels, a photograph that can be loaded, or red, green and blue in [0, 1]."""
Mask = Loadable | Bool[Tensor, "_ _"]
"""Pixels of a photograph that may be used, loaded or not."""


@dataclass(frozen=True, eq=False)
class View:
    """A camera with its name, and what is known of its view. Pixels are read when they are needed.

    A view describes a photograph, a device of a rig, or a camera that an image is made for; whatever is not known is
    None. What a model finds out is a `ReconstructedView`.
    """

    name: str
    """Name of the photograph, e.g. "dslr/a.jpg", or of the device in a file about a rig."""
    camera: Camera
    """The lens at the image's size; pixels count from the top-left corner. float64 from files, float32 for ray maps."""
    pose: Pose | None = None
    """`world_from_cam` with OpenCV axes, in the world and the unit of the source."""
    source: str | None = None
    """Human-readable origin of the calibration: "fisheye.yaml (OpenCV)"."""
    image: Image | None = None
    """The photograph, in the orientation that the camera was calibrated for."""
    mask: Mask | None = None
    """Pixels of the image that may be used; None: all. Pixels without a ray need no mask: the camera knows them."""
    depth: DepthFile | Float[Tensor, "_ _"] | None = None
    """True depth: a file, or the distance along each pixel's ray, 0 where it is not known."""

    @property
    def is_estimated(self) -> bool:
        """Whether the camera, and the pose if there is one, were estimated from the photographs."""
        return (self.source or "").startswith(ESTIMATED_BY)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.camera.height, self.camera.width

    @property
    def device(self) -> torch.device:
        return self.camera.device

    def get_pose(self) -> Pose:
        """Return the pose; ValueError if it is not known."""
        if self.pose is None:
            raise ValueError(f"view {self.name!r} has no pose")
        return self.pose

    def load_image(self) -> Float[Tensor, "3 h w"]:
        """Return red, green and blue in [0, 1]; ValueError if there is no image or its size is not the camera's."""
        if self.image is None:
            raise ValueError(f"view {self.name!r} has no photograph")
        if isinstance(self.image, Path):
            pixels = read_photo(self.image)
            if tuple(pixels.shape[-2:]) != self.size:
                pixels = orient_for_camera(self.image, self.camera).load()
        else:
            pixels = self.image if isinstance(self.image, Tensor) else self.image.load()
        self._check_size("photograph", pixels)
        return pixels

    def load_mask(self) -> Bool[Tensor, "h w"] | None:
        """Return which pixels may be used, or None if all may; ValueError if the mask's size is not the camera's."""
        if self.mask is None:
            return None
        mask = self.mask if isinstance(self.mask, Tensor) else self.mask.load()
        self._check_size("mask", mask)
        return mask

    def load_ray_depth(self) -> Float[Tensor, "h w"]:
        """Return the true distance along each pixel's ray, 0 where it is not known; ValueError if none is.

        A depth map may be coarser or finer than the photograph. ValueError if it has another shape.
        """
        if self.depth is None:
            raise ValueError(f"view {self.name!r} has no depth")
        if isinstance(self.depth, Tensor):
            return self.depth
        depth = self.depth.read()
        check_depth_size(self.depth.path, depth, self.camera)
        size = (self.camera.width, self.camera.height)
        nearest = resize_depth(depth, size, *size, (0, 0, *size))
        along, _ = convert_to_ray_depth(nearest, RayMap(*self.camera.unproject_grid()), self.depth.convention)
        return along.float()

    def to(self, device: Any) -> "View":
        """Load the view onto a device."""
        mask, pose = self.load_mask(), self.pose
        return replace(
            self,
            camera=self.camera.to(device),
            pose=None if pose is None else pose.to(device),
            image=self.load_image().to(device),
            mask=None if mask is None else mask.to(device),
        )

    def expect_copy(self, long_side: int) -> None:
        """Announce that `limit_size` will need this size, so that it is made when the photograph is next decoded."""
        if isinstance(self.image, Photo):
            self.image.copies.expect(long_side)

    def limit_size(self, long_side: int) -> "View":
        """Load image and mask, and reduce them and the camera to at most `long_side` pixels on the longer side."""
        width, height = fit_size(self.camera.width, self.camera.height, long_side)
        if isinstance(self.image, Photo) and (self.image.height, self.image.width) == self.size:
            image = self.image.load_copy(long_side)
        else:
            image = reduce_image(self.load_image(), long_side)
        mask = self.load_mask()
        if (height, width) == self.size:
            return replace(self, image=image, mask=mask)
        if mask is not None:
            # A pixel that is partly masked out is not used.
            share = resample_image(mask[None].to(image), width, height)
            mask = share[0] > WHOLE
        return replace(self, camera=self.camera.resize(width, height), image=image, mask=mask)

    def _check_size(self, what: str, pixels: Tensor) -> None:
        height, width = pixels.shape[-2:]
        if (height, width) != self.size:
            raise ValueError(
                f"{self.name}: {what} of {width}×{height} px, but its camera takes "
                f"{self.camera.width}×{self.camera.height}; give the calibration of this size"
            )


@dataclass(frozen=True)
class MaskFile:
    """A mask on disk: not zero where a pixel may be used.

    It is turned by `orientation`, and resized to the photograph's `width` × `height` px.
    """

    path: Path
    width: int
    height: int
    orientation: int = 1

    @staticmethod
    def fit(path: Path, photo: Photo) -> "MaskFile":
        """Decide how the mask is turned, and check that its shape is the photograph's."""
        header = read_header(path)
        size = (photo.width, photo.height)
        turns = (
            [header.orientation]
            if header.orientation != 1
            else [photo.orientation if photo.upright else 1, 1]
        )
        for turn in turns:
            shape = (header.height, header.width) if turn in TURNED else (header.width, header.height)
            if has_same_aspect(shape, size):
                return MaskFile(path, *size, turn)
        raise ValueError(
            f"{path} is {header.width}×{header.height} px, {photo.name} {photo.width}×{photo.height}: "
            "not of one shape; make the mask for the photograph as it is"
        )

    def load(self) -> Bool[Tensor, "h w"]:
        """Read which pixels may be used; an error names a file that cannot be read or that leaves no pixel."""
        with open_photo(self.path) as image:
            # Colors of palettes and of gray with alpha; alpha itself is not a mask.
            values = np.asarray(image.convert("RGB") if image.mode in ("P", "LA", "RGBA", "PA") else image)
        used = torch.from_numpy(np.atleast_3d(values != 0).any(-1))
        used = rotate_upright(used[None], self.orientation)
        size = (self.height, self.width)
        if tuple(used.shape[1:]) != size:
            used = (
                torch.nn.functional.interpolate(used[None].float(), size=size, mode="nearest-exact")[0] > 0.5
            )
        if not bool(used.any()):
            raise ValueError(
                f"{self.path}: this mask hides the whole photograph; leave the photograph out instead"
            )
        return used[0].contiguous()


def orient_for_camera(path: Path, camera: Camera) -> Photo:
    """Return a photograph in the orientation of its camera's calibration; ValueError if neither has its size.

    The tools that write scene folders ignore EXIF orientation, so that stored pixels are tried first.
    """
    photo = orient_photo(Photo.from_file(path, path.name), (camera.width, camera.height), ignores_exif=True)
    if (photo.width, photo.height) != (camera.width, camera.height):
        turned = (photo.height, photo.width) == (camera.width, camera.height)
        hint = "it is stored turned by 90°" if turned else "resize image and calibration together"
        raise ValueError(
            f"{path} is {photo.width}×{photo.height} px, but its camera takes {camera.width}×{camera.height}: {hint}"
        )
    return photo


def check_depth_size(path: Path, depth: Float[Tensor, "h w"], camera: Camera) -> None:
    """Check that a depth map has the shape of its photograph; it may be coarser or finer."""
    height, width = depth.shape
    wrong = max(
        abs(width * camera.height / camera.width - height), abs(height * camera.width / camera.height - width)
    )
    if wrong > 1:
        raise ValueError(
            f"{path} is {width}×{height} px, its photograph {camera.width}×{camera.height}: not of one shape; "
            "make depth maps for the photographs as they are"
        )


# Photographs in the folder of a reconstruction: upright, 8 bits, of the size that their camera has.


COPIED = (".jpg", ".jpeg", ".png")
"""Suffixes of photographs that are copied instead of encoded again."""
JPEG_QUALITY = 95


def store_image(image: Image, path: Path, camera: Camera) -> None:
    """Write a photograph to `path`: a file is copied bit by bit if it can be, and encoded again if not."""
    if isinstance(image, Photo) and image.time is None and image.orientation == 1:
        image = image.path if image.path.suffix.lower() in COPIED else image
    if isinstance(image, Path):
        if image.absolute() == path.absolute():
            return
        _check_stored_size(path, camera, *read_photo_size(image))
        if _can_copy(image, path):
            with atomic_path(path) as scratch:
                shutil.copyfile(image, scratch)
            return
    pixels = read_photo(image) if isinstance(image, Path) else image
    pixels = pixels if isinstance(pixels, Tensor) else pixels.load()
    _check_stored_size(path, camera, pixels.shape[2], pixels.shape[1])
    rounded = (255 * pixels.clamp(0, 1)).round().byte().movedim(0, -1).numpy(force=True)
    with atomic_path(path) as scratch:
        PIL.Image.fromarray(rounded).save(
            scratch, quality=JPEG_QUALITY
        )  # lossless formats ignore the quality


def _can_copy(photo: Path, path: Path) -> bool:
    with open_photo(photo) as image:
        orientation, mode = read_orientation(image), image.mode
    # A copied orientation tag would turn the pixels again in every program that opens the copy.
    if orientation != 1:
        raise ValueError(f"{photo} is stored turned (EXIF orientation); give its upright pixels instead")
    return mode == "RGB" and photo.suffix.lower() == path.suffix.lower()


def _check_stored_size(path: Path, camera: Camera, width: int, height: int) -> None:
    if (width, height) != (camera.width, camera.height):
        raise ValueError(
            f"{path}: a photograph of {width}×{height} px, but its camera takes {camera.width}×{camera.height}"
        )
