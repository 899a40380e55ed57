"""Full maps take faster roads than single pixels and must arrive at the same rays."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from g_ray.cameras import (
    CAMERAS,
    Fisheye624,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
    RayMapCamera,
    ThinPrismFisheye,
    pixel_centers,
)
from g_ray.cameras.distortion import critical_angle, invert_rho, rho
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.bench.bench_opencv import LENSES as BENCHMARK_LENSES
from g_ray_lab.bench.bench_opencv import benchmark_rays

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
    near = 1e-9 if dtype == torch.float64 else 2e-6
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


each_camera = pytest.mark.parametrize("name", [name for name, model in CAMERAS.items() if model.SMOOTH])
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def assert_same_map(camera):
    """The map has the mask of `unproject` and its rays: to 1e-9 rad in float64, but where the lens turns around."""
    pixels = pixel_centers(camera.width, camera.height, dtype=camera.dtype)
    expected, expected_valid = camera.unproject(pixels.expand(*camera.batch_shape, *pixels.shape))
    rays, valid = camera.unproject_grid()
    assert torch.equal(valid, expected_valid)
    lengths = rays.norm(dim=-1)
    near = 1e-6 if camera.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(lengths, torch.ones_like(lengths), atol=near, rtol=0)
    apart = (rays - expected).norm(dim=-1)
    far = valid & (apart > (1e-9 if camera.dtype == torch.float64 else 5e-6))
    assert far.float().mean() < 2e-3
    # There rays are as uncertain as the square root of the resolution, pixels are not.
    again = (camera.project(rays)[0] - pixels).norm(dim=-1)
    assert again[far].le(1e-6 if camera.dtype == torch.float64 else 5e-3).all()


@each_dtype
@each_camera
@given(seed=st.integers(0, 10_000))
@hypothesis_settings(max_examples=3)
def test_maps_of_all_lenses(name, dtype, seed):
    assert_same_map(CAMERAS[name].example(seed, 180, 120, dtype))


@each_dtype
@each_camera
@given(seed=st.integers(0, 10_000))
@hypothesis_settings(max_examples=3)
def test_maps_beyond_the_rim(name, dtype, seed):
    """A wide border around the image shows where each model ends: a rim, a fold, the seam of a panorama."""
    assert_same_map(CAMERAS[name].example(seed, 90, 70, dtype).pad(60, 40, 50, 60))


FOLDS = {
    "circular": ThinPrismFisheye.make(
        252, 168, fx=60.0, fy=63.0, cx=126.0, cy=80.0, k1=-0.06, p1=0.001, p2=0.0005, sx1=0.001
    ),
    "far from a circle": ThinPrismFisheye.make(
        252, 168, fx=60.0, fy=63.0, cx=126.0, cy=80.0, k1=-0.06, p1=0.01, p2=-0.008, sx1=0.006
    ),
    "off centre": ThinPrismFisheye.make(
        252, 168, fx=60.0, fy=60.0, cx=20.0, cy=-10.0, k1=-0.05, k2=-0.004, p1=0.002
    ),
    "in front of 90°": OpenCV.make(
        252, 168, fx=150.0, fy=150.0, cx=126.0, cy=84.0, k1=-0.35, k2=0.02, p1=0.002, p2=0.001
    ),
    "rational": OpenCV.make(
        252, 168, fx=130.0, fy=130.0, cx=126.0, cy=84.0, k1=-0.3, p1=0.004, s1=0.003, k4=0.02
    ),
}


@each_dtype
@pytest.mark.parametrize("lens", FOLDS)
def test_maps_of_lenses_that_fold(lens, dtype):
    """Along a fold that is no circle, blocks are split until each pixel is unprojected by itself."""
    camera = FOLDS[lens].to(dtype)
    assert not camera.unproject_grid()[1].all()
    assert_same_map(camera)


@pytest.mark.parametrize("seed", [32, 39])
def test_rays_just_before_a_fold_are_found(seed):
    """Pixels that are hard to invert one by one: Newton's method must not start on the fold itself."""
    camera = OpenCV.example(seed, 90, 70).pad(60, 40, 50, 60)
    assert_same_map(camera)


def test_folds_beside_other_lenses_in_a_batch():
    lenses = [
        FOLDS["circular"],
        FOLDS["far from a circle"],
        ThinPrismFisheye.example(0, 252, 168, torch.float32),
    ]
    assert_same_map(ThinPrismFisheye.stack(lenses).to(torch.float64))


@each_camera
def test_batches_and_circles_of_all_lenses(name):
    lenses = [CAMERAS[name].example(seed, 90, 70).pad(30, 30, 30, 40) for seed in range(2)]
    assert_same_map(CAMERAS[name].stack(lenses).limit_to_circle(60))


@each_camera
def test_maps_with_gradients_of_all_lenses(name):
    camera = CAMERAS[name].example(3, 160, 110)
    traced = dataclasses.replace(camera, params=camera.params.clone().requires_grad_(), check=False)
    rays, valid = traced.unproject_grid()
    (gradient,) = torch.autograd.grad(rays[valid].sum(), traced.params)
    assert torch.isfinite(gradient).all() and (gradient != 0).any()
    assert torch.equal(valid, camera.unproject_grid()[1])
    with torch.no_grad():
        torch.testing.assert_close(rays[valid], traced.unproject_grid()[0][valid], atol=1e-9, rtol=0)


def test_maps_are_computed_the_same_way_twice():
    for name in ("opencv", "opencv_fisheye", "ucm"):
        camera = CAMERAS[name].example(0, 180, 120)
        assert torch.equal(camera.unproject_grid()[0], camera.unproject_grid()[0])


def test_benchmark():
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    large, small = benchmark_rays(repeats=1, lenses=("fisheye",), batch=3)["rows"]
    assert (large["maps"], small["maps"]) == (1, 3)
    for row in (large, small):
        assert row["error_px"] < 1e-6 and row["float64_ratio"] > 0 and row["float32_seconds"] > 0
    assert large["float32_ratio"] > 2
    assert {type(lens.camera) for lens in BENCHMARK_LENSES.values()} >= set(CAMERAS.values()) - {RayMapCamera}
