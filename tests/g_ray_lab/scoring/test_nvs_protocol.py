"""The field-of-view protocol and the references that need no network."""

from dataclasses import replace

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray_lab.scoring.nvs_protocols import (
    FovProtocol,
    PathsProtocol,
    WhoZoomsProtocol,
    choose_wide_height,
    make_shapes,
    measure_enlarged,
)
from g_ray_lab.scoring.nvs_scorer import REFERENCES, warp_by_rotation
from g_ray_lab.scoring.store import Shard
from g_ray_lab.sources.arc_views import RoomsNVS
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.sources.nvs_settings import RoomsData

PROTOCOL = FovProtocol(24, 24, scenes=5, at_once=2)


def test_zoom_changes_cameras_and_nothing_else():
    plain, zoomed = (list(PROTOCOL.make_batches(zoom)) for zoom in ("z1.0", "z2.5"))
    assert sum(len(batch) for batch in plain) == 5
    for before, after in zip(plain, zoomed, strict=True):
        assert torch.equal(before.targets.poses.world_from_cam, after.targets.poses.world_from_cam)
        assert torch.equal(before.context_images[:, 0], after.context_images[:, 0])
        ratio = after.targets.cameras[0].parameter("fx") / before.targets.cameras[0].parameter("fx")
        assert ((ratio >= 1) & (ratio <= 2.5)).all()


def test_who_zooms_changes_just_those_views():
    protocol = WhoZoomsProtocol(24, 24, scenes=3, zoom=2.0)
    seen = {setting: next(protocol.make_batches(setting)) for setting in protocol.settings}
    native = next(PROTOCOL.make_batches("z1.0"))
    assert torch.equal(seen["none"].target_images[:2], native.target_images)

    def focal(setting):
        batch = seen[setting]
        return [view.parameter("fx") for view in (*batch.contexts.cameras, *batch.targets.cameras)]

    for setting, factors in (("context", (1, 2, 1)), ("target", (1, 1, 2)), ("both", (1, 2, 2))):
        assert all(
            torch.equal(f * a, b) for f, a, b in zip(factors, focal("none"), focal(setting), strict=True)
        )
    assert torch.equal(seen["both"].context_images, seen["context"].context_images)
    assert torch.equal(seen["both"].target_images, seen["target"].target_images)


@pytest.mark.parametrize("zooms", [(1.0, 2.0), (1.0, 0.5, 1.0), (1.0, float("nan"), 1.0)])
def test_zooms_must_fit_the_views(zooms):
    with pytest.raises(ValueError, match="at least 1 for each"):
        RoomsNVS(RoomsData(36, 36), zooms=zooms)


def test_test_rooms_are_no_training_rooms():
    train = RoomsNVS(RoomsData(24, 24, 2)).make_batch(0)
    assert not torch.allclose(train.target_images, next(PROTOCOL.make_batches("z1.0")).target_images)


def test_digest_names_the_protocol():
    assert PROTOCOL.digest == FovProtocol(24, 24, scenes=5, at_once=2).digest
    assert PROTOCOL.digest != FovProtocol(24, 24, scenes=6, at_once=2).digest
    assert list(PROTOCOL.settings) == ["z1.0", "z1.5", "z2.0", "z2.5"]


def test_perfect_predictions_and_references():
    perfect = PROTOCOL.score(lambda batch: batch.target_images, "z2.0", None)
    assert (perfect.psnr > 100).all()
    assert torch.allclose(perfect.ssim, torch.ones(5), atol=1e-4)
    for reference in REFERENCES.values():
        scores = PROTOCOL.score(reference, "z2.0", None)
        assert scores.psnr.shape == (5,)
        assert (scores.psnr < 40).all()


def test_rotation_warp_is_exact_for_cameras_in_one_place():
    """A turned and zoomed camera at the context's own place: the warp shows what it would see."""
    rooms = RoomsNVS(RoomsData(48, 48, 1))
    batch = rooms.make_batch(3)
    context = batch.contexts.cameras[0]
    place = Pose(batch.contexts.poses.world_from_cam[:, :1])
    same = Views([context], place)
    zoomed = NVSBatch(batch.context_images[:, :1], same, batch.context_images[:, :1], same)
    assert torch.allclose(warp_by_rotation(zoomed), batch.context_images[:, :1], atol=1e-4)


# The paper's change of shape between training and test.


@pytest.mark.parametrize("zoom", ["z1.0", "z2.5"])
def test_shapes_change_what_their_names_say(zoom):
    shapes = make_shapes(PROTOCOL, 6)
    batches = {name: next(shapes.make_batches(f"{name}/{zoom}")) for name in shapes.parts}
    square, wide, aspect, fov = (batches[name] for name in ("square", "wide", "aspect", "fov"))
    assert torch.equal(square.target_images, next(PROTOCOL.make_batches(zoom)).target_images)
    # Fewer rows through the same lens are the middle rows of the higher image.
    assert torch.equal(aspect.target_images, square.target_images[..., 6:18, :])
    assert torch.equal(wide.context_images, fov.context_images[..., 6:18, :])
    for view in range(2):
        before, after = square.contexts.cameras[view], wide.contexts.cameras[view]
        assert (after.width, after.height) == (24, 12)
        assert torch.equal(after.parameter("fy") / after.height, before.parameter("fy") / before.height)
        assert torch.equal(after.parameter("fx") / after.width, before.parameter("fx") / before.width / 2)
        assert torch.equal(aspect.contexts.cameras[view].parameter("fx"), before.parameter("fx"))
        assert torch.equal(fov.contexts.cameras[view].parameter("fx"), before.parameter("fx") / 2)
    assert torch.equal(wide.targets.poses.world_from_cam, square.targets.poses.world_from_cam)


