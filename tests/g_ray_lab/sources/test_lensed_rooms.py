"""Rooms through any lens: the field of view is what was asked for, rays hit the rooms' points, batches are pure."""

from dataclasses import replace

import pytest
import torch

from g_ray_lab.recipes import reconstruction_recipes
from g_ray_lab.sources.reconstruction_settings import RECONSTRUCTION_DATA, RoomsLenses
from g_ray_lab.sources.rooms_reconstruction import LensedRooms, LensRange, RoomsReconstruction

ROOMS = LensedRooms(RoomsLenses(32, 32, 3, (3, 3), off_center=0.0), patch=4)


def angles_from_axis(batch) -> torch.Tensor:
    return torch.rad2deg(torch.acos(batch.rays().directions[..., 2].clamp(-1, 1)))


@pytest.mark.parametrize("degrees", [120.0, 180.0, 220.0])
def test_a_fisheye_sees_its_field_of_view_and_nothing_beyond(degrees):
    batch = ROOMS.with_lenses(LensRange("fisheye", (degrees, degrees))).make_sets(range(2))
    widest = angles_from_axis(batch)[batch.valid].max()
    # The outermost pixel centers are within a pixel and a half of the rim: 16 px on the radius, slopes of 1 ± 0.6.
    assert degrees / 2 * (1 - 1.6 * 1.5 / 16) < widest <= degrees / 2 + 1e-3
    assert not batch.valid[..., 0, 0].any() and batch.valid[..., 16, 16].all()
    assert (batch.images.movedim(2, -1)[~batch.valid] == 0).all()


def test_a_panorama_sees_everything():
    batch = ROOMS.with_lenses(LensRange("panorama")).make_sets(range(2))
    assert batch.valid.all() and angles_from_axis(batch).max() > 170
    assert (batch.z_depth < 0).float().mean() == 0.5


@pytest.mark.parametrize(
    "lens", [LensRange("pinhole", (90.0, 90.0)), LensRange("fisheye", (220.0, 220.0)), LensRange("panorama")]
)
def test_points_lie_on_their_rays(lens):
    batch = ROOMS.with_lenses(lens).make_sets(range(2))
    rays = batch.rays()
    assert torch.equal(rays.valid, batch.valid)
    points = batch.ray_depth[..., None] * rays.directions
    assert torch.allclose(points[batch.valid], batch.camera_points[batch.valid], atol=1e-4)
    for view, camera in enumerate(batch.views.cameras):
        pixels, seen = camera.project(batch.camera_points[:, view].flatten(1, 2))
        there = torch.stack(torch.meshgrid(torch.arange(32), torch.arange(32), indexing="xy"), -1).flatten(
            0, 1
        )
        valid = batch.valid[:, view].flatten(1)
        assert seen[valid].all()
        assert (pixels - there - 0.5)[valid].abs().max() < 2e-2


def test_rooms_and_walks_are_those_of_other_rooms():
    ours = ROOMS.with_lenses(LensRange("pinhole", ROOMS.settings.fov_deg)).make_sets(range(3))
    theirs = RoomsReconstruction(ROOMS.settings, patch=4).make_sets(range(3))
    assert torch.equal(ours.poses.world_from_cam, theirs.poses.world_from_cam)
    assert torch.allclose(ours.images, theirs.images, atol=1e-4)


def test_training_sees_every_lens_and_batches_repeat():
    small = replace(ROOMS, settings=replace(ROOMS.settings, width=8, height=8, batch=1))
    names = [camera.NAME for step in range(12) for camera in small.make_batch(step).views.cameras]
    assert {names.count(name) > 3 for name in ("pinhole", "opencv_fisheye", "equirectangular")} == {True}
    first, again = small.make_batch(5), small.make_batch(5)
    assert torch.equal(first.images, again.images) and not torch.equal(
        first.images, small.make_batch(6).images
    )


def test_settings_are_checked_and_stored():
    with pytest.raises(ValueError, match="between 0° and 240°"):
        LensedRooms(replace(ROOMS.settings, fisheye_deg=(100.0, 300.0)))
    recipe = reconstruction_recipes.see_through_all_lenses(reconstruction_recipes.tiny("gray"))
    assert RECONSTRUCTION_DATA["rooms-lenses"] is type(recipe.data)
    assert isinstance(recipe.data.build_source(0, 4), LensedRooms)
    with pytest.raises(ValueError, match="a recipe on rooms"):
        reconstruction_recipes.see_through_all_lenses(reconstruction_recipes.scenes_tiny())
