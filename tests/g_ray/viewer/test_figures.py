"""Figures: they draw for any camera and say what they measured."""

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import CAMERAS, OpenCVFisheye, Pinhole
from g_ray.viewer.angle_maps import LensView, compute_angle_maps_deg, draw_angle_maps
from g_ray.viewer.theme import DARK, LIGHT, write_png

CIRCLE = OpenCVFisheye.make(64, 48, fx=15.0, fy=15.0, cx=32.0, cy=24.0, k2=-0.02)


def test_angle_maps_of_a_pinhole_are_the_closed_form():
    camera = Pinhole.from_fov(90.0, 64, 48).to(dtype=torch.float64)
    angles, valid = compute_angle_maps_deg(camera)
    u, v = np.meshgrid(np.arange(64) + 0.5, np.arange(48) + 0.5)
    assert valid.all()
    assert np.allclose(angles[..., 0], np.degrees(np.arctan2(u - 32, 32)))
    assert np.allclose(angles[..., 1], np.degrees(np.arctan2(v - 24, 32)))


def test_pixels_without_a_ray_are_left_blank():
    angles, valid = compute_angle_maps_deg(CIRCLE)
    assert 0.3 < valid.mean() < 0.95
    assert np.array_equal(np.isnan(angles[..., 0]), ~valid)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_figure_becomes_a_picture(tmp_path, theme):
    image = torch.rand(48, 64, 3)
    views = [LensView("circle", CIRCLE, image), LensView("pinhole", Pinhole.from_fov(60.0, 64, 48), image)]
    path = write_png(draw_angle_maps(views, theme, validity=True), tmp_path / "maps.png", dpi=50)
    with Image.open(path) as picture:
        assert min(picture.size) > 200
        assert np.asarray(picture.convert("L")).std() > 10


@pytest.mark.parametrize("name", sorted(set(CAMERAS) - {"ray_map"}))
def test_every_camera_model_can_be_drawn(name):
    camera = CAMERAS[name].example(seed=1)
    figure = draw_angle_maps([LensView(name, camera)], LIGHT, validity=True)
    assert len(figure.axes) == 4  # θx, θy, validity, color bar
