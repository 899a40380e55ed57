"""Attention inside windows: what attention on each window alone gives, for every encoding that maps token by token."""

import pytest
import torch

from g_ray.encodings import ENCODINGS, encoding
from g_ray.nn.attention import attention
from g_ray.nn.transformer import Block

HEADS, DIM, PATCH = 2, 48, 16
TOKENWISE = [name for name in ENCODINGS if "rayrope" not in name]


def inputs(tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, tokens.views.batch, len(tokens), HEADS, DIM)
    return torch.randn(shape, generator=generator, dtype=torch.float64).transpose(2, 3).unbind()


@pytest.mark.parametrize("name", TOKENWISE)
@pytest.mark.parametrize("lenses", [("wide", "tele", "fisheye"), ("tele", "tele", "tele")])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("query_chunk", [None, 3])
def test_windows_are_the_views_alone(name, lenses, masked, query_chunk, mixed_views):
    tokens = mixed_views(lenses=lenses).tokens(PATCH, special=2)
    host = encoding(name, DIM)
    q, k, v = inputs(tokens)
    mask = torch.rand(q.shape[0], q.shape[2], generator=torch.Generator().manual_seed(1)) > 0.3
    mask[:, [span.start for _, span in tokens.layout.find_runs()]] = True
    windows = [span for _, span in tokens.layout.find_runs()]
    options = {"key_mask": mask} if masked else {}
    found = attention(q, k, v, host.prepare(tokens), windows=windows, query_chunk=query_chunk, **options)
    for view, window in enumerate(windows):
        own = {"key_mask": mask[:, window]} if masked else {}
        position = host.prepare(tokens.select([view]))
        alone = attention(q[:, :, window], k[:, :, window], v[:, :, window], position, **own)
        assert (found[:, :, window] - alone).abs().max() < 1e-12


def test_equal_windows_of_tokens_before_heads_are_folded_without_a_copy():
    """[batch token head dim] seen as [batch head token dim], as MultiHeadAttention hands it over."""
    from g_ray.nn.sdpa import _fold_windows

    x = torch.randn(3, 12, HEADS, DIM).transpose(1, 2)
    folded = _fold_windows(x, 4, -2)
    assert folded.shape == (12, HEADS, 3, DIM)
    assert folded.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("windows", [[slice(0, 3)], [slice(0, 4), slice(5, 8)], [slice(4, 8), slice(0, 4)]])
def test_windows_must_fill_the_sequence(windows):
    q = torch.randn(1, 1, 8, 4)
    with pytest.raises(ValueError, match="do not fill 8 queries and 8 keys one after the other"):
        attention(q, q, q, windows=windows)


def test_keys_that_differ_per_camera_have_no_windows(mixed_views):
    tokens = mixed_views(lenses=("wide", "tele")).tokens(PATCH)
    q, k, v = inputs(tokens)
    position = encoding("rayrope", DIM).prepare(tokens).with_depth(torch.zeros(2, len(tokens), 2).double())
    with pytest.raises(ValueError, match="attend everywhere only"):
        attention(q, k, v, position, windows=[span for _, span in tokens.layout.find_runs()])


def test_a_block_is_its_formula(mixed_views):
    tokens = mixed_views(lenses=("tele", "wide")).tokens(PATCH, special=1)
    host = encoding("gray", 24)
    torch.manual_seed(0)
    block = Block(48, host, layer_scale=0.3, qk_norm=True).double()
    x, position = torch.randn(2, len(tokens), 48, dtype=torch.float64), host.prepare(tokens)
    windows = [span for _, span in tokens.layout.find_runs()]
    middle = x + 0.3 * block.attn(block.norm1(x), position, windows=windows)
    wanted = middle + 0.3 * block.mlp(block.norm2(middle))
    assert torch.allclose(block(x, position, windows=windows), wanted, atol=1e-12)
    assert isinstance(block.attn.q_norm, torch.nn.LayerNorm)
