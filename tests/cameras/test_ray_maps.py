"""Full maps take faster roads than single pixels and must arrive at the same rays."""

import pytest
import torch

from g_ray.bench.rays import benchmark_rays
from g_ray.cameras import Fisheye624, OpenCVFisheye, Pinhole, pixel_centers
from g_ray.cameras.distortion import critical_angle, invert_rho, rho
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

LENSES = {
    "full frame": {
        "fx": 200.0,
        "fy": 198.0,
        "cx": 219.0,
        "cy": 147.0,
        "k1": -0.029,
        "k2": -0.0078,
        "k3": 0.0019,
    },
    "off centre": {"fx": 200.0, "fy": 220.0, "cx": -30.0, "cy": 400.0, "k1": 0.02},
    "almost at the fold": {"fx": 110.0, "fy": 110.0, "cx": 219.0, "cy": 146.0, "k1": -0.04, "k2": -0.0004},
    "circular": {"fx": 100.0, "fy": 100.0, "cx": 219.0, "cy": 146.0, "k1": -0.06},
    "whole sphere": {"fx": 60.0, "fy": 60.0, "cx": 219.0, "cy": 146.0},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("lens", LENSES)
def test_map_is_what_single_pixels_say(lens, dtype):
    camera = OpenCVFisheye.make(438, 292, **LENSES[lens], dtype=dtype)
    rays = RayMap.from_camera(camera)
    some = torch.randint(0, 438 * 292, (2000,), generator=torch.Generator().manual_seed(0))
    pixels = pixel_centers(438, 292, dtype=dtype).view(-1, 2)
    expected, valid = camera.unproject(pixels[some])
    near = 1e-12 if dtype == torch.float64 else 2e-6
    # At the fold itself the angle is as uncertain as the square root of the resolution.
    rim = valid & (camera.unproject(pixels[some] * 1.02 - 0.02 * camera.params[2:4])[1])
    torch.testing.assert_close(rays.directions.view(-1, 3)[some][rim], expected[rim], atol=near, rtol=0)
    assert (rays.valid.view(-1)[some] == valid).float().mean() > 0.999
    again, _ = camera.project(rays.directions)
    error = (again - pixels.view(292, 438, 2))[rays.valid].abs().max()
    assert error <= (1e-6 if dtype == torch.float64 else 2e-3)


def test_many_radii_are_solved_like_few():
    k = torch.tensor([-0.04, -0.004, 0.0, 0.0], dtype=torch.float64)
    limit = critical_angle(k)
    radius = torch.linspace(0, 1.05, 20_000, dtype=torch.float64) * rho(limit, k)
    psi, valid = invert_rho(radius, k, limit)
    torch.testing.assert_close(rho(psi[valid], k), radius[valid], atol=1e-14, rtol=1e-14)
    assert (psi[~valid] == limit).all() and (psi.diff() >= -1e-12).all()


def test_map_with_gradients():
    params = OpenCVFisheye.example(0).params.requires_grad_()
    rays = RayMap.from_camera(OpenCVFisheye(params, 300, 300, check=False))
    (gradient,) = torch.autograd.grad(rays.directions.sum(), params)
    assert torch.isfinite(gradient).all() and (gradient != 0).any()


def test_batched_map():
    cameras = [Fisheye624.example(seed, 320, 240) for seed in range(2)]
    rays = RayMap.from_camera(Fisheye624.stack(cameras))
    assert rays.shape == (2, 240, 320)
    torch.testing.assert_close(
        rays.directions[1], RayMap.from_camera(cameras[1]).directions, atol=1e-10, rtol=0
    )


def test_in_world():
    camera = Pinhole.from_fov(60.0, 8, 6)
    pose = Pose.look_at((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
    world = RayMap.from_camera(camera).to_world(pose)
    torch.testing.assert_close(world.origins, pose.translation.expand(6, 8, 3))
    pixels, _ = camera.project(pose.inverse().apply(world.origins + 2.0 * world.directions))
    torch.testing.assert_close(pixels, pixel_centers(8, 6), atol=1e-4, rtol=0)
    assert world.to(dtype=torch.float64).origins.dtype == torch.float64


def test_benchmark():
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    rows = {row["name"]: row for row in benchmark_rays(repeats=1)["rows"]}
    assert list(rows) == ["opencv", "float64", "float32"]
    assert rows["float64"]["error_px"] < 1e-9 and rows["float32"]["error_px"] < 2e-3
    assert rows["float32"]["ratio"] > 2
