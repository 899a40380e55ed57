"""The sweep network: its size, what it may know of lenses, and views of any size and with masks."""

from dataclasses import replace

import pytest
import torch

from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.stereo.depth_map import DepthMap
from g_ray.stereo.learned_depth import LearnedStereo
from g_ray.stereo.stereo_driver import _keep_unconfirmed
from g_ray.stereo.sweep_network import Sight, SweepNetwork

from .stereo_scenes import make_lens, make_scene


@pytest.fixture
def network():
    torch.manual_seed(0)
    return SweepNetwork().eval()


def estimate(network, views, sources=(1, 2)):
    return LearnedStereo.prepare(network, views).estimate(0, sources, 0.5, 8.0, views[0].size)


def make_views(kinds, size=64):
    return make_scene([make_lens(kind, size) for kind in kinds])[0]


def test_size(network):
    count = sum(weight.numel() for weight in network.state_dict().values())
    assert count <= 500_000 and 2 * count <= 2_000_000


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Random weights leave the choice between hypotheses to digits that bf16 does not have."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)


def test_knows_rays_and_no_lens(network):
    """The same rays as a table give the same depth as the lens model they come from."""
    views = make_views(("fisheye", "fisheye", "fisheye"))
    tables = [replace(view, camera=RayMapCamera.from_rays(*view.camera.unproject_grid())) for view in views]
    model, table = (estimate(network, each) for each in (views, tables))
    inside = views[0].camera.unproject_grid()[1]
    change = ((model.inverse - table.inverse).abs() / model.inverse)[inside]
    # The table is interpolated, and random weights leave the choice between hypotheses to the last digits.
    assert float(change.median()) < 0.005


def test_order_of_sources_does_not_matter(network):
    views = make_views(("pinhole", "fisheye", "panorama"))
    first, second = (estimate(network, views, sources) for sources in ((1, 2), (2, 1)))
    torch.testing.assert_close(first.inverse, second.inverse, rtol=1e-4, atol=1e-5)


def test_any_size(network):
    """Views whose sides are no multiples of 4 are padded, and the estimate has their size and lies in the range."""
    views = [view.limit_size(61) for view in make_views(("pinhole", "pinhole", "fisheye"), 80)]
    assert views[0].size[1] % 4 != 0
    found = estimate(network, views)
    assert tuple(found.inverse.shape) == views[0].size == tuple(found.confidence.shape)
    assert float(found.inverse.min()) >= 1 / 8 - 1e-6 and float(found.inverse.max()) <= 2 + 1e-6
    assert bool(((found.confidence >= 0) & (found.confidence <= 1)).all())


def test_masked_sources_are_not_seen(network):
    """With sources masked as a whole nothing depends on where they stand."""
    views = make_views(("pinhole", "pinhole", "pinhole"))
    hidden = [views[0], *(replace(view, mask=torch.zeros(view.size, dtype=torch.bool)) for view in views[1:])]
    elsewhere = [hidden[0], replace(hidden[1], pose=hidden[2].pose), replace(hidden[2], pose=hidden[1].pose)]
    torch.testing.assert_close(estimate(network, hidden).inverse, estimate(network, elsewhere).inverse)
    assert not torch.allclose(estimate(network, views).inverse, estimate(network, hidden).inverse)


def test_gradients_reach_all_weights(network):
    views = make_views(("pinhole", "pinhole", "pinhole"))
    images = torch.stack([view.load_image() for view in views])
    sights = [Sight.between(views[0], view) for view in views[1:]]
    found = network.train()([images], [sights], torch.tensor([[0.125, 2.0]]), 16)
    total = found.full.sum() + found.start.sum() + found.confidence_logits.sum() + found.fine_logits.std()
    (total + found.coarse_logits.std()).backward()
    missing = [name for name, weight in network.named_parameters() if weight.grad is None]
    assert not missing


def test_what_holds_is_confirmed_and_sure():
    """Views agree on the first two pixels; the network is sure of the first, and has no idea of the last."""
    confidence = torch.tensor([[0.9, 0.5, 0.5, 0.1]])
    depth, agreed = torch.full((1, 4), 2.0), torch.tensor([[True, True, False, False]])
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    found = DepthMap(depth, confidence, everywhere)
    checked = DepthMap(depth * agreed, 0.99 * agreed, agreed, expected_error=0.01 * agreed)
    kept = _keep_unconfirmed(found, checked)
    assert kept.valid.tolist() == [[True, False, False, False]]
    assert kept.candidates is not None
    assert kept.ray_depth.tolist() == [[2, 0, 0, 0]] and kept.candidates.tolist() == [[0, 2, 2, 0]]
    torch.testing.assert_close(kept.confidence, torch.tensor([[0.99, 0.05, 0.05, 0.0]]))
    torch.testing.assert_close(kept.expected_error, torch.tensor([[0.01, 0.0, 0.0, 0.0]]))
