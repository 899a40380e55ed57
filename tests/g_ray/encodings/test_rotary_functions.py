"""Cosines and sines as other libraries' rotary functions take them: their output is that of our own operator."""

import pytest
import torch
import torch.nn.functional as F

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.coordinates import compute_position_ids, match_offset, match_scale
from g_ray.encodings import encoding
from g_ray.nn.attention import attention
from g_ray.rays.views import Views

DIM, HEADS, PATCH = 32, 2, 16
BASE = 10000.0


def prepare(tokens, name="gray", **options):
    return encoding(name, DIM, rotate_values=False, **options).prepare(tokens)


@pytest.fixture
def tokens(mixed_views):
    return mixed_views(batch=1, dtype=torch.float32).tokens(PATCH, special=1)


@pytest.fixture
def qkv(tokens):
    return torch.randn(3, 1, HEADS, len(tokens), DIM)


def check(q, k, v, rotated, tokens, pairing):
    ours = attention(q, k, v, prepare(tokens, pairing=pairing))
    theirs = F.scaled_dot_product_attention(*rotated, v)
    assert (ours - theirs).abs().max() < 2e-6
    plain = F.scaled_dot_product_attention(q, k, v)
    assert (ours - plain).abs().max() > 1e-2


# transformers: channel i with i + D/2.


def test_transformers_vision(tokens, qkv):
    from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

    q, k, v = qkv
    cos, sin = prepare(tokens).cos_sin("half")
    rotated = apply_rotary_pos_emb_vision(q[0].transpose(0, 1), k[0].transpose(0, 1), cos[0], sin[0])
    check(q, k, v, [part.transpose(0, 1)[None] for part in rotated], tokens, "half")


def test_transformers_text(tokens, qkv):
    from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

    q, k, v = qkv
    check(q, k, v, apply_rotary_pos_emb(q, k, *prepare(tokens).cos_sin("half")), tokens, "half")


def test_position_ids_for_transformers(tokens):
    """Its vision embedding multiplies positions (y, x) by its own frequencies."""
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLVisionRotaryEmbedding

    rotary = Qwen2VLVisionRotaryEmbedding(Qwen2VLVisionConfig(embed_dim=HEADS * DIM, num_heads=HEADS))
    scale = match_scale(tokens)
    cos, sin = rotary(torch.zeros(1), compute_position_ids(tokens, scale=scale)[0])
    ours = prepare(tokens, scale=scale, base=BASE, y_first=True).cos_sin("half")
    assert torch.allclose(cos, ours[0][0], atol=1e-5) and torch.allclose(sin, ours[1][0], atol=1e-5)


# diffusers: channel 2i with 2i + 1 by default.


@pytest.mark.parametrize(("layout", "unbind"), [("interleaved", -1), ("half", -2)])
def test_diffusers(layout, unbind, tokens, qkv):
    from diffusers.models.embeddings import apply_rotary_emb

    q, k, v = qkv
    cos, sin = prepare(tokens).cos_sin(layout)
    rotated = [
        apply_rotary_emb(part, (cos[0], sin[0]), use_real=True, use_real_unbind_dim=unbind) for part in (q, k)
    ]
    check(q, k, v, rotated, tokens, layout)


def test_diffusers_complex(tokens, qkv):
    from diffusers.models.embeddings import apply_rotary_emb

    q, k, v = qkv
    freqs_cis = torch.complex(*prepare(tokens).cos_sin("pairs"))
    rotated = [
        apply_rotary_emb(part.transpose(1, 2), freqs_cis, use_real=False).transpose(1, 2) for part in (q, k)
    ]
    check(q, k, v, rotated, tokens, "interleaved")


def test_position_ids_for_flux(mixed_views):
    """Its embedding takes rows (time, y, x) and its own split of the head."""
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed

    tokens = mixed_views(lenses=("wide", "tele"), batch=1, dtype=torch.float32).tokens(PATCH)
    split = (8, 12, 12)
    ids = compute_position_ids(tokens, scale=3.0, time=True)
    cos, sin = FluxPosEmbed(int(BASE), list(split))(ids[0])
    ours = prepare(tokens, scale=3.0, base=BASE, time=True, split=split, y_first=True).cos_sin("interleaved")
    assert torch.allclose(cos, ours[0][0], atol=1e-5) and torch.allclose(sin, ours[1][0], atol=1e-5)


# flash-attention and xformers need a GPU to install: their formulas, written down from their documentation.


@pytest.mark.parametrize("interleaved", [False, True])
def test_flash_attention(interleaved, tokens, qkv):
    """apply_rotary_emb(x [batch token head dim], cos [token dim/2], sin, interleaved): x cos + rotate(x) sin."""
    q, k, v = qkv
    cos, sin = (part[0, :, None] for part in prepare(tokens).cos_sin("pairs"))

    def rotate(x):
        x = x.transpose(1, 2)
        first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
        return joined.transpose(1, 2)

    check(q, k, v, [rotate(q), rotate(k)], tokens, "interleaved" if interleaved else "half")


