"""Where a lens polynomial turns around."""

import torch
from jaxtyping import Float
from torch import Tensor

# A double root splits into a complex pair about sqrt(machine epsilon) apart: count it as real.
_IMAGINARY_TOLERANCE = 1e-7
# Roots beyond 1 / _SMALLEST_RECIPROCAL are as good as none.
_SMALLEST_RECIPROCAL = 1e-12


@torch.no_grad()
def find_first_positive_root(coefficients: Float[Tensor, "*batch degree"]) -> Float[Tensor, "*batch"]:
    """Smallest t > 0 with 1 + a1 t + … + an tⁿ = 0, or inf where there is none.

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
    """1 + a1 t + … + an tⁿ by Horner's rule; coefficients [..., n] broadcast against t."""
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
    """Two Newton steps on p itself, each kept only if it is small: eigenvalues lose digits when roots
    cluster."""
    powers = torch.arange(1, a.shape[-1] + 1, dtype=a.dtype, device=a.device)
    for _ in range(2):
        t_powers = root[..., None] ** powers
        value = 1 + (a * t_powers).sum(-1)
        slope = (a * powers * t_powers).sum(-1) / root
        step = torch.nan_to_num(value / slope, 0.0, 0.0, 0.0)
        root = torch.where(step.abs() < 1e-4 * root, root - step, root)
    return root
