"""Multi-head attention: asking for some tokens gives their rows of the whole."""

from copy import deepcopy

import pytest
import torch

from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.encodings.rotation import make_pairs_adjacent
from g_ray.nn.attention import attention
from g_ray.nn.transformer import MultiHeadAttention, prepare_for_inference


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("bias", [False, True])
def test_some_queries_are_rows_of_the_whole(name, bias, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(16)
    host = encoding(name, 24)
    torch.manual_seed(0)
    layer = MultiHeadAttention(48, host, bias=bias, qk_norm=True).double()
    x = torch.randn(2, len(tokens), 48, dtype=torch.float64, requires_grad=True)
    first = len(tokens) - len(tokens.select([1]))
    whole = layer(x, host.prepare(tokens))[:, first:]
    some = layer(x, host.prepare(tokens.select([1]), tokens), queries=slice(first, None))
    assert torch.allclose(whole, some, atol=1e-12)
    weight = torch.randn_like(whole)
    inputs = [x, *layer.parameters()]
    gradients = [torch.autograd.grad((out * weight).sum(), inputs) for out in (whole, some)]
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(*gradients, strict=True))


def make_layer(name, norm=torch.nn.RMSNorm):
    torch.manual_seed(0)
    layer = MultiHeadAttention(48, encoding(name, 24), qk_norm=True, norm=norm).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def read_parameters(layer):
    return {name: value.detach().clone() for name, value in layer.named_parameters()}


def are_equal(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("norm", [torch.nn.RMSNorm, torch.nn.LayerNorm])
def test_a_layer_prepared_for_inference_computes_the_same(name, norm, mixed_views):
    tokens, host, layer = (
        mixed_views(lenses=("wide", "tele")).tokens(16),
        encoding(name, 24),
        make_layer(name, norm),
    )
    x = torch.randn(2, len(tokens), 48, dtype=torch.float64)
    first = len(tokens) - len(tokens.select([1]))
    asked = {"queries": slice(first, None), "key_mask": torch.rand(2, len(tokens)) < 0.8}
    position, some = host.prepare(tokens), host.prepare(tokens.select([1]), tokens)
    trained = layer(x, position), layer(x, some, **asked)
    prepare_for_inference(layer)
    assert layer.is_paired == (host.pair_blocks is not None) and not layer.training
    with torch.no_grad():
        inferred = layer(x, position), layer(x, some, **asked)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(trained, inferred, strict=True))
    with_gradients = layer(x, position), layer(x, some, **asked)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(trained, with_gradients, strict=True))


@pytest.mark.parametrize("name", [*ENCODINGS, None])
def test_a_prepared_layer_is_correct_with_any_other_encoding(name, mixed_views):
    tokens, layer = mixed_views(lenses=("wide", "tele")).tokens(16), make_layer("gray")
    position = None if name is None else encoding(name, 24).prepare(tokens)
    if isinstance(position, PerCamera):
        position = position.with_depth(torch.zeros(position.batch, len(tokens), 2, dtype=torch.float64))
    x = torch.randn(2, len(tokens), 48, dtype=torch.float64)
    with torch.no_grad():
        expected, paired = layer(x, position), prepare_for_inference(deepcopy(layer))
        assert paired.is_paired and torch.allclose(paired(x, position), expected, atol=1e-12)
        if not isinstance(position, PerCamera):
            weights = layer.compute_weights(x, position, slice(3, 4))
            assert torch.allclose(paired.compute_weights(x, position, slice(3, 4)), weights, atol=1e-12)


@pytest.mark.parametrize("name", ["rope", "gta"])
def test_state_dicts_do_not_know_of_the_preparation(name):
    layer, other = make_layer(name), make_layer(name)
    stored = {key: value.clone() for key, value in layer.state_dict().items()}
    prepare_for_inference(layer)
    assert are_equal(read_parameters(layer), stored) == (name == "gta")
    assert are_equal(layer.state_dict(), stored)
    other.load_state_dict({key: torch.randn_like(value) for key, value in stored.items()})
    for assign in (False, True):
        prepare_for_inference(other).load_state_dict(stored, assign=assign)
        assert are_equal(other.state_dict(), stored) and are_equal(
            read_parameters(other), read_parameters(layer)
        )
    assert are_equal(
        read_parameters(prepare_for_inference(layer)), read_parameters(other)
    )  # a second time: nothing
    assert are_equal(read_parameters(layer.train()), stored) and not layer.is_paired


def test_preparation_leaves_modules_that_share_the_weights_alone():
    layer, other = make_layer("gray"), make_layer("gray")
    other.load_state_dict(layer.state_dict(), assign=True)
    before = read_parameters(other)
    prepare_for_inference(layer)
    assert are_equal(read_parameters(other), before)


@pytest.mark.parametrize("name", ENCODINGS)
def test_inputs_stay_as_they_are_unless_given_away(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(16)
    host = encoding(name, 24)
    position, rotates = host.prepare(tokens), host.pair_blocks is not None
    if rotates:
        position = make_pairs_adjacent(position)
    elif isinstance(position, PerCamera):
        position = position.with_depth(torch.zeros(position.batch, len(tokens), 2, dtype=torch.float64))
    torch.manual_seed(0)
    given = torch.randn(3, position.batch, 2, len(tokens), 24, dtype=torch.float64)
    before = given.clone()
    with torch.no_grad():
        kept = attention(*given, position)
        assert torch.equal(given, before)
        assert torch.allclose(attention(*given, position, consume=True), kept, atol=1e-6)
    assert torch.equal(given, before) != rotates
