"""Numerical inverses with implicit gradients.

The solution is found without recording gradients, then followed by one recorded Newton step. The step moves
nothing (the residual is zero) but carries exactly the derivative of the implicit function theorem, in inputs
and parameters.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

ValueAndSlope = Callable[[Tensor], tuple[Tensor, Tensor]]

_MOST_STEPS = 60


@torch.no_grad()
def monotone_inverse(
    function: ValueAndSlope, target: Float[Tensor, "*shape"], upper: Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """x in [0, upper] with f(x) = target, for f(0) = 0, f'(0) = 1 and f growing on the interval.

    Newton's method that falls back to bisection whenever a step leaves the bracket. Targets outside f's
    range end at the nearer end of the interval.
    """
    low = torch.zeros_like(target)
    high = upper.detach().expand_as(target).clone()
    x = torch.minimum(target.detach(), high)
    tolerance = 4 * torch.finfo(target.dtype).eps
    for _ in range(_MOST_STEPS):
        value, slope = function(x)
        error = value - target
        low, high = torch.where(error < 0, x, low), torch.where(error > 0, x, high)
        newton = x - error / torch.where(slope > 0, slope, 1.0)
        inside = (newton >= low) & (newton <= high) & (slope > 0)
        step_to = torch.where(inside, newton, (low + high) / 2)
        still = (step_to - x).abs() <= tolerance * x
        x = torch.where(error == 0, x, step_to)
        if not torch.compiler.is_compiling() and bool((still | (error == 0)).all()):
            break
    return x


def implicit(function: ValueAndSlope, target: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"]) -> Tensor:
    """x with the gradient of f⁻¹(target): one recorded Newton step whose slope is a constant."""
    value, slope = function(x.detach())
    smallest = torch.finfo(x.dtype).eps
    return x - (value - target) / slope.detach().clamp_min(smallest)
