"""Numerical inverses of lens functions with implicit gradients, and where a lens polynomial turns around.

The solution is found without recording gradients, then followed by one recorded Newton step of length zero:
it moves nothing but carries exactly the derivative of the implicit function theorem, in inputs and
parameters.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ValueAndSlope = Callable[[Tensor], tuple[Tensor, Tensor]]

# Bisection alone halves the bracket to machine precision in about 55 steps; Newton needs far fewer.
_MAX_STEPS = 60
_MAX_STEPS_2D = 30


@torch.no_grad()
def invert_monotone(
    function: ValueAndSlope,
    target: Float[Tensor, "*shape"],
    upper: Float[Tensor, "..."],
) -> Float[Tensor, "*shape"]:
    """Find x in [0, upper] with f(x) = target, for f(0) = 0, f'(0) = 1 and f growing on the interval.

    Newton's method that falls back to bisection whenever a step leaves the bracket. Targets outside f's range end at
    the nearer end of the interval.
    """
    low = torch.zeros_like(target)
    high = upper.detach().expand_as(target)
    beyond = target >= function(high)[0]
    x = torch.minimum(target.detach(), high)  # the solution to first order, since f'(0) = 1
    tolerance = 4 * torch.finfo(target.dtype).eps
    for _ in range(_limit_steps(_MAX_STEPS)):
        value, slope = function(x)
        error = value - target
        low, high = torch.where(error < 0, x, low), torch.where(error > 0, x, high)
        newton = x - error / torch.where(slope > 0, slope, 1.0)
        inside = (newton >= low) & (newton <= high) & (slope > 0)
        new = torch.where(inside, newton, (low + high) / 2)
        done = ((new - x).abs() <= tolerance * x) | (error.abs() <= tolerance * target)
        x = torch.where(error == 0, x, new)
        if not torch.compiler.is_compiling() and bool((done | beyond).all()):
            break
    return torch.where(beyond, upper, x)


def is_recording_grad(*tensors: Tensor) -> bool:
    """Whether autograd follows any of the tensors."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def attach_implicit_gradient(
    function: ValueAndSlope, target: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Return x with the gradient of f⁻¹(target): dx = (d target − df) / f'(x)."""
    value, slope = function(x.detach())
    smallest = torch.finfo(x.dtype).eps
    return x.detach() + _zero_keeping_gradient(target - value) / slope.detach().clamp_min(smallest)


def _zero_keeping_gradient(residual: Tensor) -> Tensor:
    """Return zero with the residual's gradient, so that rounding does not move a solution where the slope is small."""
    return residual - residual.detach()


ValueAndJacobian = Callable[[Tensor], tuple[Tensor, Tensor]]


