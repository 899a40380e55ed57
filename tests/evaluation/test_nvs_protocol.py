"""The field-of-view protocol and the references that need no network."""

import pytest
import torch

from g_ray.data import NVSBatch, RoomsData, RoomsNVS
from g_ray.evaluation.nvs import REFERENCES, FovProtocol, WhoZoomsProtocol, warp_by_rotation
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views

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
