"""Sources of images: files as stored, turned upright, frames of a video, and photographs without their distortion."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.masks import MaskFile
from g_ray.media.images import read_photo
from g_ray.media.video import read_frame, read_frame_times
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import resample
from g_ray_lab.datasets.evaluation_scene import (
    Framing,
    ImageSource,
    MaskSource,
    check_image_size,
    sample_mask,
)

FINER = 2
"""A photograph is undistorted at no less than this many pixels per pixel and axis that is wanted."""


@dataclass(frozen=True)
class StoredImage(ImageSource):
    """An image file, with its pixels turned clockwise by quarter turns; EXIF orientation is ignored."""

    path: Path
    turns: int = 0

    def load(self) -> Float[Tensor, "3 h w"]:
        return turn_pixels(read_photo(self.path), self.turns)

    def list_files(self) -> tuple[Path, ...]:
        return (self.path,)


@dataclass(frozen=True)
class VideoImage(ImageSource):
    """A frame of a video, counted from 0."""

    path: Path
    index: int

    def load(self) -> Float[Tensor, "3 h w"]:
        times = read_frame_times(self.path)
        if self.index >= len(times):
            raise OSError(f"{self.path}: {len(times)} frames, no frame {self.index}: download it again")
        return read_frame(self.path, times[self.index])

    def list_files(self) -> tuple[Path, ...]:
        return (self.path,)


@dataclass(frozen=True, eq=False)
class UndistortedImage(ImageSource):
    """An image as a camera with another lens in the same place would have taken it, by bilinear interpolation."""

    source: ImageSource
    source_camera: Camera
    camera: Camera

    def load(self) -> Float[Tensor, "3 h w"]:
        image = self.source.load()
        check_image_size(self.source, image, self.source_camera)
        return _warp(image, self.source_camera, self.camera)

    def load_framed(self, camera: Camera, framing: Framing) -> Float[Tensor, "3 h w"]:
        """Undistort the wanted part alone, of a photograph that is shrunk first: full-size ones have 33 megapixels."""
        image, source = self.source.load(), self.source_camera
        check_image_size(self.source, image, source)
        left, top, right, bottom = framing.box
        factor = max(1, int(min((right - left) / framing.width, (bottom - top) / framing.height) / FINER))
        if factor > 1:
            columns, rows = source.width // factor, source.height // factor
            image = F.avg_pool2d(image[:, : rows * factor, : columns * factor], factor)
            source = source.crop(0, 0, columns * factor, rows * factor).resize(columns, rows)
        # Only the wanted part is undistorted, at about the resolution of the shrunk photograph.
        width, height = (max(2, round(size / factor)) for size in (right - left, bottom - top))
        part = camera.resize(width, height, framing.box)
        return resample(_warp(image, source, part), part, framing.width, framing.height)[0]

    def list_files(self) -> tuple[Path, ...]:
        return self.source.list_files()


def _warp(image: Float[Tensor, "3 h w"], source: Camera, camera: Camera) -> Float[Tensor, "3 height width"]:
    """Look the rays of a camera up in an image of another one in the same place; black where it has none of them."""
    pixels, inside = locate_pixels(source, camera)
    # grid_sample counts from −1 to 1 between the outer edges of the border pixels, as corner-origin pixels do.
    grid = 2 * pixels / pixels.new_tensor([source.width, source.height]) - 1
    warped = F.grid_sample(image[None], grid[None].to(image), align_corners=False, padding_mode="border")
    return warped[0] * inside


def locate_pixels(source: Camera, camera: Camera) -> tuple[Float[Tensor, "h w 2"], Bool[Tensor, "h w"]]:
    """Find where the rays of one camera's pixels lie in the image of another one in the same place."""
    rays = RayMap.from_camera(camera)
    pixels, imaged = source.project(rays.directions.to(source.dtype))
    return pixels, imaged & rays.valid & source.contains(pixels)


def turn_pixels(image: Tensor, turns: int) -> Tensor:
    """Turn the last two axes of an image clockwise by quarter turns."""
    return torch.rot90(image, -turns, (-2, -1)).contiguous() if turns % 4 else image


# Masks


@dataclass(frozen=True)
class StoredMask(MaskSource):
    """A mask file: pixels that are 0 are not scored. With `whole`, only pixels at the largest value are."""

    path: Path
    whole: bool = False

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        """Read the mask of the whole image."""
        if not self.whole:
            return MaskFile(self.path, camera.width, camera.height).load()
        full = (read_photo(self.path)[:1] > 0.999)[None].float()
        return F.interpolate(full, (camera.height, camera.width), mode="nearest-exact")[0, 0] > 0.5

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        return sample_mask(self.load(camera), framing)


@dataclass(frozen=True)
class TopRows(MaskSource):
    """The share of an image's rows, from the top, that is scored."""

    share: float

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        _, top, _, bottom = framing.box
        centers = top + (torch.arange(framing.height) + 0.5) * (bottom - top) / framing.height
        return (centers < self.share * camera.height)[:, None].expand(framing.height, framing.width)


@dataclass(frozen=True, eq=False)
class UndistortedMask(MaskSource):
    """The mask of a photograph, moved with it to another lens; pixels from outside the photograph are not scored."""

    source: StoredMask | None
    source_camera: Camera

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        pixels, inside = locate_pixels(self.source_camera, framing.apply(camera))
        if self.source is None:
            return inside
        mask = self.source.load(self.source_camera)
        u, v = pixels.floor().long().unbind(-1)
        return inside & mask[v.clamp(0, mask.shape[0] - 1), u.clamp(0, mask.shape[1] - 1)]
