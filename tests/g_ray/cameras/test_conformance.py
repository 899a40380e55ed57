"""What every camera promises. A new line in CAMERAS adds its tests."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from g_ray.cameras import CAMERAS, pixel_centers

TOLERANCE_PX = {torch.float32: 2e-3, torch.float64: 1e-6}
each_camera = pytest.mark.parametrize("name", CAMERAS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
few = hypothesis_settings(max_examples=6)
seeds = st.integers(0, 10_000)


def some_pixels(camera, seed=0, n=60):
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([camera.width, camera.height])
    pixels = torch.rand(*camera.batch_shape, n, 2, generator=generator, dtype=torch.float64) * size
    return pixels.to(camera.dtype)


def test_names():
    for name, model in CAMERAS.items():
        assert name == model.NAME
        assert model.PARAMETERS[:4] == ("fx", "fy", "cx", "cy")
        assert model.__doc__


@each_dtype
@each_camera
@given(seed=seeds)
@few
def test_round_trip(name, dtype, seed):
    camera = (
        CAMERAS[name].example(seed, 640, 480, dtype)
        if name != "ray_map"
        else CAMERAS[name].example(seed, dtype=dtype)
    )
    pixels = some_pixels(camera, seed, 400)
    rays, valid = camera.unproject(pixels)
    assert valid.float().mean() > 0.2
    assert torch.isfinite(rays).all()
    torch.testing.assert_close(rays.norm(dim=-1), torch.ones_like(rays[..., 0]), atol=1e-6, rtol=0)
    again, imaged = camera.project(rays * torch.rand_like(rays[..., :1]).add(0.1))
    assert imaged[valid].all()
    assert (again - pixels)[valid].abs().max() <= TOLERANCE_PX[dtype]


@each_camera
def test_autocast_does_not_reach_the_lens(name):
    camera = (
        CAMERAS[name].example(0, 640, 480, torch.float32) if name != "ray_map" else CAMERAS[name].example(0)
    )
    camera = camera.to(torch.float32)

    def cast():
        rays, _ = camera.unproject(some_pixels(camera))
        return rays, camera.project(rays)[0], camera.unproject_grid()[0]

    exact = cast()
    with torch.autocast("cpu", torch.bfloat16):
        again = cast()
    torch.testing.assert_close(again, exact, atol=0, rtol=0, equal_nan=True)


@each_camera
@given(seed=seeds)
@few
def test_points_come_back_as_their_ray(name, seed):
    camera = CAMERAS[name].example(seed)
    points = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    pixels, imaged = camera.project(points)
    assert torch.isfinite(pixels).all()
    rays, valid = camera.unproject(pixels)
    inside = imaged & camera.contains(pixels)
    assert valid[inside].all()
    torch.testing.assert_close(
        rays[inside], torch.nn.functional.normalize(points[inside], dim=-1), atol=1e-6, rtol=0
    )


@each_camera
def test_crop_pad_and_resize_commute_with_casting_rays(name):
    """eq:ray_resampling: U'(A p) is the same ray as U(p)."""
    camera = CAMERAS[name].example(5)
    pixels = some_pixels(camera)
    rays, valid = camera.unproject(pixels)
    warps = [
        (camera.crop(7, 5, 40, 30), 1.0, 1.0, -7, -5),
        (camera.pad(3, 4, 5, 6), 1.0, 1.0, 3, 4),
        (camera.resize(128, 36), 2.0, 0.75, 0, 0),
        (camera.crop(8, 6, 32, 24).resize(16, 48).pad(1, 2, 3, 4), 0.5, 2.0, -3, -10),
    ]
    for warped, sx, sy, tx, ty in warps:
        moved = pixels * torch.tensor([sx, sy]) + torch.tensor([tx, ty])
        again, still = warped.unproject(moved)
        torch.testing.assert_close(again, rays, atol=1e-9, rtol=0)
        assert (still == valid).all()
        back, imaged = warped.project(rays)
        torch.testing.assert_close(back[valid], moved[valid], atol=1e-6, rtol=0)
        assert imaged[valid].all()
    assert (warps[0][0].width, warps[1][0].width, warps[2][0].height, warps[3][0].height) == (40, 72, 36, 54)


