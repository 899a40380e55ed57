"""Attention between a wide image and its crop: against the q and k that attention really got, and by hand."""

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.models.inference import PatchFraming
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.nn import sdpa
from g_ray_lab.scoring.fov_attention import (
    PairAttention,
    make_pair,
    make_scored_run,
    open_rooms,
    score_pairs,
    split_by_texture,
)

FRAMING = PatchFraming(24, 4)


def build(method: str) -> ReconstructionModel:
    torch.manual_seed(0)
    return ReconstructionModel(RECONSTRUCTION_SIZES["tiny"](method)).eval()


def make(place=(0.5, 0.5), fov_deg=70.0):
    image = torch.rand(3, 48, 48, generator=torch.Generator().manual_seed(1))
    return make_pair("a", image, Pinhole.from_fov(fov_deg, 48, 48), FRAMING, place)


@pytest.mark.parametrize("method", ["gray", "gray_qk", "rope", "camray"])
def test_weights_are_those_that_the_network_attends_with(method, monkeypatch):
    """Whatever reaches scaled dot-product attention with all tokens at once is a global layer."""
    model, pair, seen = build(method), make(), []
    attend = sdpa.attend

    def record(q, k, v, bias, chunk):
        seen.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)[0].mean(0))
        return attend(q, k, v, bias, chunk)

    monkeypatch.setattr(sdpa, "attend", record)
    found = PairAttention.from_model(model, pair)
    special, patches = model.aggregator.special, 36
    whole = torch.stack([weights for weights in seen if len(weights) == 2 * (special + patches)])
    assert len(whole) == model.config.pairs
    wide, narrow = slice(special, special + patches), slice(2 * special + patches, None)
    assert torch.allclose(found.wide_to_narrow, whole.mean(0)[wide, narrow], atol=1e-6)
    assert torch.allclose(found.narrow_to_wide, whole.mean(0)[narrow, wide], atol=1e-6)


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.0, 1.0), (0.3, 0.8)])
def test_the_grid_cannot_tell_fields_of_view_apart(place):
    """Both images have one grid, so that half of every patch's prior goes to each: exactly chance, wherever the crop
    lies. Ray angles prefer the shared field of view."""
    pair = make(place)
    chance = PairAttention.from_chance(pair, 4).score(pair, 4)
    grid = PairAttention.from_positions(build("rope"), pair).score(pair, 4)
    rays = PairAttention.from_positions(build("gray"), pair).score(pair, 4)
    assert chance["inside"] == pytest.approx(0.25) and chance["inside_back"] == pytest.approx(0.25)
    assert grid["inside"] == pytest.approx(0.25, abs=1e-6)
    assert rays["inside"] > 0.25 + 1e-4 and rays["inside_back"] > 0.25 + 1e-4
    assert rays["angle_deg"] < chance["angle_deg"]


def test_a_perfect_correspondence_scores_perfectly():
    pair = make()
    # Patches 2 and 3 of 6 rows and columns see what the crop shows; send all attention inside, to the nearest ray.
    coverage = pair.compute_coverage(4)
    assert torch.equal(coverage[1], torch.tensor([0, 0.5, 1, 1, 0.5, 0], dtype=torch.float64) * 0.5)
    inside = (coverage == 1).flatten()
    weights = torch.zeros(36, 36)
    weights[inside.nonzero()[:, 0], torch.tensor([7, 10, 25, 28])] = 1.0
    score = PairAttention(weights + 1e-12, weights.mT + 1e-12).score(pair, 4)
    assert score["inside"] == pytest.approx(1.0, abs=1e-6)
    assert score["inside_back"] == pytest.approx(1.0, abs=1e-6)


def test_the_crop_keeps_its_rays():
    pair = make((0.2, 0.9))
    left, top, right, bottom = pair.box
    corners = torch.tensor([[left, top], [right, bottom]])
    rays, _ = pair.wide.camera.unproject(corners)
    pixels, _ = pair.narrow.camera.project(rays)
    assert torch.allclose(pixels, torch.tensor([[0.0, 0.0], [24.0, 24.0]]), atol=1e-4)


def test_the_order_of_views_changes_attention_and_no_prior():
    model, pair = build("gray"), make((0.2, 0.7))
    exchanged = PairAttention.from_model(model, pair, narrow_first=True)
    assert exchanged.wide_to_narrow.shape == (36, 36)
    (scores,) = score_pairs(model, {"a": [pair]})["attention"]["a"]
    assert scores["inside_back_exchanged"] == exchanged.score(pair, 4)["inside_back"] != scores["inside_back"]
    (prior,) = score_pairs(model, {"a": [pair]})["prior"]["a"]
    assert prior["inside_back_exchanged"] == prior["inside_back"]


def test_rooms_are_pairs_without_any_data():
    scene = open_rooms(24, 4, 2)[1]
    image, camera = scene.load(0)
    assert image.shape == (3, 48, 48) and (camera.width, camera.height) == (48, 48)
    pair = make_pair(scene.name, image, camera, FRAMING)
    assert pair.narrow.image.shape == (3, 24, 24) and pair.measure_texture() > 0


def test_settings_and_texture():
    pairs = {"a": [make(), make((0.0, 0.0))], "b": [make((1.0, 1.0))]}
    scores = score_pairs(build("gray"), pairs)
    run = make_scored_run("gray", 0, scores["attention"], {"a": [3.0, 1.0], "b": [2.0]})
    assert set(run.rows) == {"a", "b", "weak texture", "rich texture"}
    assert [row.metrics["inside"] for row in run.rows["weak texture"]] == [
        scores["attention"]["a"][1]["inside"]
    ]
    assert [row.metrics["inside"] for row in run.rows["rich texture"]] == [
        scores["attention"]["a"][0]["inside"]
    ]
    assert split_by_texture([5.0, 1.0, 3.0, 2.0, 4.0, 6.0]) == ([1, 3], [0, 5])
    flat = make_pair("flat", torch.full((3, 48, 48), 0.5), Pinhole.from_fov(70.0, 48, 48), FRAMING)
    assert flat.measure_texture() == 0 < make().measure_texture()


def test_no_position_prefers_nothing():
    pair = make((0.1, 0.4))
    assert PairAttention.from_positions(build("none_global"), pair).score(pair, 4)["inside"] == pytest.approx(
        0.25
    )
