"""Multi-head attention: asking for some tokens gives their rows of the whole."""

import pytest
import torch

from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings._pairs import compute_adjacent_order, make_pairs_adjacent
from g_ray.encodings.per_camera import PerCamera
from g_ray.nn.attention import attention
from g_ray.nn.transformer import MultiHeadAttention


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


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("norm", [torch.nn.RMSNorm, torch.nn.LayerNorm])
def test_inference_reorders_channels_and_computes_the_same(name, norm, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(16)
    host = encoding(name, 24)
    torch.manual_seed(0)
    layer = MultiHeadAttention(48, host, qk_norm=True, norm=norm).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, len(tokens), 48, dtype=torch.float64)
    first = len(tokens) - len(tokens.select([1]))
    asked = {"queries": slice(first, None), "key_mask": torch.rand(2, len(tokens)) < 0.8}
    position, some = host.prepare(tokens), host.prepare(tokens.select([1]), tokens)
    trained = layer(x, position), layer(x, some, **asked)
    with torch.no_grad():
        inferred = layer(x, position), layer(x, some, **asked)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(trained, inferred, strict=True))


@pytest.mark.parametrize("name", ENCODINGS)
def test_inputs_stay_as_they_are_unless_given_away(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(16)
    position = encoding(name, 24).prepare(tokens)
    rotates = compute_adjacent_order(position) is not None
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
