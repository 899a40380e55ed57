"""Expected rotations against quadrature."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.encodings.expected_rotation import (
    expected_cos_sin,
    expected_cos_sin_released,
    expected_cos_sin_tripling,
    sinc,
)

phases = st.floats(-20, 20)


@given(phases, phases)
def test_smooth_equals_quadrature(middle, width):
    nodes = torch.linspace(0, 1, 4001, dtype=torch.float64)
    values = middle + width * (nodes - 0.5)
    cos, sin = expected_cos_sin(torch.tensor(middle).double(), torch.tensor(width).double())
    assert abs(cos - torch.trapezoid(values.cos(), nodes)) < 1e-4
    assert abs(sin - torch.trapezoid(values.sin(), nodes)) < 1e-4
    assert cos**2 + sin**2 <= 1 + 1e-12


@given(phases, st.floats(0.011, 20))
def test_forms_agree_above_the_threshold(middle, width):
    a, w = torch.tensor(middle).double(), torch.tensor(width).double()
    for left, right in zip(expected_cos_sin(a, w), expected_cos_sin_released(a, w), strict=True):
        assert abs(left - right) < 1e-10


def test_gradient_is_smooth_through_zero_width():
    width = torch.tensor([-1e-3, -1e-9, 0.0, 1e-9, 1e-3], dtype=torch.float64, requires_grad=True)
    cos, _ = expected_cos_sin(0.7 + 0.5 * width, width)  # from 0.7 on
    (gradient,) = torch.autograd.grad(cos.sum(), width)
    assert torch.allclose(
        gradient, torch.full_like(width, -0.5 * torch.sin(torch.tensor(0.7)).item()), atol=1e-3
    )
    assert torch.autograd.gradcheck(lambda w: expected_cos_sin(torch.full_like(w, 0.7), w), (width,))


def test_released_form_sends_no_gradient_where_flat():
    width = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)
    cos, _ = expected_cos_sin_released(0.7 + 0.5 * width, width)  # from 0.7 on
    assert torch.autograd.grad(cos.sum(), width)[0] == 0


def test_sinc_and_its_derivative_are_exact_in_float32():
    x = torch.logspace(-6, 1.3, 400, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    value, truth = sinc(x), sinc(exact)
    assert (value - truth).abs().max() < 2e-7
    (gradient,) = torch.autograd.grad(value.sum(), x)
    derivative = (exact.cos() - exact.sin() / exact) / exact
    assert (gradient - derivative.detach())[x > 1e-3].abs().max() < 1e-6


def test_tripling_is_smooth_at_every_power_of_three():
    middle, width = (torch.randn(500, 9, dtype=torch.float64, requires_grad=True) for _ in range(2))
    powers = 3.0 ** torch.arange(6, dtype=torch.float64)[:, None]
    direct = expected_cos_sin(middle[:, None] * powers, width[:, None] * powers)
    tripled = expected_cos_sin_tripling(middle, width, 6)
    weights = torch.randn(500, 6, 9, dtype=torch.float64)
    for left, right in zip(direct, tripled, strict=True):
        assert (left - right).abs().max() < 1e-12
        gradients = [
            torch.autograd.grad((x * weights).sum(), (middle, width), retain_graph=True)
            for x in (left, right)
        ]
        for a, b in zip(*gradients, strict=True):
            assert (a - b).abs().max() < 1e-9


def test_tripling_loses_no_more_in_float32_than_the_phase_itself():
    middle, width = torch.randn(5000, 9), torch.randn(5000, 9)
    exact = expected_cos_sin_tripling(middle.double(), width.double(), 6)
    powers = 3.0 ** torch.arange(6)[:, None]
    direct = expected_cos_sin(middle[:, None] * powers, width[:, None] * powers)
    for truth, fast, slow in zip(exact, expected_cos_sin_tripling(middle, width, 6), direct, strict=True):
        assert (fast - truth).abs().max() < 1e-4
        assert (fast - truth).abs().max() < 5 * (slow - truth).abs().max()
