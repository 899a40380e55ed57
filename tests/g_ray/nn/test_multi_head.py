"""Multi-head attention: asking for some tokens gives their rows of the whole."""

import pytest
import torch

from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.expected_rotation import PerCamera
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
def test_inputs_stay_as_they_are(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(16)
    position = encoding(name, 24).prepare(tokens)
    if isinstance(position, PerCamera):
        position = position.with_depth(torch.zeros(position.batch, len(tokens), 2, dtype=torch.float64))
    torch.manual_seed(0)
    given = torch.randn(3, position.batch, 2, len(tokens), 24, dtype=torch.float64)
    before = given.clone()
    with torch.no_grad():
        attention(*given, position)
    assert torch.equal(given, before)
