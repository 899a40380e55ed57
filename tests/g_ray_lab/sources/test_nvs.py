"""Rooms for novel-view synthesis: a pure function of (seed, step, rank), and images that belong to their cameras."""

from dataclasses import replace

import pytest
import torch

from g_ray.demo.room import Room, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import center_box, resample
from g_ray_lab.sources.arc_views import ArcDraws, RoomsNVS
from g_ray_lab.sources.batches import NVSBatch, compute_zoom_factors
from g_ray_lab.sources.nvs_settings import RoomsData

SMALL = RoomsNVS(RoomsData(24, 18, 3))


def change(source, **settings):
    """The same source with other settings."""
    return replace(source, settings=replace(source.settings, **settings))


def images(batch: NVSBatch) -> torch.Tensor:
    return torch.cat([batch.context_images, batch.target_images], 1)


def focals(batch: NVSBatch) -> torch.Tensor:
    return torch.stack([c.parameter("fx") for c in (*batch.contexts.cameras, *batch.targets.cameras)], 1)


def test_a_batch_is_a_function_of_seed_step_and_rank():
    first, again = SMALL.make_batch(5, 1), SMALL.make_batch(5, 1)
    assert torch.equal(images(first), images(again)) and torch.equal(focals(first), focals(again))
    assert torch.equal(first.targets.poses.world_from_cam, again.targets.poses.world_from_cam)
    others = [SMALL.make_batch(6, 1), SMALL.make_batch(5, 0), replace(SMALL, seed=1).make_batch(5, 1)]
    others.append(replace(SMALL, split="test").make_batch(5, 1))
    assert not any(torch.equal(images(first), images(other)) for other in others)


def test_cached_pictures_are_the_pictures(tmp_path):
    cached = change(SMALL, cache=tmp_path)
    fresh, first, second = SMALL.make_batch(2), cached.make_batch(2), cached.make_batch(2)
    assert torch.equal(images(fresh), images(first)) and torch.equal(images(fresh), images(second))
    assert torch.equal(focals(fresh), focals(second))
    (file,) = tmp_path.rglob("*.npy")
    assert file.stat().st_size < 128 + 3 * 3 * 3 * 18 * 24 + 1
    file.write_bytes(file.read_bytes()[:200])
    assert torch.equal(images(cached.make_batch(2)), images(fresh))
    change(cached, fov_deg=(40.0, 50.0)).make_batch(2)
    cached.make_batch(2, rank=1)
    assert len(list(tmp_path.rglob("*.npy"))) == 3


def test_nobody_elses_random_numbers_are_touched():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    SMALL.make_batch(0)
    assert torch.equal(state, torch.get_rng_state())


def test_scenes_do_not_depend_on_the_batch_size():
    whole = SMALL.make_scenes(range(4))
    pairs = [change(SMALL, batch=2).make_batch(step) for step in (0, 1)]
    assert torch.allclose(images(whole), torch.cat([images(pair) for pair in pairs]), atol=1e-5)


@pytest.mark.parametrize(("contexts", "targets"), [(1, 1), (2, 3), (4, 2)])
def test_shapes_for_any_number_of_views(contexts, targets):
    batch = change(SMALL, contexts=contexts, targets=targets).make_batch(0)
    assert len(batch) == 3
    assert batch.context_images.shape == (3, contexts, 3, 18, 24)
    assert batch.target_images.shape == (3, targets, 3, 18, 24)
    assert len(batch.contexts) == contexts and len(batch.targets) == targets
    assert batch.contexts.batch == batch.targets.batch == 3
    assert batch.context_images.min() >= 0 and batch.context_images.max() <= 1
    assert batch.context_images.std() > 0.1


def test_poses_are_relative_to_the_first_context():
    batch = SMALL.make_batch(0)
    assert torch.allclose(batch.contexts.poses.world_from_cam[:, 0], torch.eye(4).expand(3, 4, 4), atol=1e-6)
    away = batch.targets.poses.translation.norm(dim=-1)
    assert (away > 0.02).all() and (away < 2.0).all()


def test_only_the_first_context_keeps_its_field_of_view():
    native, zoomed = SMALL.make_batch(0), SMALL.with_zoom(2.5).make_batch(0)
    ratio = focals(zoomed) / focals(native)
    assert torch.allclose(ratio[:, 0], torch.ones(3))
    assert (ratio[:, 1:] > 1).all() and (ratio[:, 1:] < 2.5).all()
    assert torch.equal(native.context_images[:, 0], zoomed.context_images[:, 0])
    assert torch.equal(native.targets.poses.world_from_cam, zoomed.targets.poses.world_from_cam)
    fov = native.contexts.cameras[0].fov().horizontal_deg
    assert (fov >= 60).all() and (fov <= 80).all() and fov.std() > 1
    assert torch.allclose(focals(native), focals(native)[:, :1].expand(3, 3))


def test_zoom_factors_are_uniform_up_to_the_largest():
    unit = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0))
    zoom = compute_zoom_factors(unit, 2.5)
    assert (zoom[:, 0] == 1).all()
    assert zoom[:, 1:].min() >= 1 and zoom[:, 1:].max() <= 2.5
    assert abs(zoom[:, 1:].mean() - 1.75) < 0.01 and abs(zoom[:, 1:].std() - 1.5 / 12**0.5) < 0.01
    assert torch.equal(compute_zoom_factors(unit, 1), torch.ones_like(unit))
    with pytest.raises(ValueError, match="zoom_max 0 is below 1"):
        compute_zoom_factors(unit, 0)


