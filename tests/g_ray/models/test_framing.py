"""Framing: whole patches, the same ray for the same content, and the way back to original pixels."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.models.inference import PatchFraming
from g_ray.rays.ray_map import RayMap

LENSES = {
    "pinhole": Pinhole.make(97, 61, fx=70.0, fy=72.0, cx=45.0, cy=33.0, dtype=torch.float64),
    "fisheye": OpenCVFisheye.make(60, 83, fx=30.0, fy=29.0, cx=31.0, cy=40.0, k1=0.02, dtype=torch.float64),
    "small": Pinhole.make(20, 15, fx=15.0, fy=15.0, cx=10.0, cy=8.0, dtype=torch.float64),
}
LENSES["rays"] = RayMapCamera.from_rays(*LENSES["fisheye"].unproject_grid())
every_lens = pytest.mark.parametrize("lens", LENSES)
every_fit = pytest.mark.parametrize("fit", ["stretch", "pad"])


def rays_as_image(camera) -> torch.Tensor:
    """An image whose colours are its rays, so that it says whether image and rays went the same way."""
    return RayMap.from_camera(camera).directions.movedim(-1, 0)


@every_lens
@every_fit
def test_sides_are_whole_patches_and_the_long_one_is_asked_for(lens, fit):
    camera = LENSES[lens]
    frame = PatchFraming(56, 7, fit)(rays_as_image(camera), camera)
    height, width = frame.image.shape[-2:]
    assert height % 7 == width % 7 == 0 and max(height, width) == 56
    assert (
        (frame.camera.width, frame.camera.height) == (width, height) == tuple(reversed(frame.content.shape))
    )
    if fit == "stretch":
        assert frame.content.all()
        assert abs(width / height * camera.height / camera.width - 1) < 0.12
    else:
        assert width == height and 0 < frame.content.float().mean() < 1


@every_lens
@every_fit
def test_content_keeps_its_ray(lens, fit):
    camera = LENSES[lens]
    frame = PatchFraming(56, 7, fit)(rays_as_image(camera), camera)
    seen = RayMap.from_camera(frame.camera)
    inside = frame.content.clone()
    inside &= torch.nn.functional.max_pool2d(1.0 - inside.double()[None], 5, 1, 2)[0] == 0
    inside[:2], inside[-2:], inside[:, :2], inside[:, -2:] = False, False, False, False
    error = (frame.image.movedim(0, -1) - seen.directions).norm(dim=-1)
    assert error[inside].max() < 2e-3  # filtering of curved rays


@every_lens
@every_fit
def test_maps_find_back_to_original_pixels(lens, fit):
    """The frame's own rays, mapped back, are the rays of the original pixels."""
    camera = LENSES[lens]
    frame = PatchFraming(56, 7, fit)(rays_as_image(camera), camera)
    rays = RayMap.from_camera(frame.camera)
    found, valid = frame.restore(rays.directions, rays.valid & frame.content)
    assert found.shape == (camera.height, camera.width, 3) and valid.all()
    error = (found - RayMap.from_camera(camera).directions).norm(dim=-1)
    assert error[2:-2, 2:-2].max() < 2e-3
    assert error.max() < 0.03  # half a pixel of extrapolation at the rim is not done


def test_invalid_pixels_have_no_part():
    camera = LENSES["pinhole"]
    frame = PatchFraming(56, 7)(rays_as_image(camera), camera)
    values = torch.ones(*frame.content.shape, 1, dtype=torch.float64)
    valid = frame.content.clone()
    valid[:, :28] = False
    values[~valid] = float("nan")
    found, known = frame.restore(values, valid)
    assert torch.equal(known[:, :46], torch.zeros(61, 46, dtype=torch.bool)) and known[:, 51:].all()
    assert torch.allclose(found[known], torch.ones(1, dtype=torch.float64)) and not found[~known].any()


def test_wrong_framings_are_refused():
    with pytest.raises(
        ValueError, match="long side 500 px is not a multiple of the patch of 14 px: choose 504"
    ):
        PatchFraming(500, 14)
    with pytest.raises(ValueError, match="unknown fit 'crop'"):
        PatchFraming(518, 14, "crop")
