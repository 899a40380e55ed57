"""Infinite coordinates and images of one row: no ray that is not finite counts as valid."""

import pytest
import torch

from g_ray.cameras import CAMERAS
from g_ray.cameras.opencv_fisheye import OpenCVFisheye

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("name", [name for name in CAMERAS if name != "ray_map"])
def test_points_that_are_not_finite_have_no_image(name):
    camera = CAMERAS[name].example(0)
    points = torch.tensor(
        [[INF, 0, 1], [0, -INF, 1], [0, 0, INF], [INF, INF, INF], [0, NAN, 1], [0, 0, 1]], dtype=camera.dtype
    )
    pixels, valid = camera.project(points)
    assert valid.tolist() == [False] * 5 + [True]
    assert bool(torch.isfinite(pixels).all())


@pytest.mark.parametrize(("width", "height"), [(32768, 2), (65536, 1), (1, 65536), (2, 32768)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ray_maps_of_few_rows(width, height, dtype):
    """Large enough for the matrix product, and with a row or a column that spans nothing."""
    longest = max(width, height)
    affine = {"fx": longest / 2, "fy": longest / 2, "cx": width / 2, "cy": height / 2}
    camera = OpenCVFisheye.make(width, height, **affine, k1=0.01, dtype=dtype)
    rays, valid = camera.unproject_grid()
    assert bool(valid.all())
    torch.testing.assert_close(torch.linalg.vector_norm(rays, dim=-1), torch.ones(height, width, dtype=dtype))
    pixels, _ = camera.project(rays.double())
    assert float((pixels[0, 0] - 0.5).abs().max()) < 0.05
