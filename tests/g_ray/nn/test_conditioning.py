"""Ray channels: the conditioning's own numbers for every lens, and nothing where there is no ray."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye
from g_ray.geometry.pose import Pose
from g_ray.nn.conditioning import CONDITIONINGS, RayChannels
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views


@pytest.mark.parametrize("name", CONDITIONINGS)
def test_the_numbers_of_the_conditioning(name, mixed_views):
    views = mixed_views()
    for index, camera in enumerate(views.cameras):
        channels = RayChannels(name)(views, index)
        assert channels.shape == (2, camera.height, camera.width, 6)
        for scene in range(2):
            alone = CONDITIONINGS[name](RayMap.from_camera(camera), views.poses[scene, index])
            assert torch.allclose(channels[scene], alone, atol=1e-12)


def test_camray_needs_no_poses_and_plucker_says_so(mixed_views):
    views = mixed_views(poses=False)
    assert RayChannels("camray")(views, 0).shape == (1, 32, 48, 6)
    with pytest.raises(ValueError, match="plucker needs camera poses, but the views have none"):
        RayChannels("plucker")(views, 0)


@pytest.mark.parametrize("name", CONDITIONINGS)
def test_zero_where_no_ray_exists(name):
    circle = OpenCVFisheye.make(32, 32, fx=3.0, fy=3.0, cx=16.0, cy=16.0, k1=-0.01)
    valid = RayMap.from_camera(circle).valid
    channels = RayChannels(name)(Views([circle], Pose.identity(1)), 0)[0]
    assert not valid.all() and valid.any()
    assert (channels[~valid] == 0).all() and (channels[valid] != 0).any(-1).all()


def test_none_tells_pixels_apart_and_cameras_not(mixed_views):
    torch.manual_seed(0)
    layer, views = RayChannels("none"), mixed_views(lenses=("fisheye", "ray_map"))
    assert torch.equal(layer(views, 0), layer(views, 1))
    assert layer(views, 0)[0].flatten(0, 1).unique(dim=0).shape[0] == 48 * 48
    assert torch.equal(layer.state_dict()["noise"], layer.noise)
    assert layer._tile_noise(300, 300)[299, 299].equal(layer.noise[43, 43])


def test_autocast_does_not_reach_the_rays(mixed_views):
    views, layer = mixed_views(dtype=torch.float32), RayChannels("plucker")
    exact = layer(views, 0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(views, 0), exact)
