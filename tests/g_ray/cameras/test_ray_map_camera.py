"""A table of rays as a camera: agrees with the lens it was sampled from, and can be edited like any other."""

import dataclasses
import math

import pytest
import torch

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole, RayMapCamera, pixel_centers
from g_ray.cameras.ray_table import RayTable


def equidistant(fov_deg: float, width: int = 96, height: int = 96) -> OpenCVFisheye:
    f = width / math.radians(fov_deg)
    return OpenCVFisheye.make(width, height, fx=f, fy=f, cx=width / 2, cy=height / 2, dtype=torch.float64)


@pytest.mark.parametrize("fov_deg", [60.0, 200.0])
def test_close_to_the_lens_between_the_entries(fov_deg):
    lens = equidistant(fov_deg)
    camera = RayMapCamera.from_rays(*lens.unproject_grid())
    pixels = torch.rand(500, 2, dtype=torch.float64) * 96
    (rays, valid), (expected, _) = camera.unproject(pixels), lens.unproject(pixels)
    assert valid.all()
    step = math.radians(fov_deg) / 96
    assert (rays - expected).norm(dim=-1).max() < step**2
    assert (camera.project(expected)[0] - pixels).norm(dim=-1).max() < step


def test_outer_half_pixel_belongs_to_the_image():
    camera = RayMapCamera.from_rays(*Pinhole.from_fov(60.0, 32, 24, dtype=torch.float64).unproject_grid())
    corners = torch.tensor([[0.0, 0.0], [32.0, 24.0], [0.1, 23.9]], dtype=torch.float64)
    rays, valid = camera.unproject(corners)
    again, imaged = camera.project(rays)
    assert valid.all() and imaged.all()
    torch.testing.assert_close(again, corners, atol=1e-6, rtol=0)
    assert not camera.unproject(torch.tensor([[-0.1, 5.0], [3.0, 24.2]], dtype=torch.float64))[1].any()
    assert not camera.project(torch.tensor([[0.0, 0.0, -1.0], [5.0, 0.0, 1.0]], dtype=torch.float64))[1].any()


def test_resampled_bakes_the_same_rays():
    camera = RayMapCamera.example(0).crop(10, 8, 40, 30).resize(80, 45)
    baked = camera.resample()
    assert baked.table.shape == (45, 80, 3) and baked.params.tolist() == [1, 1, 0, 0]
    for ours, theirs in zip(camera.unproject_grid(), baked.unproject_grid(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_holes_stay_invalid():
    rays, valid = Pinhole.from_fov(60.0, 32, 24, dtype=torch.float64).unproject_grid()
    rays[10, 12] = torch.nan
    camera = RayMapCamera.from_rays(rays)
    found, good = camera.unproject_grid()
    assert not good[10, 12] and good.sum() == 32 * 24 - 1 and torch.isfinite(found).all()
    near = torch.tensor([[12.9, 10.5], [11.5, 10.5]], dtype=torch.float64)
    assert camera.unproject(near)[1].tolist() == [False, True]
    masked = RayMapCamera.from_rays(torch.nan_to_num(rays), valid & (pixel_centers(32, 24)[..., 0] > 5))
    assert not masked.unproject_grid()[1][:, :5].any()


def test_gradient_in_the_table():
    small = RayMapCamera.from_rays(*equidistant(100.0, 4, 3).unproject_grid())
    pixels = torch.tensor([[1.2, 0.9], [2.7, 2.1]], dtype=torch.float64)
    rays = small.unproject(pixels)[0]

    def with_table(table):
        return dataclasses.replace(small, table=table, check=False)

    table = small.table.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: with_table(t).unproject(pixels)[0], (table,))
    assert torch.autograd.gradcheck(lambda t: with_table(t).project(rays)[0], (table,), atol=1e-4)


def test_axis_outside_the_table_is_extrapolated():
    lens = Pinhole.from_fov(40.0, 64, 48, dtype=torch.float64)
    table = RayMapCamera.from_rays(*lens.crop(48, 0, 16, 48).unproject_grid())
    expected = lens.crop(48, 0, 16, 48).central_intrinsics()
    torch.testing.assert_close(table.central_intrinsics(), expected, atol=0.3, rtol=0.01)


def test_refusals():
    rays = Pinhole.from_fov(60.0, 8, 6).unproject_grid()[0]
    camera = RayMapCamera.from_rays(rays)
    with pytest.raises(ValueError, match="at least 2 rows"):
        RayMapCamera.from_rays(rays[:1])
    with pytest.raises(ValueError, match="not unit vectors"):
        dataclasses.replace(camera, table=2 * rays)


TABLES = {
    "fisheye of 220°": equidistant(220.0, 200, 190),
    "telephoto": Pinhole.from_fov(2.0, 160, 120, dtype=torch.float64),
    # All columns of the first and last rows look at nearly the same point, and share a cell of the index.
    "panorama": Equirectangular.panorama(256, 128, dtype=torch.float64),
}


@pytest.mark.parametrize("lens", TABLES.values(), ids=list(TABLES))
def test_index_leads_to_the_place(lens):
    camera = RayMapCamera.from_rays(*lens.unproject_grid())
    generator = torch.Generator().manual_seed(0)
    size = torch.tensor([lens.width - 1.0, lens.height - 1.0], dtype=torch.float64)
    pixels = 0.5 + torch.rand(2000, 2, generator=generator, dtype=torch.float64) * size
    rays, valid = camera.unproject(pixels)
    again, imaged = camera.project(rays * 3.0)
    assert (imaged | ~valid).all()
    assert (again - pixels)[valid].norm(dim=-1).max() < 1e-6


def test_index_finds_what_the_search_finds():
    """Directions over the whole sphere, most of them beside the table: the same places and the same validity."""
    camera = RayMapCamera.from_rays(*equidistant(150.0, 90, 80).unproject_grid())
    points = torch.randn(4000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    table = RayTable(camera.table[None], camera.table_valid[None])
    (at, valid), (expected, seen) = table.locate(points[None], camera._index), table.locate(points[None])
    assert seen.sum() > 500 and torch.equal(valid, seen)
    torch.testing.assert_close(at[valid], expected[valid], atol=1e-6, rtol=0)


def test_tables_of_a_batch_have_an_index_each():
    lenses = [equidistant(fov, 40, 30) for fov in (80.0, 200.0)]
    tables, masks = zip(*(lens.unproject_grid() for lens in lenses), strict=True)
    both = RayMapCamera.from_rays(torch.stack(tables), torch.stack(masks))
    points = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    pixels, valid = both.project(points.expand(2, -1, -1))
    for i in range(2):
        alone, seen = both[i].project(points)
        assert torch.equal(valid[i], seen)
        torch.testing.assert_close(pixels[i][seen], alone[seen])
