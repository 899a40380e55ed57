"""Any camera as one that COLMAP can compute with.

A lens becomes COLMAP's own model where it has one with the same rays over the whole image. All others, and lenses
that see beyond the half space in front of them, become the whole sphere: every pixel is taken to its ray by our
camera, and the ray to a pixel of an equirectangular image with as many pixels per radian as the lens has. COLMAP
estimates essential matrices, absolute poses and bundles on such images without a limit at 180°.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.formats.colmap.colmap_cameras import camera_to_colmap

NATIVE_ANGLE_DEG = 80.0
"""COLMAP's planar models are used for lenses whose rays stay within this angle to the axis."""
NATIVE_ERROR_PX = 0.05
"""Largest difference between COLMAP's rays and ours, in pixels."""
GRID = 24
"""Pixels a side at which a lens is examined."""


@dataclass(frozen=True, eq=False)
class ColmapLens:
    """A working camera with its counterpart in COLMAP."""

    camera: Camera
    """Takes the original image."""
    scale: float
    """Working pixels per original pixel."""
    model: str
    parameters: tuple[float, ...]
    width: int
    height: int
    pixels_per_rad: float
    """Of the working image."""

    @property
    def is_native(self) -> bool:
        return self.model != "EQUIRECTANGULAR"

    def convert_pixels(
        self, pixels: Float[np.ndarray, "n 2"]
    ) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, "n"]]:
        """Map original pixels to those of COLMAP's image; false where no ray lands."""
        exact = torch.from_numpy(np.asarray(pixels, dtype=np.float64))
        rays, valid = self.camera.unproject(exact)
        if self.is_native:
            size = exact.new_tensor([self.width / self.camera.width, self.height / self.camera.height])
            return (exact * size).numpy(), valid.numpy()
        sphere = Equirectangular.panorama(self.width, self.height, dtype=torch.float64)
        return sphere.project(rays)[0].numpy(), valid.numpy()

    def make_camera(self, pycolmap: Any, number: int) -> Any:
        camera = pycolmap.Camera(
            model=self.model, width=self.width, height=self.height, params=list(self.parameters)
        )
        camera.camera_id = number
        # The calibration is known: pairs are verified with an essential matrix.
        camera.has_prior_focal_length = True
        return camera


def make_colmap_lens(pycolmap: Any, camera: Camera, max_image_size: int) -> ColmapLens:
    """Choose COLMAP's own model or the sphere for a camera."""
    scale = compute_working_scale(camera, max_image_size)
    width, height = max(1, round(camera.width * scale)), max(1, round(camera.height * scale))
    working = camera.resize(width, height)
    density = measure_pixels_per_rad(working)
    native = _find_native_model(pycolmap, working)
    if native is not None:
        return ColmapLens(camera, scale, *native, width, height, density)
    around = max(64, round(2 * math.pi * density))
    around += around % 2
    return ColmapLens(
        camera, scale, "EQUIRECTANGULAR", (float(around), around / 2), around, around // 2, density
    )


def compute_working_scale(camera: Camera, max_image_size: int) -> float:
    return min(1.0, max_image_size / max(camera.width, camera.height))


def measure_pixels_per_rad(camera: Camera) -> float:
    """Median over the image of the resolution of a lens, √(pixels per solid angle)."""
    pixels = _make_grid(camera)
    moves = pixels.new_tensor([[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]])
    rays, valid = camera.unproject(pixels[:, None] + moves)
    left, right, above, below = rays[valid.all(1)].unbind(1)
    solid_angle = torch.linalg.vector_norm(torch.linalg.cross(right - left, below - above), dim=-1)
    solid_angle = solid_angle[solid_angle > 0]
    if not len(solid_angle):
        raise ValueError(
            f"{camera.NAME}: no pixel of this camera has a ray of its own; check its calibration"
        )
    return float(solid_angle.rsqrt().median())


def measure_angles_deg(camera: Camera) -> Float[Tensor, "n"]:
    """Angles to the optical axis of rays all over the image."""
    rays, valid = camera.unproject(_make_grid(camera))
    if not bool(valid.any()):
        raise ValueError(f"{camera.NAME}: no pixel of this camera has a ray; check its calibration")
    return torch.rad2deg(torch.acos(rays[valid][:, 2].clamp(-1, 1)))


def _find_native_model(pycolmap: Any, camera: Camera) -> tuple[str, tuple[float, ...]] | None:
    """COLMAP's model and parameters, if its rays are ours everywhere in the image."""
    if float(measure_angles_deg(camera).max()) > NATIVE_ANGLE_DEG:
        return None
    try:
        model, parameters = camera_to_colmap(camera)
    except ValueError:
        return None
    theirs = pycolmap.Camera(model=model, width=camera.width, height=camera.height, params=list(parameters))
    pixels = _make_grid(camera)
    rays, valid = camera.unproject(pixels)
    planar = theirs.cam_from_img(pixels.numpy())
    ray = np.concatenate([planar, np.ones_like(planar[:, :1])], 1)
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    # COLMAP inverts distortions by iteration, which may fail far from the center; NaN fails the comparison.
    error_px = np.linalg.norm(ray - rays.numpy(), axis=1) * measure_pixels_per_rad(camera)
    agrees = error_px[valid.numpy()] < NATIVE_ERROR_PX
    return (model, parameters) if agrees.all() and len(agrees) else None


def _make_grid(camera: Camera) -> Float[Tensor, "n 2"]:
    across, down = (
        torch.linspace(0.5, size - 0.5, GRID, dtype=torch.float64) for size in (camera.width, camera.height)
    )
    return torch.cartesian_prod(across, down)
