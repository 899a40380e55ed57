"""Views can be joined, cut and moved; cameras and poses stay together."""

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views


def test_cut_and_joined_again(mixed_views):
    views = mixed_views()
    again = views[:1] + views[1:]
    assert list(again.cameras) == list(views.cameras)
    assert torch.equal(again.poses.world_from_cam, views.poses.world_from_cam)
    assert len(views[1:3]) == 2 and views[1:3].poses.batch_shape == (2, 2)


def test_rays_are_cast_once_for_views_and_their_parts(mixed_views):
    views = mixed_views()
    first = views.cast_pixel_rays(1)
    assert views.cast_pixel_rays(1) is first and views[1:].cast_pixel_rays(0) is first
    assert (views[:1] + views[1:]).cast_pixel_rays(1) is first
    moved = views.to(torch.float32).cast_pixel_rays(1)
    assert moved.dtype == torch.float32 and torch.allclose(
        moved.directions.double(), first.directions, atol=1e-5
    )


def test_rays_with_gradients_are_cast_anew():
    camera = Pinhole(torch.tensor([20.0, 20.0, 8.0, 8.0, 0.0], requires_grad=True), 16, 16)
    views = Views([camera])
    with torch.no_grad():
        assert not views.cast_pixel_rays(0).directions.requires_grad
    for _ in range(2):  # a second backward pass through the same graph would be refused
        views.tokens(8).rays().directions.square()[..., 0].sum().backward()
    assert camera.params.grad is not None and camera.params.grad.abs().max() > 0


def test_rays_of_inference_mode_are_not_kept():
    views = Views([Pinhole.from_fov(50.0, 16, 16)])
    with torch.inference_mode():
        views.cast_pixel_rays(0)
    assert not views.cast_pixel_rays(0).directions.is_inference()


def test_poses_of_one_scene_beside_poses_of_a_batch(mixed_views):
    one = Views(mixed_views(lenses=("wide",), batch=1).cameras, Pose.identity(1, dtype=torch.float64))
    joined = one + mixed_views(lenses=("tele", "fisheye"))
    assert joined.batch == 2 and joined.poses.batch_shape == (2, 3)
    assert torch.equal(joined.poses.world_from_cam[1, 0], torch.eye(4, dtype=torch.float64))


def test_all_or_none_have_poses(mixed_views):
    without = mixed_views(poses=False)
    assert (without + without).poses is None
    with pytest.raises(ValueError, match="give poses to all of them or to none"):
        mixed_views() + without


def test_moved_to_another_dtype(mixed_views):
    views = mixed_views().to(torch.float32)
    assert views.dtype == views.poses.dtype == torch.float32
    assert all(camera.dtype == torch.float32 for camera in views.cameras)
    assert mixed_views(poses=False).to(torch.float32).poses is None
