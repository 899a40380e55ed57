"""The 24 random cameras of an object, the same in every process."""

import hashlib
from math import log, radians, tan

import numpy as np
import torch
from jaxtyping import Float

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray_lab.datasets.objaverse import DIRECTIONS, ObjectCameras


def make_object_random(name: str, seed: int, purpose: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{seed}/{purpose}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


# The 24 cameras around an object of unit size: eight directions, each native, with another focal length, and from
# another distance (appendix "Objaverse Target-View Definitions").
#
# The numbers are those of the released renders, with two differences. Those restart their random numbers at every
# object, so that all 80,000 objects have the same 24 cameras, which a network can learn by heart; here every object
# has its own. And no camera comes closer than `NEAREST`: the released rule lets a dolly variant with a wide lens
# enter the corners of the object's bounding box, and see it from inside.
#
# The focal variant keeps the released range, 6.5° to 124.5°, although native lenses have 20° to 80°: it is there to
# leave what context views show, and the paper's numbers are measured on it.


FOV_DEG = (20.0, 80.0)  # vertical, of native lenses; their focal lengths are uniform in the logarithm
ELEVATION_DEG = (-10.0, 30.0)
FILL = 0.6
"""A cube of size 1 in the plane of the object's center spans this share of a native image's height."""

NATIVE_DISTANCE = (0.9, 1.1)  # factors of the distance that FILL asks for
DOLLY_DISTANCE = (0.8, 1.2)  # … of the dolly variant
FOCAL_EXPONENT = (0.8, 1.2)  # f ← f^e, f in pixels of an image that is UNIT_PX pixels high
UNIT_PX = 100.0

NEAREST = 0.88
"""An object of unit extent lies within √3/2 = 0.866 of the origin; native cameras stay beyond 0.893 anyway."""


def sample_cameras(uid: str, seed: int, size: int) -> ObjectCameras:
    """Draw the cameras of an object, in the order of NAMES. World: z up, the object's center at the origin."""
    random = make_object_random(uid, seed, "cameras")
    azimuth = np.deg2rad(45.0 * np.arange(DIRECTIONS) + random.uniform(-22.5, 22.5, DIRECTIONS))
    elevation = np.deg2rad(random.uniform(*ELEVATION_DEG, DIRECTIONS))
    focal = np.exp(
        random.uniform(log(compute_focal_px(FOV_DEG[1])), log(compute_focal_px(FOV_DEG[0])), DIRECTIONS)
    )
    distance = focal / UNIT_PX / FILL  # (1 / FILL) / (2 tan(fov / 2))
    native = distance * random.uniform(*NATIVE_DISTANCE, DIRECTIONS)
    dolly = distance * random.uniform(*DOLLY_DISTANCE, DIRECTIONS)
    zoomed = focal ** random.uniform(*FOCAL_EXPONENT, DIRECTIONS)
    # Rows are directions; columns native, focal, dolly.
    focals = np.stack([focal, zoomed, focal], -1) * size / UNIT_PX
    distances = np.stack([native, native, dolly], -1).clip(min=NEAREST)
    return ObjectCameras(_make_pinholes(focals.ravel(), size), _make_poses(azimuth, elevation, distances))


def compute_focal_px(fov_deg: float) -> float:
    """Focal length in pixels of an image that is UNIT_PX pixels high."""
    return UNIT_PX / 2 / tan(radians(fov_deg) / 2)


def _make_pinholes(focal_px: Float[np.ndarray, "view"], size: int) -> Pinhole:
    focal = torch.from_numpy(focal_px)
    return Pinhole.make(size, size, fx=focal, fy=focal, cx=size / 2, cy=size / 2)


def _make_poses(
    azimuth_rad: Float[np.ndarray, "direction"],
    elevation_rad: Float[np.ndarray, "direction"],
    distances: Float[np.ndarray, "direction kind"],
) -> Pose:
    """Looking at the origin, upright."""
    level = np.cos(elevation_rad)
    towards = [level * np.cos(azimuth_rad), level * np.sin(azimuth_rad), np.sin(elevation_rad)]
    eyes = torch.from_numpy(distances[..., None] * np.stack(towards, -1)[:, None]).flatten(0, 1)
    return Pose.look_at(eyes, torch.zeros_like(eyes), down=(0.0, 0.0, -1.0))
