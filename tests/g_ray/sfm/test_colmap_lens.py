"""Lenses in COLMAP: its rays are ours, by its own model or on the sphere."""

import math

import numpy as np
import pycolmap
import pytest
import torch

from g_ray.cameras import CAMERAS, Equirectangular, OpenCVFisheye, Pinhole
from g_ray.formats.colmap.colmap_cameras import make_colmap_lens


@pytest.mark.parametrize("name", CAMERAS)
def test_rays_are_ours(name: str):
    """To a hundredth of a pixel, at half size too."""
    camera = CAMERAS[name].example(3, width=640, height=480)
    lens = make_colmap_lens(pycolmap, camera, 320)
    generator = np.random.default_rng(0)
    pixels = generator.uniform((0, 0), (640, 480), (200, 2))
    places, valid = lens.convert_pixels(pixels)
    theirs = lens.make_camera(pycolmap, 1).cam_ray_from_img(places)
    ours = camera.unproject(torch.from_numpy(pixels))[0].numpy()
    error_px = np.linalg.norm(theirs - ours, axis=1) * lens.pixels_per_rad
    assert error_px[valid].max() < 0.05


def test_native_models_are_used_where_they_are_the_same():
    pinhole = Pinhole.make(640, 480, fx=500.0, fy=500.0, cx=320.0, cy=240.0, dtype=torch.float64)
    assert make_colmap_lens(pycolmap, pinhole, 1600).model == "PINHOLE"
    narrow = OpenCVFisheye.make(640, 480, fx=350.0, fy=350.0, cx=320.0, cy=240.0, dtype=torch.float64)
    assert make_colmap_lens(pycolmap, narrow, 1600).model == "OPENCV_FISHEYE"


def test_wide_lenses_are_spheres():
    focal = 320 / math.radians(100)
    wide = OpenCVFisheye.make(640, 640, fx=focal, fy=focal, cx=320.0, cy=320.0, dtype=torch.float64)
    lens = make_colmap_lens(pycolmap, wide, 1600)
    assert not lens.is_native
    # An equidistant lens has f pixels per radian along its radius and f θ/sin θ across.
    assert 1.0 < lens.width / (2 * math.pi * focal) < 1.3
    assert not make_colmap_lens(
        pycolmap, Equirectangular.panorama(800, 400, dtype=torch.float64), 1600
    ).is_native
