"""Real camera paths in procedural rooms: inside them, with real lenses, split by clip."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.geometry.pose import Pose
from g_ray_lab.sources.nvs_settings import PathsData
from g_ray_lab.sources.re10k_nvs import FREE, PathRoomsNVS, make_cameras, place_poses, read_paths


def wandering(seed, frames=60):
    """A made-up path in the file's format: a random walk with a turning camera."""
    random = np.random.default_rng(seed)
    eyes = torch.from_numpy(np.cumsum(random.normal(0, 0.05, (frames, 3)), 0))
    aims = (
        eyes
        + torch.tensor([0.0, 0.0, 1.0])
        + torch.from_numpy(np.cumsum(random.normal(0, 0.02, (frames, 3)), 0))
    )
    matrices = Pose.look_at(eyes, aims).cam_from_world[:, :3].reshape(frames, 12)
    lens = torch.tensor([0.48, 0.48 * 16 / 9, 0.5, 0.5], dtype=torch.float64).expand(frames, 4)
    return torch.cat([lens, matrices], 1).float().numpy()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("paths") / "paths.npz"
    np.savez(path, **{f"clip{seed:03d}": wandering(seed) for seed in range(60)}, short=wandering(99, 10))
    return path


@pytest.fixture(scope="module")
def real(shared_data):
    return shared_data / "re10k_cameras" / "re10k_test_600.npz"


def inside_solid(room, points):
    """Whether points lie in any solid, and how far inside the walls they are."""
    offset = points[:, None] - room.solids.center
    local = torch.einsum("sij,nsj->nsi", room.solids.solid_from_world, offset)
    ball, cube = local.norm(dim=-1) < 1, local.abs().amax(-1) < 1
    within = torch.where(room.solids.is_ball, ball, cube)[:, 1:]
    return within.any(1), (room.half_size - points.abs()).amin(-1)


def make_source(file, width=36, height=36, **settings):
    return PathRoomsNVS(PathsData(width, height, paths=file, **settings))


def check_no_camera_is_in_a_wall(source, scenes):
    baselines = []
    for number in range(scenes):
        draw = source.draw_path(number, 0, "train")
        eyes = draw.poses.translation.float()
        stuck, from_walls = inside_solid(draw.room, eyes)
        assert not stuck.any() and (from_walls > 0.25).all()
        baselines.append(float((eyes[1] - eyes[0]).norm()))
    assert 0.3 < np.median(baselines) <= 1.0


def test_no_camera_is_in_a_wall_or_a_solid(file):
    check_no_camera_is_in_a_wall(make_source(file, solids=9), 60)


def test_no_real_camera_is_in_a_wall_or_a_solid(real):
    check_no_camera_is_in_a_wall(make_source(real, solids=9), 100)


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_any_path_of_any_size_is_placed_in_the_free_box(seed, size):
    random = np.random.default_rng(seed)
    eyes = torch.from_numpy(random.normal(0, size, (4, 3)))
    poses = Pose.look_at(
        eyes, eyes + torch.from_numpy(random.normal(0, 0.3, (4, 3))) + torch.tensor([0, 0, 1.0])
    )
    low, high = torch.tensor(FREE, dtype=torch.float64)
    eyes = place_poses(poses, 2, random).translation
    assert (eyes >= low - 1e-6).all() and (eyes <= high + 1e-6).all()


def test_placing_keeps_the_motion(file):
    """Up to one scale, cameras are where and how they were relative to each other."""
    path = read_paths(file)["clip003"]
    poses = Pose(path.poses.world_from_cam[[0, 40, 20]])
    there = place_poses(poses, 2, np.random.default_rng(0)).relative_to_first()
    here = poses.relative_to_first()
    assert torch.allclose(there.rotation, here.rotation, atol=1e-9)
    ratio = there.translation[1:].norm(dim=-1) / here.translation[1:].norm(dim=-1)
    assert ratio[0] == pytest.approx(ratio[1])
    assert torch.allclose(there.translation, here.translation * ratio[0], atol=1e-9)


