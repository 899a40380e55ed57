"""A row of the softmax is the one that attention uses."""

import pytest
import torch
from naive_attention import naive_attention

from g_ray.encodings import encoding
from g_ray.encodings.encoding_base import Tokenwise
from g_ray.nn.attention import compute_attention_weights
from g_ray.nn.transformer import MultiHeadAttention

HEAD_DIM = 16


def inputs(count: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(2, 3, count, HEAD_DIM, generator=generator, dtype=torch.float64) for _ in range(3)
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["none", "rope", "gray", "gta_gray", "prope"])
def test_a_row_of_the_naive_attention(name, masked, mixed_views):
    tokens = mixed_views(("wide", "tele"), 2, torch.float64).tokens(16, special=1)
    position = encoding(name, HEAD_DIM).prepare(tokens)
    assert isinstance(position, Tokenwise)
    q, k, v = inputs(len(tokens))
    mask = torch.ones(2, len(tokens), dtype=torch.bool)
    if masked:
        mask[:, 2:5] = False
    wanted = naive_attention(q, k, v, position, key_mask=mask)
    for query in (0, 3, len(tokens) - 1):
        row = slice(query, query + 1)
        weights = compute_attention_weights(q[:, :, row], k, position, row, key_mask=mask)[:, :, 0]
        assert torch.allclose(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))
        heard = torch.zeros_like(v)
        heard[:, :, query] = (weights[:, :, None] @ position.value.apply_plain(v))[:, :, 0]
        assert torch.allclose(position.output.apply_plain(heard)[:, :, query], wanted[:, :, query])
        assert not masked or float(weights[..., 2:5].max()) == 0.0


def test_a_module_gives_the_row_that_it_attends_with(mixed_views):
    tokens = mixed_views(("wide", "tele"), 1, torch.float64).tokens(16)
    made = encoding("gray", HEAD_DIM, rotate_values=False)
    position = made.prepare(tokens)
    torch.manual_seed(0)
    layer = MultiHeadAttention(2 * HEAD_DIM, made, qk_norm=True).double()
    x = torch.randn(1, len(tokens), 2 * HEAD_DIM, dtype=torch.float64)
    with torch.no_grad():
        values = x @ layer.qkv.weight[4 * HEAD_DIM :].mT + layer.qkv.bias[4 * HEAD_DIM :]
        values = values.unflatten(-1, (2, HEAD_DIM)).transpose(1, 2)
        heard = (layer.compute_weights(x, position, slice(4, 7)) @ values).transpose(1, 2)
        assert torch.allclose(layer.out(heard.flatten(2)), layer(x, position)[:, 4:7])


def test_half_precision_rows_are_full():
    q, k, _ = (part.bfloat16() for part in inputs(5))
    assert compute_attention_weights(q[:, :, :1], k, None, slice(1)).dtype == torch.float32


def test_keys_that_differ_per_camera_have_no_row(mixed_views):
    tokens = mixed_views(("wide", "tele"), 1, torch.float64).tokens(16)
    position = encoding("rayrope", 24).prepare(tokens)
    q = torch.randn(1, 1, len(tokens), 24)
    with pytest.raises(ValueError, match="RayRoPE"):
        compute_attention_weights(q[:, :, :1], q, position, slice(1))
