"""Numerical inverses of lens functions with implicit gradients, and where a lens polynomial turns around.

The solution is found without recording gradients, then followed by one recorded Newton step of length zero:
it moves nothing but carries exactly the derivative of the implicit function theorem, in inputs and
parameters.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ValueAndSlope = Callable[[Tensor], tuple[Tensor, Tensor]]

# Bisection alone halves the bracket to machine precision in about 55 steps; Newton needs far fewer.
_MAX_STEPS = 60
_MAX_STEPS_2D = 30
# Nodes of the polynomial that starts Newton's method.
_FIT_NODES = 12


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
        # f grows, so the sign of the error says on which side of x the solution is: the bracket shrinks in every step.
        low, high = torch.where(error < 0, x, low), torch.where(error > 0, x, high)
        newton = x - error / torch.where(slope > 0, slope, 1.0)
        inside = (newton >= low) & (newton <= high) & (slope > 0)
        new = torch.where(inside, newton, (low + high) / 2)
        done = ((new - x).abs() <= tolerance * x) | (error.abs() <= tolerance * target)
        # An exact hit stays: with slope 0 there, `new` would be the middle of the bracket.
        x = torch.where(error == 0, x, new)
        if not torch.compiler.is_compiling() and bool((done | beyond).all()):
            break
    return torch.where(beyond, upper, x)


@torch.no_grad()
def approximate_monotone(
    function: ValueAndSlope, target: Float[Tensor, "*shape"], upper: Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """Approximate what `invert_monotone` finds by one polynomial per lens: a start for Newton's method.

    Where f turns around, at the upper end, its inverse is as steep as a square root. As a function of
    q = e (1 − sqrt(1 − y/e)) with e = f(upper) it is smooth up to there and interpolated between a few values of f.
    """
    edge = function(upper)[0]
    upper = upper.expand_as(edge)
    # The samples go first, so that they broadcast against coefficients of f that vary from lens to lens.
    shape = (-1, *(1,) * upper.ndim)
    ladder = 2.0 ** torch.arange(-20, 0.5, 0.5, dtype=upper.dtype, device=upper.device).view(shape) * upper
    enough = torch.where(function(ladder)[0] >= torch.minimum(edge, target.amax()), ladder, upper).amin(0)
    x = _make_chebyshev_nodes(upper).view(shape) * enough
    q = _straighten(function(x)[0], edge)
    # Newton's form of the interpolating polynomial: unlike a least-squares fit, it repeats to the last bit.
    coefficients = x.clone()
    for order in range(1, len(x)):
        coefficients[order:] = (
            coefficients[order:].sub(coefficients[order - 1 : -1]).div(q[order:] - q[:-order])
        )
    place = _straighten(target, edge)
    value = coefficients[-1]
    for node, coefficient in zip(reversed(q[:-1]), reversed(coefficients[:-1]), strict=True):
        value = torch.addcmul(coefficient, value, place - node)
    return torch.minimum(value.clamp_min(0), upper)


def _make_chebyshev_nodes(like: Tensor) -> Float[Tensor, "m"]:
    """Compute nodes in (0, 1), denser towards the ends."""
    order = torch.arange(_FIT_NODES, dtype=like.dtype, device=like.device)
    return (1 - torch.cos((order + 0.5) * (math.pi / _FIT_NODES))) / 2


def _straighten(y: Tensor, edge: Tensor) -> Tensor:
    """Compute e (1 − sqrt(1 − y/e)), without the cancellation for y much smaller than e."""
    return (1 - y / edge).clamp_min_(0).sqrt_().add_(1).reciprocal_().mul_(y)


def is_recording_grad(*tensors: Tensor) -> bool:
    """Whether autograd follows any of the tensors."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def attach_implicit_gradient(
    function: ValueAndSlope, target: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Return x with the gradient of f⁻¹(target): dx = (d target − df) / f'(x)."""
    # dx = (dy − ∂f/∂p dp) / f'(x): `value` carries the gradient to the parameters p, `target` that to y.
    value, slope = function(x.detach())
    smallest = torch.finfo(x.dtype).eps
    return x.detach() + _zero_keeping_gradient(target - value) / slope.detach().clamp_min(smallest)


def _zero_keeping_gradient(residual: Tensor) -> Tensor:
    """Return zero with the residual's gradient, so that rounding does not move a solution where the slope is small."""
    return residual - residual.detach()


ValueAndJacobian = Callable[[Tensor], tuple[Tensor, Tensor]]
# The same by components: f1, f2 and df1/dx, df1/dy, df2/dx, df2/dy at (x, y).
Components = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
ComponentFunction = Callable[[Tensor, Tensor], Components]


@torch.no_grad()
def solve_newton_2d(
    function: ComponentFunction,
    target: Float[Tensor, "*shape 2"],
    start: Float[Tensor, "*shape 2"],
    limit: Float[Tensor, "..."],
    max_steps: int = _MAX_STEPS_2D,
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Find x with f(x) = target by Newton's method inside the disk of radius ``limit``.

    Returns the solution, whether it converged, and the determinant of the Jacobian there.
    """
    # Components that lie apart in memory take half the time of vectors of two.
    (u, v), (x, y) = (part.movedim(-1, 0).contiguous() for part in (target, start))
    eps = torch.finfo(target.dtype).eps
    length = 1 + (u * u + v * v).sqrt()
    # Newton squares the error, so a small last step means an exact result.
    small, tolerance = (length * part for part in (eps**0.6, 32 * eps))
    for _ in range(_limit_steps(max_steps)):
        value_u, value_v, a, b, c, d = function(x, y)
        e, f = value_u - u, value_v - v
        determinant = _bound_determinant(a, b, c, d)
        # J⁻¹ (f − target) by Cramer's rule.
        step_x = ((d * e - b * f) / determinant).nan_to_num(0.0, 0.0, 0.0)
        step_y = ((a * f - c * e) / determinant).nan_to_num(0.0, 0.0, 0.0)
        x, y = _clamp_to_disk(x - step_x, y - step_y, limit)
        if not torch.compiler.is_compiling() and bool(_is_shorter(step_x, step_y, small).all()):
            break
    value_u, value_v, a, b, c, d = function(x, y)
    return torch.stack([x, y], -1), _is_shorter(value_u - u, value_v - v, tolerance), a * d - b * c


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
    determinant = _bound_determinant(a, b, c, d)
    e, f = right.unbind(-1)
    return torch.stack([d * e - b * f, a * f - c * e], -1) / determinant[..., None]


def _limit_steps(most: int) -> int:
    """Limit the steps: a compiled graph cannot stop early and unrolls them all; lenses rarely need a dozen."""
    return min(most, 16) if torch.compiler.is_compiling() else most


def _bound_determinant(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Compute ad − bc, or a small positive number where it is zero to rounding."""
    determinant = a * d - b * c
    scale = torch.finfo(a.dtype).eps * (a * a + b * b + c * c + d * d)
    return torch.where(determinant.abs() > scale, determinant, scale + torch.finfo(a.dtype).tiny)


def _clamp_to_disk(x: Tensor, y: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    radius = (x * x + y * y).sqrt()
    outside = radius > limit
    if not torch.compiler.is_compiling() and not bool(outside.any()):
        return x, y
    factor = torch.where(outside, limit / radius, 1.0)
    return x * factor, y * factor


def _is_shorter(x: Tensor, y: Tensor, length: Tensor) -> Tensor:
    return (x * x + y * y).sqrt() <= length


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
    *rest, value = coefficients.unbind(-1)
    for a in reversed(rest):
        value = torch.addcmul(a, value, t)
    return 1 + value * t


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