def test_misread_poses_are_turned_about_x_on_both_sides_and_pictures_are_the_same(file):
    right, wrong = (
        make_source(file, 12, 12, axes=axes).make_scenes(range(2)) for axes in ("opencv", "blender")
    )
    assert torch.equal(right.target_images, wrong.target_images)
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0]))
    expected = flip @ right.targets.poses.world_from_cam @ flip
    assert torch.allclose(wrong.targets.poses.world_from_cam, expected, atol=1e-6)
    assert not torch.allclose(
        wrong.targets.poses.world_from_cam, right.targets.poses.world_from_cam, atol=1e-2
    )


@pytest.mark.parametrize("shape", [(64, 36), (36, 36), (64, 16)])
def test_the_lens_is_the_real_one_behind_a_centred_crop(shape):
    """Compared with resizing the camera of a 640×360 picture."""
    from g_ray.cameras import Pinhole
    from g_ray.rays.resample import fit_box

    lens = torch.tensor([[0.48, 0.48 * 16 / 9, 0.51, 0.47]], dtype=torch.float64)
    fx, fy, cx, cy = (lens[0] * torch.tensor([640, 360, 640, 360])).tolist()
    whole = Pinhole.make(640, 360, fx=fx, fy=fy, cx=cx, cy=cy)
    cut = whole.resize(*shape, fit_box(640, 360, *shape, zoom=1.5))
    ours = make_cameras(lens, torch.tensor([1.5], dtype=torch.float64), *shape)
    assert torch.allclose(ours.params[0], cut.params, rtol=1e-5)


def test_clips_are_split_by_name(file):
    source = make_source(file, width=12, height=12)
    keys = [{clip.key for clip in source.clips[split]} for split in ("train", "test", "held_out")]
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    assert set.union(*keys) == {f"clip{seed:03d}" for seed in range(60)}  # and not the short one
    shown = {name.split(",")[0] for name in source.make_held_out().names}
    assert shown <= {f"clip {key}" for key in keys[2]}


def test_a_batch_is_a_function_of_seed_step_and_rank(file):
    source = make_source(file, batch=2, width=24, height=18)
    first, again = source.make_batch(3, 1), source.make_batch(3, 1)
    assert torch.equal(first.target_images, again.target_images) and first.names == again.names
    assert first.context_images.shape == (2, 2, 3, 18, 24) and first.target_images.std() > 0.05
    others = [source.make_batch(4, 1), source.make_batch(3, 0), replace(source, seed=1).make_batch(3, 1)]
    assert all(first.names != other.names for other in others)
    whole = replace(source, settings=replace(source.settings, batch=4)).make_batch(0)
    halves = torch.cat([source.make_batch(0).target_images, source.make_batch(1).target_images])
    assert torch.allclose(whole.target_images, halves, atol=1e-5)


def test_poses_and_zoom_follow_the_protocol(file):
    source = make_source(file, batch=3, width=24, height=18)
    native, zoomed = source.make_batch(0), source.with_zoom(2.0).make_batch(0)
    assert torch.allclose(native.contexts.poses.translation[:, 1].norm(dim=-1), torch.ones(3), atol=1e-5)
    assert torch.equal(native.context_images[:, 0], zoomed.context_images[:, 0])
    ratio = zoomed.targets.cameras[0].parameter("fx") / native.targets.cameras[0].parameter("fx")
    assert (ratio > 1).all() and (ratio < 2).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((5, 18), np.float32), "expected .frame, 16. numbers"),
        (np.zeros((5, 16), np.float32), "focal lengths"),
        (np.ones((5, 16), np.float32), "the pose is no rotation"),
        (np.full((5, 16), np.nan, np.float32), "must be finite"),
    ],
)
def test_wrong_paths_are_refused(tmp_path, rows, message):
    np.savez(tmp_path / "paths.npz", clip=rows)
    with pytest.raises(ValueError, match=message) as refused:
        read_paths(tmp_path / "paths.npz")
    assert "paths.npz, clip clip" in str(refused.value)


def test_other_files_and_settings_are_refused(tmp_path, file):
    (tmp_path / "paths.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"paths\.npz"):
        read_paths(tmp_path / "paths.npz")
    with pytest.raises(ValueError, match="unknown split"):
        replace(make_source(file), split="val")
    with pytest.raises(ValueError, match="has 0 clips of more than 70 frames"):
        make_source(file, gap=(70, 100))
