"""The FOV and the division camera at the ends of their ranges, against COLMAP where it has an answer."""

import math

import numpy as np
import pytest
import torch

from g_ray.cameras import FOV, Division, Pinhole
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap, camera_to_colmap

FRAME = {"fx": 40.0, "fy": 42.0, "cx": 24.5, "cy": 17.5}


def spread_points(count: int = 2000) -> torch.Tensor:
    """In all directions, before and behind the camera."""
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        *(("FOV", [*FRAME.values(), omega]) for omega in (0.0, 0.3, 0.92, 2.5)),
        *(("DIVISION", [*FRAME.values(), k]) for k in (-2.0, -0.3, 0.0, 0.2)),
        ("SIMPLE_DIVISION", [40.0, 24.5, 17.5, -0.3]),
    ],
)
def test_colmap_sees_the_same_points_at_the_same_pixels(model, params):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap is not installed")
    ours = camera_from_colmap(model, 48, 36, tuple(params))
    other = pycolmap.Camera(model=model, width=48, height=36, params=params)
    points = spread_points()
    pixels, valid = ours.project(points)
    expected = torch.from_numpy(np.asarray(other.img_from_cam(points.numpy())))
    imaged = expected.isfinite().all(-1)
    if model == "DIVISION" and params[-1] > 0:
        # COLMAP images points behind such a lens too, with the outer root of the quadratic: not what its inverse says.
        imaged &= points[:, 2] > 0
    assert torch.equal(valid, imaged)
    assert torch.allclose(pixels[valid], expected[valid], rtol=1e-9, atol=1e-6)
    back, seen = ours.unproject(pixels[valid])
    assert seen.all()
    straight = torch.nn.functional.normalize(points[valid], dim=-1)
    assert torch.linalg.vector_norm(back - straight, dim=-1).max() < 1e-6
    assert camera_to_colmap(ours) == (model.removeprefix("SIMPLE_"), tuple(ours.params.tolist()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("camera", [FOV, Division])
def test_no_distortion_is_a_pinhole(camera, dtype):
    """To the rounding of quotients that 90° sends to infinity."""
    points = spread_points().to(dtype)
    points = points[points[:, 2] > 0.2]
    ours, pinhole = (model.make(48, 36, **FRAME, dtype=dtype) for model in (camera, Pinhole))
    assert torch.allclose(ours.project(points)[0], pinhole.project(points)[0], rtol=1e-5, atol=1e-4)
    assert torch.allclose(ours.unproject_grid()[0], pinhole.unproject_grid()[0], atol=1e-6)
    assert torch.allclose(ours.central_intrinsics(), pinhole.central_intrinsics(), rtol=1e-6)


def test_a_ray_of_the_fov_camera_by_hand():
    """At r_d = 1 the angle of the stretched ray is ω: tan ψ = tan ω / (2 tan(ω/2))."""
    camera = FOV.make(48, 36, **FRAME, omega=0.9, dtype=torch.float64)
    ray, valid = camera.unproject(torch.tensor([24.5 + 40.0, 17.5], dtype=torch.float64))
    assert valid and ray[1] == 0
    assert math.atan2(ray[0], ray[2]) == pytest.approx(
        math.atan(math.tan(0.9) / (2 * math.tan(0.45))), abs=1e-12
    )
    beyond = torch.tensor([24.5 + 40.0 * math.pi / 1.8 + 1e-6, 17.5], dtype=torch.float64)
    assert not camera.unproject(beyond)[1]


def test_rays_of_the_division_camera_by_hand():
    """Barrel distortion reaches 90° where 1 + k t = 0, and goes on; pincushion distortion ends at t = 1/k."""
    wide = Division.make(48, 36, **FRAME, k=-0.25, dtype=torch.float64)
    at = torch.tensor([[24.5 + 80.0, 17.5], [24.5 + 160.0, 17.5]], dtype=torch.float64)
    rays, valid = wide.unproject(at)
    assert valid.all() and torch.allclose(rays[0], torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    assert math.degrees(math.atan2(rays[1, 0], rays[1, 2])) == pytest.approx(
        90 + math.degrees(math.atan(0.75))
    )
    assert torch.allclose(wide.project(rays)[0], at)
    narrow = Division.make(48, 36, **FRAME, k=0.25, dtype=torch.float64)
    near = torch.tensor([[24.5 + 79.9, 17.5], [24.5 + 80.1, 17.5]], dtype=torch.float64)
    assert narrow.unproject(near)[1].tolist() == [True, False]


@pytest.mark.parametrize("omega", [-0.1, math.pi, 57.0])
def test_an_omega_that_is_no_angle_is_refused(omega):
    with pytest.raises(ValueError, match=r"fov: omega = .* is not between 0 and π; give it in radians"):
        FOV.make(48, 36, **FRAME, omega=omega)


def test_a_division_that_folds_inside_the_image_is_refused():
    with pytest.raises(ValueError, match=r"division: .* folds back at the radius 1/√k"):
        Division.make(48, 36, **FRAME, k=9.0)
