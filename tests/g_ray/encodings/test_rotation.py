"""SO(2)ⁿ: group axioms over shapes and precisions, and the linear maps around it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from g_ray.coordinates import Axis
from g_ray.encodings import rotation as rotation_module
from g_ray.encodings.camera_transform import CameraBlock, TokenBlock
from g_ray.encodings.encoding_base import DirectSum, Identity
from g_ray.encodings.rotary import make_geometric_frequencies, make_periodic_frequencies, round_to_period
from g_ray.encodings.rotation import Rotation
from g_ray.rays.layout import Layout

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
dtypes = st.sampled_from(list(TOLERANCE))
shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4))


def random_rotation(shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return Rotation.from_phases(torch.randn(shape, generator=generator, dtype=dtype) * 3)


def distance(a: Rotation, b: Rotation) -> float:
    return max((a.cos - b.cos).abs().max().item(), (a.sin - b.sin).abs().max().item())


@given(shapes, dtypes)
def test_group_axioms(shape, dtype):
    a, b, c = (random_rotation(shape, dtype, seed) for seed in range(3))
    identity = Rotation.identity(*shape, like=a.cos)
    for left, right in (
        ((a @ b) @ c, a @ (b @ c)),
        (a @ identity, a),
        (identity @ a, a),
        (a @ a.inverse(), identity),
        (a @ b, b @ a),
    ):
        assert distance(left, right) < TOLERANCE[dtype]


@given(shapes, dtypes)
def test_action(shape, dtype):
    a, b = (random_rotation(shape, dtype, seed) for seed in range(2))
    x = torch.randn(*shape[:-2], a.channels, dtype=dtype)
    assert ((a @ b).apply(x) - a.apply(b.apply(x))).abs().max() < 10 * TOLERANCE[dtype]
    assert (a.inverse().apply(a.apply(x)) - x).abs().max() < 10 * TOLERANCE[dtype]
    assert (a.apply(x).norm(dim=-1) - x.norm(dim=-1)).abs().max() < 10 * TOLERANCE[dtype]
    assert (a.apply(x) - a.apply_plain(x)).abs().max() < TOLERANCE[dtype]


def test_it_is_the_matrix_of_the_paper_on_split_halves():
    """eq:app_planarro, channel i paired with i + n inside each axis block."""
    phases = torch.tensor([[0.3, -1.1], [2.0, 0.7]])  # two blocks of two frequencies
    x = torch.arange(8.0)
    expected = torch.empty(8)
    for block in range(2):
        for k in range(2):
            phase, i, j = phases[block, k], 4 * block + k, 4 * block + k + 2
            expected[i] = phase.cos() * x[i] - phase.sin() * x[j]
            expected[j] = phase.sin() * x[i] + phase.cos() * x[j]
    assert torch.allclose(Rotation.from_phases(phases).apply(x), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tokens_keep_their_precision_and_rotate_in_float32(dtype):
    rotation = Rotation.from_phases(torch.randn(2, 1, 7, 2, 3) * 100)
    x = torch.randn(2, 4, 7, 12).to(dtype)
    turned = rotation.apply(x)
    assert turned.dtype == dtype
    exact = Rotation(rotation.cos.double(), rotation.sin.double()).apply(x.double())
    assert (turned.double() - exact).abs().max() < {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(
        dtype, 1e-5
    )


def maps(batch=2, tokens=6):
    rotation = Rotation.from_phases(torch.randn(batch, 1, tokens, 1, 4, dtype=torch.float64))
    block = CameraBlock(
        torch.randn(batch, 2, 4, 4, dtype=torch.float64), Layout.from_grids([(1, 2), (1, 2)], leading=2)
    )
    own = TokenBlock(torch.randn(batch, tokens, 4, 4, dtype=torch.float64))
    return [
        rotation,
        block,
        own,
        Identity(),
        DirectSum((block, rotation), (8, 8)),
        DirectSum((own, Identity()), (4, 4)),
    ]


@pytest.mark.parametrize("index", range(6))
def test_linear_maps(index):
    """Fast form = plain form, adjoint = transpose, gradients to any order, also in the map's own entries."""
    token_map = maps()[index]
    dim = 16 if isinstance(token_map, DirectSum) and token_map.widths[0] == 8 else 8
    x, y = (torch.randn(2, 3, 6, dim, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.allclose(token_map.apply(x), token_map.apply_plain(x))
    assert torch.allclose((token_map.apply(x) * y).sum(), (x * token_map.adjoint().apply(y)).sum())
    assert torch.autograd.gradcheck(token_map.apply, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(token_map.apply, (x,), fast_mode=True)


def test_gradients_reach_the_phases():
    phases = torch.randn(2, 1, 5, 2, 2, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p, t: Rotation.from_phases(p).apply(t), (phases, x))


def test_geometric_bank():
    """eq:frequency with the paper's settings: α = 1, β = 100 in reconstruction, α = 10 in GTA + G-ray (n = 18)."""
    bank = make_geometric_frequencies(16, 1.0, 100.0)
    assert bank[0] == 1.0
    assert torch.allclose(bank[8], torch.tensor(0.1).double())
    assert torch.allclose(bank[1:] / bank[:-1], torch.tensor(100.0).double() ** (-1 / 16))
    assert torch.allclose(
        make_geometric_frequencies(18, 10.0, 100.0), 10 * make_geometric_frequencies(18, 1.0, 100.0)
    )


def test_periodic_bank():
    """eq:rayrope_frequency: L = 4π, ratio 3 gives 0.5 · 3ᵏ up to 121.5."""
    expected = torch.tensor([0.5, 1.5, 4.5, 13.5, 40.5, 121.5]).double()
    assert torch.allclose(make_periodic_frequencies(6, 4 * torch.pi), expected)
    assert torch.allclose(
        make_periodic_frequencies(6, 4.0)[[0, 5]], torch.tensor([1.5708, 381.70]).double(), rtol=1e-4
    )
    assert torch.allclose(
        make_periodic_frequencies(6, 80.0)[[0, 5]], torch.tensor([0.0785, 19.085]).double(), rtol=1e-3
    )


def test_periodic_axes_take_whole_turns():
    axis = Axis("azimuth", "rad", period=2 * torch.pi)
    bank = round_to_period(make_geometric_frequencies(8, 10.0, 100.0), axis)
    assert torch.equal(bank, bank.round())
    assert bank.min() >= 1
    assert torch.allclose((bank * torch.pi).cos(), (bank * -torch.pi).cos())
    assert torch.equal(round_to_period(bank, Axis("x", "rad")), bank)


@pytest.mark.parametrize(("device", "launches"), [("cpu", 3 * 5), ("meta", 3)])
def test_a_gpu_rotates_in_one_stretch(device, launches, monkeypatch):
    """Stretches and blocks are for a CPU's cache; the meta device stands in for a GPU, which pays for every launch."""
    monkeypatch.setattr(rotation_module, "NUMBERS_AT_ONCE", 256 * 32)
    rotation = Rotation.from_phases(torch.zeros(1, 1, 600, 2, 4, device=device))
    tokens = torch.zeros(1, 2, 600, 16, device=device)
    counter = _CountKernels()
    with counter:
        rotation.apply_into(tokens, torch.empty_like(tokens))
    assert counter.count == launches


@pytest.mark.parametrize("pairs", [1, 2, 8])
@pytest.mark.parametrize("heads_first", [True, False])
def test_tokens_may_be_overwritten_in_any_memory_layout(pairs, heads_first, monkeypatch):
    monkeypatch.setattr(rotation_module, "NUMBERS_AT_ONCE", 200)
    rotation = Rotation.from_phases(torch.randn(2, 1, 7, 8 // pairs, pairs))
    tokens = torch.randn(2, 3, 7, 16) if heads_first else torch.randn(2, 7, 3, 16).transpose(1, 2)
    wanted = rotation.apply_plain(tokens)
    torch.testing.assert_close(rotation.apply(tokens), wanted)
    found = rotation.apply(tokens, overwrite=True)
    assert found.data_ptr() == tokens.data_ptr()
    torch.testing.assert_close(found, wanted)
    needed = torch.randn(2, 3, 7, 16, requires_grad=True)
    assert rotation.apply(needed.clone(), overwrite=True).sum().requires_grad


class _CountKernels(TorchDispatchMode):
    """Counts multiplications."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket in (torch.ops.aten.mul, torch.ops.aten.addcmul_)
        return function(*args, **(kwargs or {}))
