"""COLMAP's camera models as our cameras, and our cameras as COLMAP's.

Both count pixels from the top-left corner, so parameters are taken as they are.
"""

import math
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.division import Division
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.fov import FOV
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.cameras.ucm import UCM
from g_ray.formats.documents import parse_number, parse_positive_int


class Model(NamedTuple):
    """A camera model of COLMAP."""

    number: int
    """Its id in binary files."""
    parameters: str
    """Parameters in COLMAP's order, by our names; f stands for fx and fy."""
    ours: type[Camera]


MODELS: dict[str, Model] = {
    "SIMPLE_PINHOLE": Model(0, "f cx cy", Pinhole),
    "PINHOLE": Model(1, "fx fy cx cy", Pinhole),
    "SIMPLE_RADIAL": Model(2, "f cx cy k1", OpenCV),
    "RADIAL": Model(3, "f cx cy k1 k2", OpenCV),
    "OPENCV": Model(4, "fx fy cx cy k1 k2 p1 p2", OpenCV),
    "OPENCV_FISHEYE": Model(5, "fx fy cx cy k1 k2 k3 k4", OpenCVFisheye),
    "FULL_OPENCV": Model(6, "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", OpenCV),
    "FOV": Model(7, "fx fy cx cy omega", FOV),
    "SIMPLE_RADIAL_FISHEYE": Model(8, "f cx cy k1", OpenCVFisheye),
    "RADIAL_FISHEYE": Model(9, "f cx cy k1 k2", OpenCVFisheye),
    "THIN_PRISM_FISHEYE": Model(10, "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1", ThinPrismFisheye),
    "RAD_TAN_THIN_PRISM_FISHEYE": Model(11, "fx fy cx cy k1 k2 k3 k4 k5 k6 p1 p2 s1 s2 s3 s4", Fisheye624),
    "SIMPLE_DIVISION": Model(12, "f cx cy k", Division),
    "DIVISION": Model(13, "fx fy cx cy k", Division),
    "SIMPLE_FISHEYE": Model(14, "f cx cy", OpenCVFisheye),
    "FISHEYE": Model(15, "fx fy cx cy", OpenCVFisheye),
    "EUCM": Model(16, "fx fy cx cy alpha beta", EUCM),
    "EQUIRECTANGULAR": Model(17, "w h", Equirectangular),
}

WRITTEN = (
    "PINHOLE",
    "OPENCV",
    "FULL_OPENCV",
    "OPENCV_FISHEYE",
    "THIN_PRISM_FISHEYE",
    "RAD_TAN_THIN_PRISM_FISHEYE",
    "EUCM",
    "FOV",
    "DIVISION",
    "EQUIRECTANGULAR",
)
"""Models that are written, simplest first: a camera becomes the first of them that is exact, which most tools know."""

NUMBERS = {model.number: name for name, model in MODELS.items()}


def camera_from_colmap(name: str, width: int, height: int, parameters: tuple[float, ...]) -> Camera:
    """Convert COLMAP's model and parameters; ValueError for a model that COLMAP does not have."""
    width, height = parse_positive_int(width, "width"), parse_positive_int(height, "height")
    parameters = tuple(parse_number(value, f"a parameter of {name}") for value in parameters)
    model = _get_model(name)
    names = model.parameters.split()
    if len(parameters) != len(names):
        raise ValueError(f"{name} has {len(names)} parameters, the file gives {len(parameters)}")
    if model.ours is Equirectangular:
        return Equirectangular.panorama(width, height, dtype=torch.float64)
    values = dict(zip(names, parameters, strict=True))
    if "f" in values:
        values["fx"] = values["fy"] = values.pop("f")
    return model.ours.make(width, height, dtype=torch.float64, **values)


def camera_to_colmap(ours: Camera) -> tuple[str, tuple[float, ...]]:
    """Convert a camera to COLMAP's model and parameters; ValueError, with the reason, if none is exactly the same."""
    if isinstance(ours, Equirectangular):
        return _panorama_to_colmap(ours)
    values = dict(zip(ours.PARAMETERS, ours.params.double().tolist(), strict=True))
    kind = type(ours)
    if kind is UCM:
        kind, values = EUCM, values | {"beta": 1.0}
    candidates = [name for name in WRITTEN if MODELS[name].ours is kind]
    surplus: list[str] = []
    for name in candidates:
        names = MODELS[name].parameters.split()
        surplus = [key for key, value in values.items() if key not in names and value != 0]
        if not surplus:
            return name, tuple(values[key] for key in names)
    if candidates:
        raise ValueError(f"COLMAP's {candidates[-1]} has no {', '.join(surplus)}")
    raise ValueError(f"COLMAP has no camera model like {ours.NAME}")


def _panorama_to_colmap(ours: Equirectangular) -> tuple[str, tuple[float, ...]]:
    whole = Equirectangular.panorama(ours.width, ours.height, dtype=torch.float64)
    if not torch.allclose(ours.params.double(), whole.params, rtol=1e-6):
        raise ValueError("COLMAP's EQUIRECTANGULAR is the whole sphere, and this panorama is a part of it")
    return "EQUIRECTANGULAR", (float(ours.width), float(ours.height))


def _get_model(name: str) -> Model:
    if name not in MODELS:
        raise ValueError(f"unknown COLMAP camera model {name}; known are {', '.join(MODELS)}")
    return MODELS[name]


# Any camera as one that COLMAP can compute with
#
# A lens becomes COLMAP's own model where it has one with the same rays over the whole image. All others, and lenses
# that see beyond the half space in front of them, become the whole sphere: every pixel is taken to its ray by our
# camera, and the ray to a pixel of an equirectangular image with as many pixels per radian as the lens has. COLMAP
# estimates essential matrices, absolute poses and bundles on such images without a limit at 180°.


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
    """Angular resolution of the working image."""

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


# The package pycolmap


class CannotMatch(ValueError):
    """Poses cannot come from matches: COLMAP is missing, or the photographs do not allow it."""


def import_pycolmap() -> Any:
    """Return the module, with its log limited to errors.

    It installs handlers that print a stack trace for every signal, SIGTERM included; ours is put back.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        import pycolmap
    except ImportError as error:
        raise CannotMatch(
            f"structure from motion needs pycolmap ({error}); run: pip install 'g-ray[calib]'"
        ) from None
    if not hasattr(pycolmap, "FeatureExtractor"):
        raise CannotMatch(
            f"pycolmap {pycolmap.__version__} is too old; run: pip install --upgrade 'pycolmap>=4.2'"
        )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    return pycolmap


def count_threads(threads: int) -> int:
    return threads if threads > 0 else len(os.sched_getaffinity(0))