@each_camera
def test_batch_is_a_loop(name):
    single = [CAMERAS[name].example(seed) for seed in range(3)]
    batch = CAMERAS[name].stack(single)
    assert batch.batch_shape == (3,)
    pixels = some_pixels(batch).unflatten(1, (6, 10))
    rays, valid = batch.unproject(pixels)
    again, imaged = batch.project(rays)
    for i, camera in enumerate(single):
        expected, expected_valid = camera.unproject(pixels[i])
        torch.testing.assert_close(rays[i], expected, atol=1e-12, rtol=0)
        assert (valid[i] == expected_valid).all()
        torch.testing.assert_close(again[i], camera.project(expected)[0], atol=1e-9, rtol=0)
        torch.testing.assert_close(batch[i].params, camera.params)
        torch.testing.assert_close(batch.central_intrinsics()[i], camera.central_intrinsics())
        torch.testing.assert_close(batch.fov().diagonal_deg[i], camera.fov().diagonal_deg)
    grid, _ = batch.unproject_grid()
    torch.testing.assert_close(grid[1], single[1].unproject_grid()[0], atol=1e-12, rtol=0)
    assert imaged[valid].all()


@each_camera
def test_gradients_in_points_and_parameters(name):
    camera = CAMERAS[name].example(1)
    axis = camera.project(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))[0]
    pixels = torch.cat([axis[None], torch.tensor([[20.0, 16.0], [41.0, 30.0]], dtype=torch.float64)])
    points = camera.unproject(pixels)[0] * torch.tensor([[1.0], [2.0], [0.5]])
    params = camera.params.clone().requires_grad_()

    def with_params(values):
        return dataclasses.replace(camera, params=values, check=False)

    def project(points, params):
        return with_params(params).project(points)[0]

    def unproject(pixels, params):
        return with_params(params).unproject(pixels)[0]

    assert torch.autograd.gradcheck(project, (points.requires_grad_(), params), atol=1e-4, rtol=1e-4)
    assert torch.autograd.gradcheck(unproject, (pixels.requires_grad_(), params), atol=1e-5, rtol=1e-4)


@each_dtype
@each_camera
def test_nothing_is_ever_nan(name, dtype):
    """Hopeless points and pixels: finite values, finite gradients, and marked invalid where they must be."""
    camera = CAMERAS[name].example(2, dtype=dtype)
    camera = dataclasses.replace(camera, params=camera.params.clone().requires_grad_(), check=False)
    points = torch.tensor(
        [
            [0, 0, 0],
            [0, 0, -1],
            [0, 0, 1],
            [1, 0, 0],
            [0, 1, 0],
            [0, -1, 0],
            [1e-30, 0, -1],
            [1, 1, -1e-9],
            [1, 1, 1e-30],
        ],
        dtype=dtype,
        requires_grad=True,
    )
    pixels = torch.tensor(
        [[0, 0], [1e4, 1e4], [-1e5, 3], [32, 24], [64, 48]], dtype=dtype, requires_grad=True
    )
    projected, imaged = camera.project(points)
    rays, valid = camera.unproject(pixels)
    assert not imaged[0]
    for result in (projected, rays):
        assert torch.isfinite(result).all()
    gradients = torch.autograd.grad(projected.sum() + rays.sum(), [points, pixels, camera.params])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert valid[3]


@each_camera
def test_central_intrinsics_are_the_jacobian_on_the_axis(name):
    camera = CAMERAS[name].example(3)
    axis = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda p: camera.project(p)[0], axis)
    k = camera.central_intrinsics()
    torch.testing.assert_close(k[:2, :2], jacobian[:, :2], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(k[:2, 2], camera.project(axis)[0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(k[2], axis)


@each_camera
def test_dtype_moves_and_accessors(name):
    camera = CAMERAS[name].example(0)
    single = camera.to(torch.float32)
    assert single.dtype == torch.float32 and single.device == camera.device
    assert single.to(device="cpu", dtype=torch.float64).dtype == torch.float64
    rays, valid = single.unproject_grid()
    assert rays.dtype == torch.float32 and rays.shape == (48, 64, 3) and valid.shape == (48, 64)
    torch.testing.assert_close(rays.double(), camera.unproject_grid()[0], atol=1e-3, rtol=0)
    for i, parameter in enumerate(camera.PARAMETERS):
        assert camera.parameter(parameter) == camera.params[i]
    with pytest.raises(ValueError, match="unknown parameter"):
        camera.parameter("nonsense")


@each_camera
def test_the_grid_is_made_of_pixel_centres(name):
    camera = CAMERAS[name].example(4, 320, 240) if name != "ray_map" else CAMERAS[name].example(4)
    centres = pixel_centers(camera.width, camera.height, dtype=torch.float64)
    assert centres[0, 0].tolist() == [0.5, 0.5] and centres[-1, -1].tolist() == [
        camera.width - 0.5,
        camera.height - 0.5,
    ]
    (rays, valid), (expected, expected_valid) = camera.unproject_grid(), camera.unproject(centres)
    torch.testing.assert_close(rays[valid], expected[valid], atol=1e-9, rtol=0)
    assert (valid == expected_valid).all()