def test_shapes_are_groups_of_columns():
    shapes = make_shapes(PROTOCOL, 6)
    assert shapes.settings[:5] == ("wide/z1.0", "wide/z1.5", "wide/z2.0", "wide/z2.5", "square/z1.0")
    assert len(shapes.settings) == 16 and shapes.shown_setting == "wide/z2.0"
    assert shapes.digest != make_shapes(PROTOCOL, 6, factors=False).digest != PROTOCOL.digest
    with pytest.raises(ValueError, match="square"):
        make_shapes(FovProtocol(24, 12, scenes=2), 6)


def test_wide_tests_are_whole_patches_near_16_9():
    """The paper's own size exactly, and 7×4 patches for small networks."""
    assert choose_wide_height(256, 8) == 144
    assert choose_wide_height(42, 6) == 24
    assert choose_wide_height(12, 6) == 6
    wide = make_shapes(FovProtocol(42, 42, scenes=2), 6).parts["wide"]
    assert (wide.width, wide.height, wide.fov_px) == (42, 24, 24)


def test_poses_in_the_frame_of_the_room_are_the_same_cameras():
    native = next(PROTOCOL.make_batches("z2.0"))
    in_room = next(replace(PROTOCOL, pose_frame="room").make_batches("z2.0"))
    assert torch.equal(native.target_images, in_room.target_images)
    first, target = (Pose(views.poses.world_from_cam[:, 0]) for views in (in_room.contexts, in_room.targets))
    relative = (first.inverse() @ target).world_from_cam
    assert torch.allclose(relative, native.targets.poses.world_from_cam[:, 0], atol=1e-6)
    distance = first.translation[:, [0, 2]].norm(dim=-1)  # from the middle of the room
    assert ((distance > 1.0) & (distance < 2.3)).all()


def test_distinct_scenes_come_again():
    rooms = RoomsNVS(RoomsData(12, 12, batch=2, distinct=6))
    endless = RoomsNVS(RoomsData(12, 12, batch=2))
    assert torch.equal(rooms.make_batch(2).target_images, endless.make_batch(2).target_images)
    assert torch.equal(rooms.make_batch(4).target_images, endless.make_batch(1).target_images)
    with pytest.raises(ValueError, match="multiple of the batch"):
        RoomsNVS(RoomsData(12, 12, batch=4, distinct=6))


def test_pictures_in_the_cache_are_those_of_the_field_of_view(tmp_path):
    settings = RoomsData(12, 12, batch=2, cache=tmp_path)
    for rooms in (RoomsNVS(settings), RoomsNVS(settings, fov_px=6)):
        fresh = replace(rooms, settings=replace(settings, cache=None)).make_batch(0).target_images
        assert all(torch.equal(rooms.make_batch(0).target_images, fresh) for _ in range(2))


def test_small_images_are_enlarged_for_lpips():
    def distance(truth, predicted):
        assert truth.shape[-2:] == (36, 72)
        return (truth - predicted).abs().mean((-3, -2, -1))

    truth, predicted = torch.rand(2, 2, 1, 3, 18, 36)
    expected = (truth - predicted).abs().mean((-3, -2, -1))
    assert torch.allclose(measure_enlarged(distance, truth, predicted), expected)


def test_paths_at_two_shapes(shared_data):
    """A wide image shows what a square one does, and more to the sides; the focal length is 9/16 of its."""
    square = PathsProtocol(32, 32, scenes=3)
    wide = replace(square, height=16)
    high, low = (next(protocol.make_batches("z1.5")) for protocol in (square, wide))
    assert torch.equal(high.targets.poses.world_from_cam, low.targets.poses.world_from_cam)
    ratio = low.targets.cameras[0].parameter("fx") / high.targets.cameras[0].parameter("fx")
    assert torch.allclose(ratio, torch.tensor(9 / 16), atol=0.01)
    again = next(square.make_batches("z1.5"))
    assert torch.equal(again.target_images, high.target_images)


def test_shares_of_paths_are_the_whole(shared_data):
    whole = PathsProtocol(16, 16, scenes=3, at_once=1)
    parts = [batch for number in (1, 2) for batch in whole.select(Shard(number, 2)).make_batches("z1.5")]
    expected = list(whole.make_batches("z1.5"))
    assert len(parts) == 3 and [len(batch) for batch in whole.limit_scenes(2).make_batches("z1.5")] == [1, 1]
    for batch, order in zip(parts, (0, 2, 1), strict=True):
        assert torch.equal(batch.target_images, expected[order].target_images)
