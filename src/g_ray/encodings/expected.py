"""Expected rotations: a coordinate known only up to an interval (RayRoPE)."""

import torch
from jaxtyping import Float
from torch import Tensor

FLAT = 0.01
"""Below this phase width the released code takes the first endpoint."""


def expected_cos_sin(
    middle: Float[Tensor, "*shape"], width: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """E[cos a], E[sin a] for a uniform within width/2 of the middle: e^{i·middle} · sinc(width/2).

    Symmetric in the two ends and smooth through width = 0.
    """
    shrink = sinc(0.5 * width)
    return middle.cos() * shrink, middle.sin() * shrink


def expected_cos_sin_tripling(
    middle: Float[Tensor, "*shape coordinate"], width: Float[Tensor, "*shape coordinate"], count: int
) -> tuple[Float[Tensor, "*shape {count} coordinate"], Float[Tensor, "*shape {count} coordinate"]]:
    """`expected_cos_sin` for phases times 1, 3, 9, …: sine and cosine of the first frequency, then complex cubes.

    sinc(3y) = sinc(y) (1 + 2 cos 2y) / 3. Each cube triples the rounding error of the phase, as multiplying the
    phase by 3 does.
    """
    turn = torch.complex(middle.cos(), middle.sin())
    half = torch.complex((0.5 * width).cos(), (0.5 * width).sin())
    shrink = sinc(0.5 * width)
    powers = [turn * shrink]
    for _ in range(count - 1):
        square = half * half
        shrink = shrink * (1 + 2 * square.real) / 3
        half, turn = square * half, turn * turn * turn
        powers.append(turn * shrink)
    expected = torch.stack(powers, -2)
    return expected.real, expected.imag


def sinc(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sin(x)/x, by its series near 0, where the quotient's derivative cancels (and torch.sinc's does too)."""
    near = x.abs() < 0.25
    square = x * x
    series = 1 + square * (
        -1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square * (1 / 362880 - square / 39916800)))
    )
    safe = torch.where(near, 1.0, x)
    return torch.where(near, series, safe.sin() / safe)


def expected_cos_sin_released(
    middle: Float[Tensor, "*shape"], width: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The released form: difference quotient of the antiderivative, or the first end where |width| ≤ 0.01.

    Only for comparison with released numbers: it is off by up to 5e-3 and stops gradients where it is flat.
    """
    flat = width.abs() <= FLAT
    safe = torch.where(flat, 1.0, width)
    start, end = middle - 0.5 * width, middle + 0.5 * width
    cos = torch.where(flat, start.cos(), (end.sin() - start.sin()) / safe)
    sin = torch.where(flat, start.sin(), (start.cos() - end.cos()) / safe)
    return cos, sin


EXPECTATIONS = {"smooth": expected_cos_sin, "threshold": expected_cos_sin_released}
