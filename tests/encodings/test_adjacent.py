"""Rotations of adjacent channels are rotations of split halves in another order of channels."""

from math import cos, sin

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.encoding_base import Tokenwise
from g_ray.encodings.rotation import Rotation, compute_adjacent_order, has_adjacent_form, make_pairs_adjacent
from g_ray.rays.layout import Layout


@given(blocks=st.integers(1, 4), pairs=st.integers(1, 5), seed=st.integers(0, 100))
def test_same_numbers_in_another_order(blocks, pairs, seed):
    draw = torch.Generator().manual_seed(seed)
    phases = torch.randn(2, 1, 7, blocks, pairs, generator=draw, dtype=torch.float64)
    x = torch.randn(2, 3, 7, 2 * blocks * pairs, generator=draw, dtype=torch.float64)
    rotation = Rotation.from_phases(phases)
    position = _tokenwise(rotation, x.shape[-1])
    order = compute_adjacent_order(x.shape[-1], blocks)
    assert sorted(order.tolist()) == list(range(x.shape[-1]))
    adjacent = make_pairs_adjacent(position).query
    expected = rotation.apply(x)[..., order]
    assert torch.allclose(adjacent.apply(x[..., order]), expected, atol=1e-14)
    assert torch.allclose(adjacent.apply_plain(x[..., order]), expected, atol=1e-14)
    assert torch.allclose(adjacent.adjoint().apply(expected), x[..., order], atol=1e-14)


def test_partners_are_adjacent():
    rotation = Rotation.from_phases(torch.tensor([[[[0.5, 0.0], [0.0, 0.0]]]]))
    turned = rotation.to_adjacent().apply(torch.eye(8)[None, None, :1])[0, 0, 0]
    assert turned[:2].tolist() == pytest.approx([cos(0.5), sin(0.5)])
    assert turned[2:].abs().max() == 0


def test_half_precision_tokens_are_rotated_in_single():
    rotation = Rotation.from_phases(torch.randn(1, 1, 5, 2, 4)).to_adjacent()
    x = torch.randn(1, 2, 5, 16).bfloat16()
    assert torch.equal(rotation.apply(x), rotation.apply_plain(x.float()).bfloat16())


def test_tokens_that_nobody_needs_are_overwritten_but_not_while_learning():
    rotation = Rotation.from_phases(torch.randn(1, 1, 5, 2, 4)).to_adjacent()
    packed = torch.randn(1, 5, 3, 2, 16)
    x = packed[:, :, 1].transpose(1, 2)  # as a head's values lie in the projection of q, k and v
    before, neighbours = x.clone(), packed[:, :, ::2].clone()
    expected = rotation.apply(x)
    assert torch.equal(rotation.apply_in_place(x), expected) and torch.equal(x, before)
    with torch.no_grad():
        assert rotation.apply_in_place(x).data_ptr() == x.data_ptr()
    assert torch.equal(x, expected) and torch.equal(packed[:, :, ::2], neighbours)
    half = before.bfloat16()
    with torch.no_grad():
        assert torch.equal(rotation.apply_in_place(half), rotation.apply(half)) and torch.equal(
            half, before.bfloat16()
        )


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_say_whether_pairs_fill_the_head(name, mixed_views):
    host = encoding(name, 24)
    position = host.prepare(mixed_views(lenses=("wide", "tele")).tokens(16))
    pure = isinstance(position, Tokenwise) and isinstance(position.query, Rotation)
    assert host.pair_blocks == (position.query.blocks if pure else None)
    assert has_adjacent_form(position, 2) == (pure or name == "none")
    assert has_adjacent_form(position, 3) == (name == "none")
    assert has_adjacent_form(None, 2)


def test_gradients_of_any_layout_are_turned_back():
    rotation = Rotation.from_phases(torch.randn(1, 1, 5, 2, 4)).to_adjacent()
    x = torch.randn(1, 2, 5, 16, requires_grad=True)
    for weight in (torch.ones(()).expand(1, 2, 5, 16), torch.randn(1, 2, 5, 17)[..., 1:]):
        (fast,) = torch.autograd.grad((rotation.apply(x) * weight).sum(), x)
        (plain,) = torch.autograd.grad((rotation.apply_plain(x) * weight).sum(), x)
        assert torch.allclose(fast, plain, atol=1e-6)


def _tokenwise(rotation: Rotation, dim: int) -> Tokenwise:
    layout = Layout.from_grids([(1, 7)])
    return Tokenwise(dim, 2, layout, layout, rotation, rotation)
