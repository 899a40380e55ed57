"""Linear maps in 8-bit integers against the same maps in float64, and networks that have them."""

import pytest
import torch
from torch import nn

from g_ray.cameras.pinhole import Pinhole
from g_ray.encodings import NoPosition
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import save_reconstruction
from g_ray.nn.int8 import Int8Linear, check_int8, quantize_blocks
from g_ray.nn.transformer import Block
from g_ray.predictors import make_predictor
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.network_cost import check_precision, count_weights
from g_ray.predictors.network_predictor import load_network
from g_ray.runtime.device import has_int8_instructions

CPU = torch.device("cpu")
needs_int8 = pytest.mark.skipif(not has_int8_instructions(), reason="this CPU has no VNNI instructions")


@needs_int8
@pytest.mark.parametrize("bias", [True, False])
def test_product_of_codes_is_exact(bias):
    """The output is that of the rounded weights and inputs, computed in float64 beside it."""
    torch.manual_seed(0)
    linear = nn.Linear(96, 40, bias=bias)
    x = torch.randn(2, 7, 96)
    s_w = linear.weight.detach().double().abs().amax(1, keepdim=True) / 127
    s_x = x.double().abs().amax(-1, keepdim=True) / 127
    truth = ((x.double() / s_x).round() * s_x) @ ((linear.weight.detach().double() / s_w).round() * s_w).T
    if linear.bias is not None:
        truth += linear.bias.detach().double()
    assert torch.allclose(Int8Linear(linear)(x).double(), truth, atol=1e-5)


@needs_int8
def test_tokens_and_rows_have_their_own_scales():
    """A token, or a row of weights, that is a million times smaller keeps its two digits."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 8, bias=False)
    x = torch.randn(3, 64)
    with torch.no_grad():
        linear.weight[0] *= 1e-6
        x[1] *= 1e-6
        truth = linear(x)
    error = (Int8Linear(linear)(x) - truth).abs() / truth.abs().amax(0).clamp_max(truth.abs().amax())
    assert float(((Int8Linear(linear)(x) - truth).norm(dim=0) / truth.norm(dim=0)).max()) < 0.03
    assert float(((Int8Linear(linear)(x) - truth).norm(dim=1) / truth.norm(dim=1)).max()) < 0.03
    assert error.isfinite().all()


@needs_int8
def test_zeros_stay_zeros():
    linear = nn.Linear(16, 16, bias=False)
    nn.init.zeros_(linear.weight)
    assert not Int8Linear(linear)(torch.randn(4, 16)).any()
    assert not Int8Linear(nn.Linear(16, 16, bias=False))(torch.zeros(4, 16)).any()


@needs_int8
def test_all_linear_maps_of_blocks_and_nothing_else():
    block = Block(32, NoPosition(16))
    network = nn.Sequential(block, nn.Linear(32, 32))
    quantize_blocks(network)
    names = {name for name, module in network.named_modules() if isinstance(module, Int8Linear)}
    assert names == {"0.attn.qkv", "0.attn.out", "0.mlp.fc1", "0.mlp.fc2"}


def make_network():
    torch.manual_seed(0)
    return ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray"))


@needs_int8
def test_heads_stay_float32_and_depth_changes_little():
    plain = make_network().eval()
    rough = load_network(plain, "cpu", "int8")
    assert rough is not plain and not plain.is_quantized
    assert count_weights(rough) < count_weights(plain)
    heads = (rough.camera_head, rough.world_head, rough.pose_head)
    assert not any(isinstance(module, Int8Linear) for head in heads for module in head.modules())
    side = 2 * plain.config.patch
    images, cameras = list(torch.rand(2, 3, side, side)), [Pinhole.from_fov(60.0, side, side)] * 2
    truth = run_inference(plain, images, cameras, size=side)
    found = run_inference(rough, images, cameras, size=side, precision="int8")
    for a, b in zip(truth.views, found.views, strict=True):
        assert not torch.equal(a.maps.ray_depth, b.maps.ray_depth)
        assert float((a.maps.ray_depth / b.maps.ray_depth - 1).abs().median()) < 0.03


@needs_int8
def test_a_quantized_network_is_neither_trained_nor_stored(tmp_path):
    network = make_network().quantize()
    with pytest.raises(ValueError, match="cannot be trained"):
        network.train()
    with pytest.raises(ValueError, match="not stored"):
        save_reconstruction(network, tmp_path / "a.safetensors")
    assert network.quantize() is network


def test_a_precision_that_the_network_is_not_prepared_for_is_refused():
    with pytest.raises(ValueError, match="belong together"):
        run_inference(make_network(), [torch.rand(3, 8, 8)], [Pinhole.from_fov(60.0, 8, 8)], precision="int8")


def test_int8_is_refused_where_it_is_not_faster(monkeypatch):
    with pytest.raises(ValueError, match="for CPUs, not for cuda"):
        check_int8(torch.device("cuda"))
    monkeypatch.setattr("g_ray.nn.int8.has_int8_instructions", lambda: False)
    with pytest.raises(ValueError, match="no VNNI"):
        load_network(make_network(), "cpu", "int8")
    with pytest.raises(ValueError, match="no int8"):
        make_predictor("pi3", ModelSettings(precision="int8"))


def test_bf16_warns_without_instructions_for_it(monkeypatch):
    monkeypatch.setattr("g_ray.predictors.network_cost.has_bf16_instructions", lambda: False)
    with pytest.warns(UserWarning, match="no bf16 instructions") as caught:
        load_network(make_network(), "cpu", "bf16")
    (warning,) = caught
    assert "\n" not in str(warning.message)
    check_precision("bf16", torch.device("cuda"))


def test_bf16_is_silent_with_instructions_for_it(monkeypatch, recwarn):
    monkeypatch.setattr("g_ray.predictors.network_cost.has_bf16_instructions", lambda: True)
    load_network(make_network(), "cpu", "bf16")
    assert not recwarn.list