@torch.no_grad()
def solve_newton_2d(
    function: ValueAndJacobian,
    target: Float[Tensor, "*shape 2"],
    start: Float[Tensor, "*shape 2"],
    limit: Float[Tensor, "..."],
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
    """Find x with f(x) = target by Newton's method inside the disk of radius ``limit``, and whether it converged."""
    x = start
    tolerance = 32 * torch.finfo(target.dtype).eps * (1 + torch.linalg.vector_norm(target, dim=-1))
    converged = torch.zeros_like(tolerance, dtype=torch.bool)
    for _ in range(_limit_steps(_MAX_STEPS_2D)):
        value, jacobian = function(x)
        residual = value - target
        step = solve_2x2(jacobian, residual)
        # One step after convergence brings the last digits.
        x = _clamp_to_disk(x - torch.where(torch.isfinite(step), step, 0.0), limit)
        done = converged
        converged = torch.linalg.vector_norm(residual, dim=-1) <= tolerance
        if not torch.compiler.is_compiling() and bool((converged | done).all()):
            break
    return x, torch.linalg.vector_norm(function(x)[0] - target, dim=-1) <= tolerance


def attach_implicit_gradient_2d(
    function: ValueAndJacobian, target: Float[Tensor, "*shape 2"], x: Float[Tensor, "*shape 2"]
) -> Float[Tensor, "*shape 2"]:
    """Return x with the gradient of f⁻¹(target): dx = J(x)⁻¹ (d target − df)."""
    value, jacobian = function(x.detach())
    return x.detach() + solve_2x2(jacobian.detach(), _zero_keeping_gradient(target - value))


def solve_2x2(
    matrix: Float[Tensor, "*shape 2 2"], right: Float[Tensor, "*shape 2"]
) -> Float[Tensor, "*shape 2"]:
    """Compute matrix⁻¹ right; finite for singular matrices."""
    (a, b), (c, d) = matrix[..., 0, :].unbind(-1), matrix[..., 1, :].unbind(-1)
    determinant = a * d - b * c
    scale = torch.finfo(right.dtype).eps * matrix.square().sum((-2, -1))
    determinant = torch.where(determinant.abs() > scale, determinant, scale + torch.finfo(right.dtype).tiny)
    e, f = right.unbind(-1)
    return torch.stack([d * e - b * f, a * f - c * e], -1) / determinant[..., None]


def _limit_steps(most: int) -> int:
    """Limit the steps: a compiled graph cannot stop early and unrolls them all; lenses rarely need a dozen."""
    return min(most, 16) if torch.compiler.is_compiling() else most


def _clamp_to_disk(x: Tensor, limit: Tensor) -> Tensor:
    radius = torch.linalg.vector_norm(x, dim=-1)
    return x * torch.where(radius > limit, limit / radius, 1.0)[..., None]


# Where a lens polynomial turns around.


# A double root splits into a complex pair about sqrt(machine epsilon) apart: count it as real.
_IMAGINARY_TOLERANCE = 1e-7
# Roots beyond 1 / _SMALLEST_RECIPROCAL are as good as none.
_SMALLEST_RECIPROCAL = 1e-12


@torch.no_grad()
def find_first_positive_root(coefficients: Float[Tensor, "*batch degree"]) -> Float[Tensor, "*batch"]:
    """Find the smallest t > 0 with 1 + a1 t + … + an tⁿ = 0, or inf where there is none.

    With s = 1/t the polynomial becomes the monic sⁿ + a1 sⁿ⁻¹ + … + an, whose companion matrix exists for all
    coefficients, zeros included; the first root is 1 over its largest positive real eigenvalue. Computed in
    float64, returned in the dtype of the coefficients, without gradient.
    """
    # Apple's GPUs have no float64; the matrices are tiny.
    place = "cpu" if coefficients.device.type == "mps" else coefficients.device
    a = coefficients.detach().to(place, torch.float64)
    eigenvalues = torch.linalg.eigvals(_build_companion_matrix(a))
    real = eigenvalues.imag.abs() <= _IMAGINARY_TOLERANCE * eigenvalues.abs()
    reciprocal = torch.where(real, eigenvalues.real, 0.0).amax(-1)
    root = 1 / reciprocal.clamp_min(_SMALLEST_RECIPROCAL)
    root = torch.where(reciprocal > _SMALLEST_RECIPROCAL, _polish_root(a, root), torch.inf)
    return root.to(coefficients.device, coefficients.dtype)


def evaluate_polynomial(
    coefficients: Float[Tensor, "... degree"], t: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Evaluate 1 + a1 t + … + an tⁿ by Horner's rule; coefficients [..., n] broadcast against t."""
    value = torch.zeros_like(t)
    for a in reversed(coefficients.unbind(-1)):
        value = (value + a) * t
    return 1 + value


def _build_companion_matrix(a: Tensor) -> Tensor:
    degree = a.shape[-1]
    companion = a.new_zeros(*a.shape, degree)
    companion[..., 0, :] = -a
    steps = torch.arange(degree - 1, device=a.device)
    companion[..., steps + 1, steps] = 1
    return companion


def _polish_root(a: Tensor, root: Tensor) -> Tensor:
    """Take two Newton steps on p itself, each kept only if it is small: eigenvalues lose digits when roots
    cluster."""
    powers = torch.arange(1, a.shape[-1] + 1, dtype=a.dtype, device=a.device)
    for _ in range(2):
        t_powers = root[..., None] ** powers
        value = 1 + (a * t_powers).sum(-1)
        slope = (a * powers * t_powers).sum(-1) / root
        step = torch.nan_to_num(value / slope, 0.0, 0.0, 0.0)
        root = torch.where(step.abs() < 1e-4 * root, root - step, root)
    return root