def test_zooming_a_large_image_gives_what_the_zoomed_camera_sees():
    """The protocol for photographs, crop and resize, and the one for rooms are the same."""
    fine = change(SMALL, batch=2, width=192, height=144)
    coarse = change(SMALL, batch=2, zoom_max=2.5, antialias=8).make_batch(0)
    native = fine.make_batch(0)
    for scene in range(2):
        camera = native.targets.cameras[0][scene]
        zoom = focals(coarse)[scene, -1].item() * 8 / camera.parameter("fx").item()
        image, changed = resample(
            native.target_images[scene, 0], camera, 24, 18, center_box(192, 144, max(1.0, zoom))
        )
        assert torch.allclose(changed.params, coarse.targets.cameras[0][scene].params, atol=1e-4)
        error = (image - coarse.target_images[scene, 0]).square().mean()
        assert -10 * error.log10() > 32


def test_contexts_show_what_targets_show():
    """Two-view check: colours of target points, looked up in the contexts by camera and pose, agree."""
    data = change(SMALL, batch=2, width=96, height=72)
    batch = data.make_batch(3)
    for scene in range(2):
        draw = ArcDraws(data, 3 * 2 + scene, 0)
        room = make_random_room(draw.content, data.settings.solids, coarse=True)
        first = Pose.look_at(draw.eyes, draw.aims)[0].to(torch.float32)
        target, pose = batch.targets.cameras[0][scene], batch.targets.poses[scene, 0]
        seen = room.render(target, first @ pose)
        assert torch.allclose(seen.rgb.movedim(-1, 0), batch.target_images[scene, 0], atol=3e-3)
        points = (first.inverse()).apply(seen.points.reshape(-1, 3))
        hits = 0
        for view in range(2):
            local = batch.contexts.poses[scene, view].inverse().apply(points)
            pixels, valid = batch.contexts.cameras[view][scene].project(local)
            inside = valid & batch.contexts.cameras[view][scene].contains(pixels)
            grid = (pixels / pixels.new_tensor([48.0, 36.0]) - 1)[None, None]
            found = torch.nn.functional.grid_sample(
                batch.context_images[scene, view][None], grid, align_corners=False
            )[0, :, 0]
            near = (found - seen.rgb.reshape(-1, 3).mT).abs().amax(0)[inside] < 0.05
            hits += near.float().mean()
        assert hits / 2 > 0.8


def test_a_stack_of_rooms_renders_each():
    rooms = [make_random_room(seed, 4, dtype=torch.float64) for seed in (1, 2)]
    batch = SMALL.make_batch(0)
    camera = batch.contexts.cameras[0][:2].to(torch.float64)
    poses = Pose.look_at(
        torch.tensor([[-1.0, 0, -1], [1.2, -0.2, 0.4]], dtype=torch.float64),
        torch.zeros(2, 3, dtype=torch.float64),
    )
    both = Room.stack(rooms).render(camera, poses, antialias=2)
    for index, room in enumerate(rooms):
        alone = room.render(camera[index], poses[index], antialias=2)
        for name in ("rgb", "ray_depth", "z_depth", "points", "valid"):
            assert torch.allclose(
                getattr(both, name)[index].double(), getattr(alone, name).double(), atol=1e-9
            )


def test_no_camera_stands_in_a_wall_or_a_solid():
    batch = change(SMALL, batch=40, width=6, height=6, targets=2).make_batch(0)
    for number in range(40):
        draw = ArcDraws(change(SMALL, targets=2), number, 0)
        room = make_random_room(draw.content, 5, coarse=True, dtype=torch.float64)
        local = (
            room.solids.solid_from_world[:, None] @ (draw.eyes - room.solids.center[:, None])[..., None]
        )[..., 0]
        assert (local[0].abs() < 1).all()
        assert (local[1:].abs().amax(-1) > 1).all()
    assert batch.target_images.isfinite().all()


def test_rays_and_images_move_together():
    batch = SMALL.make_batch(0).to(torch.float64)
    assert batch.context_images.dtype == batch.contexts.dtype == batch.targets.poses.dtype == torch.float64
    assert RayMap.from_camera(batch.targets.cameras[0]).dtype == torch.float64


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 0}, "give positive numbers"),
        ({"fov_deg": (80.0, 60.0)}, "must be a range"),
        ({"zoom_max": 0.5}, "is below 1"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        change(SMALL, **wrong)


def test_unknown_splits_and_seeds_are_refused():
    with pytest.raises(ValueError, match="unknown split 'val'"):
        replace(SMALL, split="val")
    with pytest.raises(ValueError, match="a seed of 0 or more"):
        replace(SMALL, seed=-1)


def test_pictures_in_existing_caches_are_still_found():
    """The digest names the folder of cached pictures; this is the one of earlier versions."""
    assert SMALL._compute_digest() == "60fc8b92e30ceec9"
    assert replace(SMALL, zooms=(1.0, 2.0, 1.0))._compute_digest() == "dd69eaf9788f9b6e"
