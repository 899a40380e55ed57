"""The 24 cameras of an object: the released rules, and where ours differ from them."""

import numpy as np
import pytest
import torch

from g_ray_lab.datasets.objaverse import DOLLY, FOCAL, NATIVE
from g_ray_lab.sources.render_objects import (
    FOV_DEG,
    NEAREST,
    UNIT_PX,
    compute_focal_px,
    sample_cameras,
)

NAMES = [f"object {number}" for number in range(300)]


GOLDEN_FOCAL = 128.0549869914887
"""So that data sets made by another version, or on another machine, have the same cameras."""


@pytest.fixture(scope="module")
def sampled() -> dict[str, np.ndarray]:
    """Over many objects, [object, direction, kind]."""
    cameras = [sample_cameras(name, 0, 64) for name in NAMES]
    focal = torch.stack([c.cameras.parameter("fx") for c in cameras]).numpy().reshape(-1, 8, 3)
    matrix = torch.stack([c.poses.world_from_cam for c in cameras]).numpy().reshape(-1, 8, 3, 4, 4)
    centre = matrix[..., :3, 3]
    distance = np.linalg.norm(centre, axis=-1)
    return {
        "fov": 2 * np.degrees(np.arctan(32 / focal)),
        "focal": focal * UNIT_PX / 64,
        "rotation": matrix[..., :3, :3],
        "centre": centre,
        "distance": distance,
        "azimuth": np.degrees(np.arctan2(centre[..., 1], centre[..., 0])) % 360,
        "elevation": np.degrees(np.arcsin(centre[..., 2] / distance)),
    }


def test_directions_are_spread_around_the_object(sampled):
    offset = (sampled["azimuth"] - 45 * np.arange(8)[None, :, None] + 180) % 360 - 180
    assert -22.5 <= offset.min() < -21.5 and 21.5 < offset.max() <= 22.5
    elevation = sampled["elevation"]
    assert -10 <= elevation.min() < -9.5 and 29.5 < elevation.max() <= 30


def test_cameras_look_at_the_origin_and_stand_upright(sampled):
    forward, down = sampled["rotation"][..., 2], sampled["rotation"][..., 1]
    assert np.allclose(forward, -sampled["centre"] / sampled["distance"][..., None])
    assert (down[..., 2] < -0.8).all()
    assert np.allclose(sampled["rotation"][..., 2, 0], 0)  # x is level
    assert np.allclose(np.linalg.det(sampled["rotation"]), 1)


def test_native_lenses_are_uniform_in_the_logarithm(sampled):
    assert sampled["fov"][..., NATIVE].min() >= 20 and sampled["fov"][..., NATIVE].max() <= 80
    low, high = np.log(compute_focal_px(FOV_DEG[1])), np.log(compute_focal_px(FOV_DEG[0]))
    place = np.sort((np.log(sampled["focal"][..., NATIVE]).ravel() - low) / (high - low))
    steps = (np.arange(len(place)) + 0.5) / len(place)
    assert np.abs(place - steps).max() < 1.63 / np.sqrt(len(place))  # Kolmogorov and Smirnov, 1 %


def test_distances_follow_the_lens(sampled):
    asked = (1 / 0.6) / (2 * np.tan(np.radians(sampled["fov"][..., NATIVE]) / 2))
    for kind, low, high in ((NATIVE, 0.9, 1.1), (DOLLY, 0.8, 1.2)):
        factor = sampled["distance"][..., kind] / asked
        kept = sampled["distance"][..., kind] > NEAREST + 1e-9
        assert low <= factor[kept].min() < low + 0.01 and high - 0.01 < factor.max() <= high
    assert (sampled["distance"][..., NATIVE] > NEAREST + 0.01).all()  # native cameras never needed the limit


def test_no_camera_is_inside_any_object_of_unit_extent(sampled):
    assert sampled["distance"].min() > NEAREST - 1e-9 > np.sqrt(3) / 2
    share = np.isclose(sampled["distance"][..., DOLLY], NEAREST).mean()
    assert 0 < share < 0.05


def test_a_focal_variant_has_the_native_pose_and_another_lens(sampled):
    for part in ("rotation", "centre"):
        kinds = np.moveaxis(sampled[part], 2, 0)
        assert (kinds[FOCAL] == kinds[NATIVE]).all()
    exponent = np.log(sampled["focal"][..., FOCAL]) / np.log(sampled["focal"][..., NATIVE])
    assert 0.8 <= exponent.min() < 0.81 and 1.19 < exponent.max() <= 1.2
    assert sampled["fov"][..., FOCAL].min() < 9 and sampled["fov"][..., FOCAL].max() > 115


def test_the_widest_and_the_narrowest_focal_variant():
    """The range that the released rule reaches."""
    for fov, power, reached in ((20.0, 1.2, 6.5), (80.0, 0.8, 124.5)):
        focal = compute_focal_px(fov) ** power
        assert abs(2 * np.degrees(np.arctan(UNIT_PX / 2 / focal)) - reached) < 0.05


def test_a_dolly_variant_has_the_native_lens_and_direction(sampled):
    assert (sampled["focal"][..., DOLLY] == sampled["focal"][..., NATIVE]).all()
    assert np.allclose(sampled["azimuth"][..., DOLLY], sampled["azimuth"][..., NATIVE])
    assert np.allclose(sampled["elevation"][..., DOLLY], sampled["elevation"][..., NATIVE])


def test_every_object_and_every_seed_has_its_own_cameras(sampled):
    assert len(np.unique(sampled["fov"][:, 0, NATIVE].round(6))) == len(NAMES)
    first, other = sample_cameras("cup", 0, 64), sample_cameras("cup", 1, 64)
    assert not torch.equal(first.poses.world_from_cam, other.poses.world_from_cam)


def test_cameras_depend_on_nothing_else():
    first, again = sample_cameras("cup", 0, 64), sample_cameras("cup", 0, 64)
    assert torch.equal(first.poses.world_from_cam, again.poses.world_from_cam)
    larger = sample_cameras("cup", 0, 128)
    assert torch.equal(larger.poses.world_from_cam, first.poses.world_from_cam)
    assert torch.allclose(larger.cameras.params, first.cameras.resize(128, 128).params)
    assert first.cameras.params[0, 0].item() == pytest.approx(GOLDEN_FOCAL, abs=1e-9)
