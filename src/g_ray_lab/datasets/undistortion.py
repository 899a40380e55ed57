"""Photographs without their distortion: the pinhole that one is undistorted to, and its pixels and mask."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import resample
from g_ray_lab.datasets.evaluation_scene import Framing, ImageSource, MaskSource
from g_ray_lab.datasets.stored_frames import make_pinhole

FINER = 2
"""A photograph is undistorted at no less than this many pixels per wanted pixel and axis."""
BORDER_SAMPLES = 256
"""Per side of an image: distortion is smooth."""


def choose_benchmark_pinhole(camera: Camera) -> Pinhole:
    """Choose ScanNet++'s pinhole for its DSLR fisheye: same size, principal point in the middle.

    The focal length is that of OpenCV's `fisheye.estimateNewCameraMatrixForUndistortRectify` with balance 0: the rays
    through the middles of the four sides are undistorted, and the side that is nearest to their mean decides.
    """
    width, height = camera.width, camera.height
    middles = torch.tensor(
        [[width / 2, 0.0], [width, height / 2], [width / 2, height], [0.0, height / 2]], dtype=camera.dtype
    )
    plane = _undistort(camera, middles)
    # OpenCV scales y to square pixels before it compares.
    aspect = float(camera.parameter("fx") / camera.parameter("fy"))
    x, y = plane[:, 0], plane[:, 1] * aspect
    across, down = width / 2, height / 2 * aspect
    cx, cy = x.mean(), y.mean()
    sides = (across / (cx - x.min()), across / (x.max() - cx), down / (cy - y.min()), down / (y.max() - cy))
    focal = float(torch.stack(sides).max())
    return make_pinhole((width, height), focal, focal / aspect, width / 2, height / 2)


def choose_inner_pinhole(camera: Camera) -> Pinhole:
    """Choose the widest centered pinhole of the same size and pixel shape all of whose pixels lie in the photograph."""
    width, height = camera.width, camera.height
    steps = torch.linspace(0, 1, BORDER_SAMPLES, dtype=camera.dtype)
    sides = {
        "left": torch.stack([torch.zeros_like(steps), steps * height], -1),
        "right": torch.stack([torch.full_like(steps, width), steps * height], -1),
        "top": torch.stack([steps * width, torch.zeros_like(steps)], -1),
        "bottom": torch.stack([steps * width, torch.full_like(steps, height)], -1),
    }
    plane = {side: _undistort(camera, pixels) for side, pixels in sides.items()}
    # The largest upright rectangle around the axis that no side of the photograph enters.
    across = min(float((-plane["left"][:, 0]).min()), float(plane["right"][:, 0].min()))
    down = min(float((-plane["top"][:, 1]).min()), float(plane["bottom"][:, 1].min()))
    if min(across, down) <= 0:
        raise ValueError(f"a {camera.NAME} camera of {width}×{height} px has no pinhole inside its image")
    aspect = float(camera.parameter("fx") / camera.parameter("fy"))
    focal = max(width / 2 / across, height / 2 / down * aspect)
    return make_pinhole((width, height), focal, focal / aspect, width / 2, height / 2)


def _undistort(camera: Camera, pixels: Float[Tensor, "pixel 2"]) -> Float[Tensor, "pixel 2"]:
    rays, valid = camera.unproject(pixels)
    if not bool((valid & (rays[:, 2] > 0)).all()):
        raise ValueError(f"a {camera.NAME} camera sees 180° or more: no pinhole has its border")
    return rays[:, :2] / rays[:, 2:]


# Images and masks


@dataclass(frozen=True, eq=False)
class UndistortedImage(ImageSource):
    """An image as a camera with another lens in the same place would have taken it, by bilinear interpolation."""

    source: ImageSource
    source_camera: Camera
    camera: Camera

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.source.path

    def load(self) -> Float[Tensor, "3 h w"]:
        return _warp(self.source.load_for(self.source_camera), self.source_camera, self.camera)

    def load_framed(self, camera: Camera, framing: Framing) -> Float[Tensor, "3 h w"]:
        """Undistort the wanted part alone, of a photograph that is shrunk first: full-size ones have 33 megapixels."""
        source = self.source_camera
        image = self.source.load_for(source)
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


@dataclass(frozen=True, eq=False)
class UndistortedMask(MaskSource):
    """The mask of a photograph, moved with it to another lens; pixels from outside the photograph are not scored."""

    source: MaskSource | None
    source_camera: Camera

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        pixels, inside = locate_pixels(self.source_camera, RayMap.from_camera(framing.apply(camera)))
        return (
            inside
            if self.source is None
            else inside & pick_pixels(self.source.load(self.source_camera), pixels)
        )


def _warp(image: Float[Tensor, "3 h w"], source: Camera, camera: Camera) -> Float[Tensor, "3 height width"]:
    """Look the rays of a camera up in an image of another one in the same place; black where it has none of them."""
    pixels, inside = locate_pixels(source, RayMap.from_camera(camera))
    # grid_sample counts from −1 to 1 between the outer edges of the border pixels, as corner-origin pixels do.
    grid = 2 * pixels / pixels.new_tensor([source.width, source.height]) - 1
    warped = F.grid_sample(image[None], grid[None].to(image), align_corners=False, padding_mode="border")
    return warped[0] * inside


def locate_pixels(source: Camera, rays: RayMap) -> tuple[Float[Tensor, "h w 2"], Bool[Tensor, "h w"]]:
    """Find where rays lie in the image of a camera with the same origin and axes, and which of them it images."""
    pixels, imaged = source.project(rays.directions.to(source.dtype))
    return pixels, imaged & rays.valid & source.contains(pixels)


def pick_pixels(values: Shaped[Tensor, "h w"], pixels: Float[Tensor, "*shape 2"]) -> Shaped[Tensor, "*shape"]:
    """Look a map up at the nearest pixels; places outside of it get its border."""
    u, v = pixels.floor().long().unbind(-1)
    return values[v.clamp(0, values.shape[0] - 1), u.clamp(0, values.shape[1] - 1)]
