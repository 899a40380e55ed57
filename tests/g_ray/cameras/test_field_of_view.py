"""Fields of view against their analytic values."""

import math

import pytest
import torch

from g_ray.cameras import UCM, DoubleSphere, Equirectangular, OpenCVFisheye, Pinhole


def test_pinhole():
    fov = Pinhole.from_fov(70.0, 640, 480, dtype=torch.float64).fov()
    half = math.tan(math.radians(35))
    expected = [2 * math.degrees(math.atan(half * s)) for s in (1, 480 / 640, math.hypot(1, 480 / 640))]
    assert [float(fov.horizontal_deg), float(fov.vertical_deg), float(fov.diagonal_deg)] == pytest.approx(
        expected
    )


def test_panorama():
    fov = Equirectangular.panorama(640, 320, dtype=torch.float64).fov()
    assert float(fov.horizontal_deg) == pytest.approx(360, abs=1e-6)
    assert float(fov.vertical_deg) == pytest.approx(180, abs=1e-6)


@pytest.mark.parametrize("wanted", [120.0, 195.0, 250.0])
def test_equidistant_fisheye(wanted):
    f = 500 / math.radians(wanted)
    fov = OpenCVFisheye.make(500, 300, fx=f, fy=f, cx=250, cy=150, dtype=torch.float64).fov()
    assert float(fov.horizontal_deg) == pytest.approx(wanted)
    assert float(fov.vertical_deg) == pytest.approx(wanted * 0.6)


def test_a_rim_inside_the_image_ends_the_view():
    """ρ = ψ − ψ³/15.9 turns around at 131.9°: a circular image with black corners."""
    camera = OpenCVFisheye.make(800, 800, fx=150, fy=150, cx=400, cy=400, k1=-1 / 15.9, dtype=torch.float64)
    turn = math.degrees(math.sqrt(15.9 / 3))
    assert float(camera.fov().horizontal_deg) == pytest.approx(2 * turn, abs=0.05)
    _, valid = camera.unproject_grid()
    assert valid[400, 400] and not valid[0, 0]


def test_more_than_180_degrees():
    wide = [
        UCM.make(600, 600, fx=160, fy=160, cx=300, cy=300, alpha=0.65),
        DoubleSphere.make(600, 600, fx=140, fy=140, cx=300, cy=300, xi=-0.2, alpha=0.6),
    ]
    for camera in wide:
        assert float(camera.fov().horizontal_deg) > 180
        rays, valid = camera.unproject_grid()
        assert (rays[valid][:, 2] < 0).any()


def test_nothing_valid_is_zero_degrees():
    camera = Equirectangular.make(10, 10, fx=1.0, fy=1.0, cx=100.0, cy=100.0)
    assert float(camera.fov().horizontal_deg) == 0


def test_batch():
    params = torch.stack([Pinhole.from_fov(d, 64, 48).params for d in (30.0, 60.0)])
    torch.testing.assert_close(Pinhole(params, 64, 48).fov().horizontal_deg, torch.tensor([30.0, 60.0]))
