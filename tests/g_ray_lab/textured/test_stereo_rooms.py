"""Rooms for learned stereo: exact depth in all lenses, and the same pictures wherever and whenever they are made."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from g_ray.geometry.pose import Pose
from g_ray_lab.sources.stereo_settings import StereoData
from g_ray_lab.textured.stereo_rooms import TEXTURE_PX, TEXTURES, StereoRoom, draw_textures
from g_ray_lab.textured.stereo_views import StereoViews

SMALL = StereoData(sides=(32,), batch=2, views=3, sources=(2, 2), distinct=3)


@pytest.fixture(scope="module")
def textures():
    return torch.rand(TEXTURES * TEXTURE_PX**2, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def source(textures):
    """A stream whose textures need not be drawn, which takes seconds."""
    stream = StereoViews(SMALL)
    stream.pools((0, 0, 0, 0), lambda: textures)
    return stream


@pytest.mark.parametrize("lens", ["narrow", "pinhole", "fisheye", "panorama"])
def test_depth_is_exact(lens, textures):
    """Points of one view lie at the distance that another view has where they fall, unless something is before them."""
    room = StereoRoom.draw((0, 0, 0, 4), 2, 48, (lens,))
    depth = room.render(textures).ray_depth
    (reference, other), (first, second) = room.cameras, room.poses
    rays, valid = reference.unproject_grid()
    points = first.apply((rays * depth[0][..., None])[valid & (depth[0] > 0)])
    local = second.inverse().apply(points)
    pixels, seen = other.project(local)
    seen &= other.contains(pixels)
    assert int(seen.sum()) > 100
    # Cast the other camera's rays to these points: exact, while its depth map has pixels.
    directions = torch.nn.functional.normalize(points[seen] - second.translation, dim=-1)
    distance = room.room.cast(second.translation[None], directions)[0]
    error = distance - local[seen].norm(dim=-1)
    assert float((error.abs() < 1e-3).float().mean()) > 0.5 and float(error.max()) < 1e-2


def test_a_step_decides_on_its_batch(source):
    first, again = source.make_batch(5), source.make_batch(5)
    for one, two in zip(first.sets, again.sets, strict=True):
        assert torch.equal(one.images, two.images) and torch.equal(one.limits, two.limits)
        assert torch.equal(one.poses.world_from_cam, two.poses.world_from_cam)
    assert not torch.equal(first.sets[0].images, source.make_batch(8).sets[0].images)


def test_cache_holds_what_is_rendered(source, textures, tmp_path):
    kept = StereoViews(replace(SMALL, cache=tmp_path))
    kept.pools((0, 0, 0, 0), lambda: textures)
    rendered, written, read = source.make_set(1), kept.make_set(1), kept.make_set(1)
    assert len(list(tmp_path.iterdir())) == 1
    assert torch.equal(rendered.images, written.images) and torch.equal(written.images, read.images)
    torch.testing.assert_close(read.ray_depth, rendered.ray_depth, rtol=1e-3, atol=1e-3)


def test_batches_take_turns_with_sizes(textures):
    stream = StereoViews(replace(SMALL, sides=(32, 40)))
    stream.pools((0, 0, 0, 0), lambda: textures)
    assert [stream.make_batch(step).sets[0].images.shape[-1] for step in (0, 1, 2)] == [32, 40, 32]


def test_pictures_cover_surfaces(tmp_path):
    """Half of the textures are parts of the given images."""
    Image.new("RGB", (300, 200), (250, 0, 0)).save(tmp_path / "red.jpg")
    textures = draw_textures((0, 0, 0, 0), tmp_path).unflatten(0, (TEXTURES, -1))
    red = (textures[..., 0] > textures[..., 1:].amax(-1) + 0.5).all(-1)
    assert 0.15 < float(red.float().mean()) < 0.65  # weak ones lose their color


def test_true_places_lie_in_the_range(source):
    for number in range(3):
        set_ = source.make_set(number)
        places = set_.compute_places()[set_.valid]
        assert float(((places > 0) & (places < 1)).float().mean()) > 0.97


def test_errors_of_poses_are_fractions_of_a_pixel(source):
    set_ = source.make_set(0)
    exact = {tuple(pose.translation.tolist()) for pose in source.rooms((0, 0, 0, 0, 32), lambda: None).poses}
    for pose in (set_.poses[i] for i in range(3)):
        assert tuple(pose.translation.float().tolist()) in exact
        turned = pose.rotation.mT @ pose.rotation
        torch.testing.assert_close(turned, torch.eye(3, dtype=torch.float64))
    assert isinstance(set_.poses, Pose)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": (2, 3)}, "sources"),
        ({"sides": (32, 30)}, "multiples of 8"),
        ({"pictures": Path()}, "no .jpg"),
    ],
)
def test_impossible_settings(change, message):
    with pytest.raises(ValueError, match=message):
        StereoViews(replace(SMALL, **change))


def test_open_rooms_show_the_sky(textures):
    """The sky is infinitely far, has its own colors, and leaves what is before it as it was."""
    closed = StereoRoom.draw((0, 0, 0, 0), 3, 48)
    opened = StereoRoom.draw((0, 0, 0, 0), 3, 48, open_share=1.0)
    assert closed.opening is None and opened.opening is not None
    before, after = closed.render(textures), opened.render(textures)
    sky = after.ray_depth.isinf()
    assert 0.05 < float(sky.float().mean()) < 0.6
    assert torch.equal(before.ray_depth[~sky], after.ray_depth[~sky]) and bool(
        (before.ray_depth[sky] > 0).all()
    )
    pixels = sky[:, None].expand_as(after.images)
    assert float((before.images[pixels].float() - after.images[pixels]).abs().mean()) > 5
