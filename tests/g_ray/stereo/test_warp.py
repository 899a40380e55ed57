"""Where pixels go in a source view, against exact projection."""

import pytest
import torch

from g_ray.cameras import CAMERAS, Equirectangular, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.stereo.warp import NODES, ProjectionTable, Trajectories

from .stereo_scenes import make_view

MAX_ERROR_PX = 0.05


def blank_view(camera, pose):
    return make_view(torch.zeros(3, camera.height, camera.width), camera, pose)


def make_trajectories(source_camera, reference_camera=None):
    reference_camera = reference_camera or Pinhole.from_fov(70, 48, 36, dtype=torch.float64)
    reference = blank_view(reference_camera, Pose.identity(dtype=torch.float64))
    source = blank_view(source_camera, Pose.look_at((0.4, 0.1, 0.1), (0.3, 0.0, 3.0)).to(torch.float64))
    rays = reference_camera.to(torch.float32).unproject_grid()[0]
    return Trajectories.between(reference, source, rays)


@pytest.mark.parametrize("name", CAMERAS)
def test_interpolated_curves_are_exact_to_a_twentieth_of_a_pixel(name):
    camera = CAMERAS[name].example(3, 480, 360)
    ways = make_trajectories(camera)
    offsets = torch.linspace(0, 0.4, 32)
    center = torch.full((36, 48), 0.1)
    pixels, valid = ways.prepare(center, offsets).evaluate(0, 32)
    points = (
        ways.bearings.double() + (center + offsets[:, None, None])[..., None].double() * ways.shift.double()
    )
    exact, imaged = camera.project(points)
    inside = imaged & camera.contains(exact)
    assert inside.float().mean() > 0.1
    both = inside & valid
    assert both.sum() > 0.98 * inside.sum()
    assert (pixels.double() - exact)[both].norm(dim=-1).max() < MAX_ERROR_PX


def test_a_group_evaluates_in_parts_as_at_once():
    ways = make_trajectories(Pinhole.from_fov(80, 64, 48, dtype=torch.float64))
    group = ways.prepare(torch.full((36, 48), 0.2), torch.linspace(0, 0.3, 3 * NODES))
    whole, valid = group.evaluate(0, 3 * NODES)
    part, part_valid = group.evaluate(4, 9)
    torch.testing.assert_close(part, whole[4:9], atol=1e-4, rtol=0)
    assert (part_valid == valid[4:9]).all()


def test_the_seam_of_a_panorama_is_crossed_exactly():
    panorama = Equirectangular.panorama(240, 120, dtype=torch.float64)
    # The reference looks backwards, so that its pixels lie around the seam of the source.
    reference = blank_view(
        Pinhole.from_fov(60, 40, 30, dtype=torch.float64),
        Pose.look_at((0, 0, 0), (0.0, 0.1, -1.0)).to(torch.float64),
    )
    source = blank_view(panorama, Pose.look_at((0.3, 0, 0), (0.3, 0.0, 1.0)).to(torch.float64))
    ways = Trajectories.between(reference, source, reference.camera.to(torch.float32).unproject_grid()[0])
    center, offsets = torch.full((30, 40), 0.05), torch.linspace(0, 1, 24)
    pixels, _ = ways.prepare(center, offsets).evaluate(0, 24)
    exact, _ = ways.project(center + offsets[:, None, None])
    assert (exact[..., 0] < 20).any() and (exact[..., 0] > 220).any()
    gap = (pixels - exact).abs()
    gap[..., 0] = torch.minimum(gap[..., 0], 240 - gap[..., 0])  # both sides of the seam are one place
    assert gap.max() < MAX_ERROR_PX


def test_table_of_a_ray_map():
    camera = CAMERAS["ray_map"].example(1, 160, 120, torch.float32)
    table = ProjectionTable.make(camera)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(2000, 2, generator=generator) * torch.tensor([160.0, 120.0])
    rays, usable = camera.unproject(pixels)
    found, valid = table.project(3 * rays)
    assert (valid == usable).float().mean() > 0.99
    assert (found - pixels)[valid & usable].norm(dim=-1).max() < MAX_ERROR_PX
    behind, imaged = table.project(torch.tensor([[0.0, 0.0, -1.0]]))
    assert torch.isfinite(behind).all() and not imaged.any()