def test_xformers(tokens, qkv):
    """apply_rotary_pos_emb(x [batch head token dim], cos [1 1 token dim], sin): x cos + rotate_half(x) sin."""
    q, k, v = qkv
    cos, sin = (part[:, None] for part in prepare(tokens).cos_sin("half"))
    rotated = [x * cos + torch.cat((-x[..., DIM // 2 :], x[..., : DIM // 2]), -1) * sin for x in (q, k)]
    check(q, k, v, rotated, tokens, "half")


# What holds for all layouts.


PAIRS = DIM // 4  # of one axis
FIRST = [
    axis * 2 * PAIRS + k for axis in (0, 1) for k in range(PAIRS)
]  # first channels of all pairs, in blocks
ORDERS = {
    "half": FIRST + [channel + PAIRS for channel in FIRST],
    "interleaved": [channel + PAIRS * half for channel in FIRST for half in (0, 1)],
}


@pytest.mark.parametrize("name", ["rope", "gray"])
def test_pairings_are_permutations_of_channels(name, tokens, qkv):
    """The same attention, once the channels of q, k and v are sorted into the order of the pairing."""
    reference = attention(*qkv, encoding(name, DIM).prepare(tokens))
    for pairing, order in ORDERS.items():
        permuted = attention(*qkv[..., order], encoding(name, DIM, pairing=pairing).prepare(tokens))
        assert (permuted - reference[..., order]).abs().max() < 2e-6


def test_special_tokens_are_not_rotated(tokens):
    cos, sin = prepare(tokens).cos_sin("half")
    special = ~tokens.layout.get_patch_mask()
    assert (cos[:, special] == 1).all() and (sin[:, special] == 0).all() and (sin != 0).any()


def test_keys_of_cross_attention(mixed_views):
    views = mixed_views(batch=1, dtype=torch.float32)
    queries, keys = views[:1].tokens(PATCH), views[1:].tokens(PATCH)
    position = encoding("gray", DIM).prepare(queries, keys)
    for part, own in ((False, queries), (True, keys)):
        expected = prepare(own).cos_sin("pairs")
        for ours, theirs in zip(position.cos_sin("pairs", keys=part), expected, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["none", "gta", "rayrope"])
def test_encodings_without_rotations_say_so(name, mixed_views):
    position = encoding(name, 48).prepare(mixed_views().tokens(PATCH))
    with pytest.raises(ValueError, match=r"use attention\(q, k, v, position\)"):
        position.cos_sin("half")


def test_an_unknown_layout(tokens):
    with pytest.raises(ValueError, match="choose one of half, interleaved, pairs"):
        prepare(tokens).cos_sin("quarter")


# Ray angles in the place of a grid.


@pytest.mark.parametrize("grid", ["grid", "grid_from_one"])
def test_a_tele_lens_has_the_phases_of_the_grid(grid):
    """Through a narrow lens angles are proportional to positions: with α and offset matched, phases are the grid's."""
    camera = Pinhole.make(128, 96, fx=4000.0, fy=4000.0, cx=60.0, cy=50.0, dtype=torch.float64)
    tokens = Views([camera]).tokens(PATCH, special=1)
    scale = match_scale(tokens)
    assert abs(scale - 4000.0 / PATCH) < 0.01 * scale
    offset = match_offset(tokens, scale, grid=grid)
    ours = prepare(tokens, scale=scale, offset=offset).cos_sin("pairs")
    theirs = prepare(tokens, "rope", coordinate=grid).cos_sin("pairs")
    assert all((a - b).abs().max() < 2e-3 for a, b in zip(ours, theirs, strict=True))
    assert (prepare(tokens, scale=scale).cos_sin("pairs")[0] - theirs[0]).abs().max() > 0.1  # another origin


def test_an_offset_cancels_between_patches(tokens, qkv):
    patches = tokens.layout.get_patch_mask()
    plain = attention(*qkv, prepare(tokens), key_mask=patches[None])[:, :, patches]
    moved = attention(*qkv, prepare(tokens, offset=(0.7, -0.4)), key_mask=patches[None])[:, :, patches]
    assert (plain - moved).abs().max() < 1e-5
    assert (
        attention(*qkv, prepare(tokens)) - attention(*qkv, prepare(tokens, offset=(0.7, -0.4)))
    ).abs().max() > 1e-2


def test_rays_outside_of_the_lens_do_not_count():
    """Patches of a fisheye beyond its image circle have no angle to match."""
    lens = {"fx": 24.0, "fy": 24.0, "cx": 32.0, "cy": 32.0, "k1": -0.1}
    tokens = Views([OpenCVFisheye.make(64, 64, **lens)]).tokens(8)
    assert 0.5 < tokens.valid().float().mean() < 1.0
    assert 1.0 < match_scale(tokens) < 5.0


def test_one_patch_has_no_scale():
    with pytest.raises(ValueError, match="no view has two patches with rays"):
        match_scale(Views([Pinhole.from_fov(60.0, 16, 16)]).tokens(16))
