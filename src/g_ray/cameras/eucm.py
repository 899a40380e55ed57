"""Extended unified camera (Khomutenko, Garcia and Martinet 2016): fisheyes and mirrors, with a closed-form inverse.
COLMAP's EUCM, Kalibr's `eucm`."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import RIM_SLACK, normalize
from g_ray.cameras.parameters import ParameterSampler, check_values


class EUCM(Camera):
    """(a, b) = (x, y) / (α d + (1 − α) z),  d = sqrt(β (x² + y²) + z²),  0 ≤ α ≤ 1, β > 0.

    fx, fy, cx, cy in pixels, α and β without unit. Valid for z > −w d with w = α / (1 − α) for α ≤ ½ and (1 − α) / α
    above; for α > ½ the image ends at a² + b² = 1 / (β (2α − 1)) and sees more than 180°.
    """

    NAME = "eucm"
    PARAMETERS = ("fx", "fy", "cx", "cy", "alpha", "beta")
    DEFAULTS = {"beta": 1.0}  # noqa: RUF012

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "EUCM":
        draw = ParameterSampler(seed, width, height)
        lens = {"alpha": draw(0.3, 0.8), "beta": draw(0.6, 1.6)}
        return cls.make(width, height, **draw.sample_intrinsics(0.3, 0.7), **lens, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        return project_unified(points, params[..., 4], params[..., 5])

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        z, valid = lift_unified(plane.square().sum(-1), params[..., 4], params[..., 5])
        return normalize(torch.cat([plane, z[..., None]], -1)), valid

    def _compute_rim(self) -> Tensor:
        return compute_unified_rim(self.params[..., 4], self.params[..., 5])

    def _check_lens(self) -> None:
        alpha, beta = self.params[..., 4:5], self.params[..., 5:6]
        check_values(self.NAME, ("alpha",), alpha, (alpha >= 0) & (alpha <= 1), "is not between 0 and 1")
        check_values(self.NAME, ("beta",), beta, beta > 0, "is not positive; 1 gives the unified model (ucm)")


def compute_shadow_limit(alpha: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Compute w: rays with z ≤ −w d have no image of their own."""
    small = torch.minimum(alpha, 1 - alpha).clamp_min(0)
    return small / (1 - small)


def project_unified(
    points: Float[Tensor, "*shape 3"], alpha: Float[Tensor, "..."], beta: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
    xy, z = points[..., 0:2], points[..., 2]
    known = (points != 0).any(-1)
    d = torch.where(known, beta * xy.square().sum(-1) + z * z, 1.0).sqrt()
    bottom = alpha * d + (1 - alpha) * z
    return divide_where_positive(xy, bottom, d, known & is_outside_shadow(z, d, alpha))


def is_outside_shadow(z: Tensor, d: Tensor, alpha: Tensor) -> Bool[Tensor, "..."]:
    """Test z > −w d; on the rim of an image that ends (α > ½), rounding is forgiven."""
    slack = torch.where(alpha > 0.5, RIM_SLACK * torch.finfo(d.dtype).eps, 0.0)
    return z > -(compute_shadow_limit(alpha) + slack) * d


def divide_where_positive(
    xy: Tensor, bottom: Tensor, d: Tensor, allowed: Tensor
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
    """Compute xy / bottom where that is allowed and bottom is positive to the resolution of the dtype, else 0."""
    valid = allowed & (bottom > torch.finfo(d.dtype).eps * d)
    plane = torch.where(valid[..., None], xy, 0.0) / torch.where(valid, bottom, 1.0)[..., None]
    return plane, valid


def compute_unified_rim(alpha: Float[Tensor, "..."], beta: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Compute the radius 1 / sqrt(β (2α − 1)) at which the image ends, inf for α ≤ ½."""
    return ((2 * alpha - 1) * beta).clamp_min(0).rsqrt()


def lift_unified(
    t: Float[Tensor, "*shape"], alpha: Float[Tensor, "..."], beta: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Compute z of the ray (a, b, z) for t = a² + b²: z = (1 − β α² t) / (α sqrt(1 − (2α − 1) β t) + 1 − α)."""
    inside = 1 - (2 * alpha - 1) * beta * t
    eps = torch.finfo(t.dtype).eps
    valid = inside >= -RIM_SLACK * eps
    # Above 0 by eps², so that the gradient stays finite on the rim.
    root = inside.clamp_min(eps**2).sqrt()
    return (1 - beta * alpha * alpha * t) / (alpha * root + 1 - alpha), valid
