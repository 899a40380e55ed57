"""Training scenes from clips: pure in (seed, step, rank), one resampling step, poses in the first context's frame."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.cameras import Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import fit_box
from g_ray_lab.datasets.re10k import open_clips
from g_ray_lab.sources.draws import check_sampling, draw_frames, normalize_poses
from g_ray_lab.sources.nvs_settings import RE10KData
from g_ray_lab.sources.re10k_nvs import RE10KNVS, ClipFrames, load_scenes


@pytest.fixture(scope="module", params=["chunks", "folders"])
def source(miniature, request):
    clips = open_clips(miniature.root(request.param), "train")
    return RE10KNVS(clips, RE10KData(64, 32, 3))


def change(source, **settings):
    """The same source with other settings."""
    return replace(source, settings=replace(source.settings, **settings))


def images(batch):
    return torch.cat([batch.context_images, batch.target_images], 1)


def focals(batch):
    return torch.stack([c.parameter("fx") for c in (*batch.contexts.cameras, *batch.targets.cameras)], 1)


def test_a_batch_is_a_function_of_seed_step_and_rank(source):
    first, again = source.make_batch(5, 1), source.make_batch(5, 1)
    assert torch.equal(images(first), images(again)) and first.names == again.names
    assert first.context_images.shape == (3, 2, 3, 32, 64) and first.target_images.shape == (3, 1, 3, 32, 64)
    others = [source.make_batch(6, 1), source.make_batch(5, 0), replace(source, seed=1).make_batch(5, 1)]
    assert all(first.names != other.names for other in others)


def test_scenes_do_not_depend_on_the_batch_size(source):
    whole = change(source, batch=6).make_batch(0)
    halves = [source.make_batch(0), source.make_batch(1)]
    assert torch.equal(images(whole), torch.cat([images(half) for half in halves]))


def test_short_clips_are_never_drawn_and_held_out_ones_never_trained_on(source):
    assert len(source.kept) == 1 and len(source.keys) == 2
    used = {name.split(",")[0].split()[1] for step in range(4) for name in source.make_batch(step).names}
    assert "5hort0" not in used and not used & set(source.kept)


def test_clips_that_are_all_too_short_are_an_error_in_words(source):
    with pytest.raises(ValueError, match="has more than 40 frames"):
        change(source, gap=(40, 100)).make_batch(0)


def test_zoom_changes_all_but_the_first_context(source):
    native, zoomed = source.make_batch(0), source.with_zoom(2.5).make_batch(0)
    ratio = focals(zoomed) / focals(native)
    assert torch.allclose(ratio[:, 0], torch.ones(3))
    assert (ratio[:, 1:] > 1).all() and (ratio[:, 1:] < 2.5).all()
    assert torch.equal(native.context_images[:, 0], zoomed.context_images[:, 0])
    assert native.names == zoomed.names


def test_poses_start_at_the_first_context_and_have_unit_baseline(source):
    batch = source.make_batch(0)
    assert torch.allclose(batch.contexts.poses.world_from_cam[:, 0], torch.eye(4).expand(3, 4, 4), atol=1e-6)
    assert torch.allclose(batch.contexts.poses.translation[:, 1].norm(dim=-1), torch.ones(3), atol=1e-5)
    between = batch.targets.poses.translation[:, 0].norm(dim=-1)
    assert (between > 0).all() and (between < 1).all()


def test_a_camera_that_stood_still_is_not_scaled():
    poses = torch.eye(4, dtype=torch.float64).repeat(1, 3, 1, 1)
    poses[0, 1, 0, 3], poses[0, 2, 0, 3] = 5e-3, 2e-3
    assert torch.allclose(normalize_poses(Pose(poses), 2).world_from_cam, poses)


@pytest.mark.parametrize("zoom", [1.0, 1.7])
@pytest.mark.parametrize("shape", [(64, 36), (48, 48), (64, 16)])
def test_pixels_stay_on_their_rays(miniature, zoom, shape):
    """The cropped, resized, zoomed picture is what its new camera would have rendered."""
    clip = open_clips(miniature.folders, "train").get_clip("a1b2c3")
    scene = ClipFrames(clip, [3, 20, 10], 2, torch.tensor([1.0, zoom, zoom], dtype=torch.float64))
    batch = load_scenes([scene], *shape)
    room = replace(make_random_room(3, solids=6), shadows=False)
    pose = clip.poses[10].to(torch.float32)
    camera = batch.targets.cameras[0][0]
    assert isinstance(camera, Pinhole) and (camera.width, camera.height) == shape
    direct = room.render(camera, pose, antialias=3).rgb.movedim(-1, 0)
    shifted = direct.roll(1, -1)
    error, off_by_one = ((batch.target_images[0, 0] - other).abs().mean() for other in (direct, shifted))
    assert error < 0.03 and error < 0.6 * off_by_one


@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 300), st.integers(1, 300), st.floats(1, 5))
def test_the_fitted_box_is_inside_central_and_of_the_right_shape(width, height, new_width, new_height, zoom):
    left, top, right, bottom = fit_box(width, height, new_width, new_height, zoom)
    assert left >= -1e-9 and top >= -1e-9 and right <= width + 1e-9 and bottom <= height + 1e-9
    assert left + right == pytest.approx(width) and top + bottom == pytest.approx(height)
    assert (right - left) * new_height == pytest.approx((bottom - top) * new_width)
    assert zoom * (right - left) == pytest.approx(width) or zoom * (bottom - top) == pytest.approx(height)


@given(st.integers(0, 10_000), st.integers(26, 300), st.integers(2, 5), st.integers(1, 5))
def test_frames_follow_the_rule(seed, frames, contexts, targets):
    drawn = draw_frames(np.random.default_rng(seed), frames, (25, 100), contexts, targets)
    first, last = drawn[0], drawn[contexts - 1]
    assert 25 <= last - first <= min(100, frames - 1) and first >= 0 and last < frames
    between = drawn[1 : contexts - 1] + drawn[contexts:]
    assert len(set(between)) == len(between) == contexts + targets - 2
    assert all(first < number < last for number in between)


def test_the_gap_is_uniform():
    gaps = []
    for seed in range(3000):
        first, last, _ = draw_frames(np.random.default_rng(seed), 60, (25, 100), 2, 1)
        gaps.append(last - first)
    counts = np.bincount(gaps)[25:]
    assert len(counts) == 35 and counts.min() > 50 and counts.max() < 130


@pytest.mark.parametrize(
    ("gap", "contexts", "targets"), [((25, 20), 2, 1), ((2, 5), 3, 2), ((25, 100), 1, 1), ((25, 100), 2, 0)]
)
def test_impossible_sampling_is_refused(gap, contexts, targets):
    with pytest.raises(ValueError):
        check_sampling(gap, contexts, targets)


def test_a_corrupt_frame_names_clip_and_frame(miniature, tmp_path):
    shutil.copytree(miniature.chunks / "train", tmp_path / "train")
    for name in ("000000.torch", "000001.torch"):
        entries = torch.load(tmp_path / "train" / name, weights_only=True)
        for entry in entries:
            entry["images"] = [image[:50] for image in entry["images"]]
        torch.save(entries, tmp_path / "train" / name)
    source = RE10KNVS(open_clips(tmp_path, "train"), RE10KData(64, 32, 1))
    with pytest.raises(ValueError, match=r"clip \w{6}, frame \d+: the picture cannot be read"):
        source.make_batch(0)


def test_more_contexts_and_targets(source):
    batch = change(source, contexts=4, targets=3).make_batch(0)
    assert batch.context_images.shape[1] == 4 and batch.target_images.shape[1] == 3
    assert torch.allclose(batch.contexts.poses.translation[:, 3].norm(dim=-1), torch.ones(3), atol=1e-5)
