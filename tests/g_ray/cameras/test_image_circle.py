"""The image circle of a lens: pixels beyond it have no ray, whatever is done to the image."""

import pytest
import torch

from g_ray.cameras import CAMERAS, Fisheye624, OpenCVFisheye, RayMapCamera
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.media.view import View
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views


@pytest.mark.parametrize("name", CAMERAS)
def test_circle_limits_every_model(name):
    """Before and after, validity differs exactly beyond the radius; rays and pixels do not differ."""
    whole = CAMERAS[name].example(2, 96, 64)
    camera = whole.limit_to_circle(30)
    rays, valid = whole.unproject_grid()
    again, limited = camera.unproject_grid()
    v, u = torch.meshgrid(torch.arange(64) + 0.5, torch.arange(96) + 0.5, indexing="ij")
    inside = (u - camera.params[2]) ** 2 + (v - camera.params[3]) ** 2 <= 30**2
    assert torch.equal(again, rays)
    assert torch.equal(limited, valid & inside)
    pixels, imaged = camera.project(rays)
    assert imaged[limited].all()
    assert not imaged[valid & ~inside].any()
    assert torch.equal(pixels, whole.project(rays)[0])


@pytest.mark.parametrize("name", CAMERAS)
def test_circle_goes_with_crop_pad_and_resize(name):
    camera = CAMERAS[name].example(2, 96, 64).limit_to_circle(30)
    pixels = torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 64
    _, valid = camera.unproject(pixels)
    assert valid.any() and not valid.all()
    scale = torch.tensor([2.0, 0.5], dtype=torch.float64)
    assert torch.equal(camera.resize(192, 32).unproject(pixels * scale)[1], valid)
    shift = torch.tensor([3.0, 5.0], dtype=torch.float64)
    assert torch.equal(camera.pad(3, 5, 0, 0).unproject(pixels + shift)[1], valid)
    assert torch.equal(camera.crop(3, 5, 60, 50).unproject(pixels - shift)[1], valid)


def test_circle_reaches_ray_maps_and_tokens():
    camera = OpenCVFisheye.make(64, 64, fx=30.0, fy=30.0, cx=32.0, cy=32.0).limit_to_circle(20)
    assert not RayMap.from_camera(camera).valid[0, 0]
    tokens = Views([camera]).tokens(16)
    assert tokens.valid().reshape(4, 4).tolist() == [
        [False, False, False, False],
        [False, True, True, False],
        [False, True, True, False],
        [False, False, False, False],
    ]
    table = RayMapCamera.from_rays(*camera.unproject_grid())
    assert torch.equal(table.table_valid, camera.unproject_grid()[1])


def test_circle_is_stored_and_stacked(tmp_path):
    camera = Fisheye624.example(1).limit_to_circle(20).resize(128, 48)
    write_cameras(tmp_path / "cameras.json", [View("a", camera)])
    (again,) = read_cameras(tmp_path / "cameras.json")
    assert again.camera.circle is not None
    assert again.camera.circle.tolist() == camera.circle.tolist()
    assert again.camera.circle[2:].tolist() == [40.0, 20.0]
    both = Fisheye624.stack([camera, camera])
    assert torch.equal(both.unproject_grid()[1][1], camera.unproject_grid()[1])
    assert torch.equal(both[1].circle, camera.circle)
    with pytest.raises(ValueError, match="keep a list"):
        Fisheye624.stack([camera, Fisheye624.example(1, 128, 48)])
    text = (tmp_path / "cameras.json").read_text().replace("40.0,\n", "-40.0,\n")
    (tmp_path / "cameras.json").write_text(text)
    with pytest.raises(ValueError, match=r"camera 'a': circle"):
        read_cameras(tmp_path / "cameras.json")
    with pytest.raises(ValueError, match="above 0"):
        camera.limit_to_circle(0)
