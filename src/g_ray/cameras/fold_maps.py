"""Ray maps of lenses whose distortion folds the plane inside the image, along a curve that is no circle.

The image of the fold is a closed curve around the center. A real polynomial h with |q| h(q) = 1 on the curve turns it
into a circle: pixels become points (a, b) = q h(q) of a disk, and with s = sqrt(1 − a² − b²) those of a hemisphere. The
fold is its rim. The distorted plane covers the disk twice, before the fold (s > 0) and beyond it (s < 0), so rays are
smooth functions on the sphere around the hemisphere: polynomials

    ray = even + s · odd,   even, odd = Σ_ki T_i(2 s² − 1) Re(c_ki (a + ib)^k),

whose coefficients c are fitted to the rays of a few points of the hemisphere. `rim_maps` evaluates them at all pixels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.block_maps import TOLERANCE
from g_ray.cameras.distortion import PlanarDistortion
from g_ray.cameras.inverse import invert_monotone, solve_newton_2d

# Slope at the limit, below which a lens turns around there.
_FLAT = 1e-6
# Where lenses are thought to end whose fold is not known, in pixels.
_FAR_AWAY = 1e6
# Points of the edge that rays at the limit have.
_EDGE_POINTS = 32
# Nodes that are evaluated at once: their polynomials stay in the processor's cache.
_CHUNK = 1 << 12
# Steps that find the fold along an azimuth, and those that find a radius from a point of the disk.
_SECANT_STEPS, _RADIUS_STEPS = 6, 5
# Height of the lowest point of the hemisphere that is fitted: below, Newton's method converges slowly.
_LOWEST = 0.02
# Singular values below this share of the largest are dropped: they belong to even and odd parts that cancel each other.
_RANK = 1e-10


@dataclass(frozen=True, eq=False)
class Fold:
    """What a lens has to say about its fold; all in float64, for a flat batch of lenses."""

    distortion: PlanarDistortion
    """Coefficients [lens n]."""
    limit: Float[Tensor, "lens"]
    """Radius of the undistorted plane up to which rays are valid, if they lie before the fold."""
    lift: Callable[[Tensor], Tensor]
    """Map points [*s 2] of the undistorted plane to unit rays [*s 3]."""

    def compute_radius(self) -> Float[Tensor, "lens"]:
        """Compute where the radial part alone folds the plane; inf if it does not."""
        radius, slope = self.distortion.evaluate_radial(self.limit)
        return torch.where(slope.abs() <= _FLAT, radius, torch.inf)

    def select(self, lenses: slice) -> "Fold":
        return Fold(self.distortion.map(lambda part: part[lenses]), self.limit[lenses], self.lift)


@dataclass(frozen=True)
class _Basis:
    """Polynomials on the sphere: harmonics of the azimuth times polynomials in s², without and with a factor s."""

    harmonics: int
    powers: int
    circles: int
    """Circles of the hemisphere whose points are fitted."""
    nodes: int
    """Nodes along a side of a block that suffice to interpolate them."""

    @property
    def azimuths(self) -> int:
        """Number of points of each circle."""
        return 2 * self.harmonics + 2

    def evaluate(self, a: Float[Tensor, "*s p"], b: Float[Tensor, "*s p"]) -> Float[Tensor, "*s n p"]:
        """Evaluate the polynomials without a factor s."""
        height = 1 - 2 * (a * a + b * b)
        chebyshev = [torch.ones_like(height), height]
        while len(chebyshev) < self.powers:
            chebyshev.append(torch.addcmul(-chebyshev[-2], chebyshev[-1], height, value=2))
        harmonics = _evaluate_harmonics(self.harmonics, a, b)
        return (harmonics[..., None, :] * torch.stack(chebyshev, -2)[..., None, :, :]).flatten(-3, -2)


# The first suffices where the fold is nearly a circle, the second mostly elsewhere.
_BASES = {
    torch.float64: (_Basis(6, 7, 16, 21), _Basis(11, 8, 18, 32)),
    torch.float32: (_Basis(4, 7, 14, 19), _Basis(8, 7, 16, 24)),
}


def _evaluate_harmonics(
    most: int, a: Float[Tensor, "*s p"], b: Float[Tensor, "*s p"]
) -> Float[Tensor, "*s n p"]:
    """Evaluate 1, then the real and imaginary parts of (a + ib)^k up to the largest k."""
    parts = [torch.ones_like(a), a, b]
    while len(parts) < 2 * most + 1:
        x, y = parts[-2:]
        parts += [x * a - y * b, x * b + y * a]
    return torch.stack(parts, -2)


@lru_cache(maxsize=4)
def _build_fit(basis: _Basis) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute heights [j] and azimuths [n 2] of points on the hemisphere, the polynomials there [j·n m], those with a
    factor s behind the others, and the matrix from values to coefficients [m j·n]."""
    angle = (torch.arange(basis.circles, dtype=torch.float64) + 0.5) * (math.pi / basis.circles)
    height = 1 - (1 - _LOWEST) * (1 - angle.cos()) / 2
    direction = _spread_directions(basis.azimuths)
    points = (1 - height.square()).sqrt()[:, None, None] * direction
    even = basis.evaluate(*points.flatten(0, 1).unbind(-1)).T
    design = torch.cat([even, height.repeat_interleave(basis.azimuths)[:, None] * even], -1)
    return height, direction, design, torch.linalg.pinv(design, rtol=_RANK)


def _spread_directions(count: int) -> Float[Tensor, "n 2"]:
    """Compute unit vectors at evenly spaced azimuths."""
    azimuth = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    return torch.stack([azimuth.cos(), azimuth.sin()], -1)


@dataclass(frozen=True, eq=False)
class FoldedLenses:
    """A flat batch of lenses whose folds lie in the image."""

    affine: Float[Tensor, "lens 4"]
    """fx, fy, cx, cy, in units in which the folds have a radius of about 1."""
    outline: Float[Tensor, "lens azimuth 2"]
    """Pixels on the folds; far away where they are not known."""
    near: Float[Tensor, "lens"]
    """s² up to which rays may lie beyond the limit although they lie before the fold."""
    shape: Float[Tensor, "lens m"]
    """Coefficients of h."""
    basis: _Basis
    coefficients: Float[Tensor, "lens 6 n"]
    """Of the components of even, then of odd."""
    accurate: Bool[Tensor, "lens"]
    """Whether these polynomials have converged."""

    @staticmethod
    def fit(fold: Fold, affine: Float[Tensor, "lens 4"], dtype: torch.dtype) -> "FoldedLenses":
        """Fit the smallest basis that suffices for all lenses, or else the largest."""
        for basis in _BASES[dtype]:
            lenses = _fit_basis(fold, affine, basis, 10 * TOLERANCE[dtype])
            if lenses.accurate.all():
                break
        return lenses

    @property
    def most_nodes(self) -> int:
        return self.basis.nodes

    def evaluate(
        self, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"]
    ) -> tuple[Float[Tensor, "7 q p"], Bool[Tensor, "q p"]]:
        """Evaluate the components of even, those of odd, and s², with a mask of the nodes that have them."""
        step = max(1, _CHUNK // pixels.shape[1])
        parts = [self._evaluate_few(*some) for some in zip(lens.split(step), pixels.split(step), strict=True)]
        return torch.cat(parts, 1), self.accurate[lens, None].expand(pixels.shape[:2])

    def _evaluate_few(self, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"]) -> Float[Tensor, "7 q p"]:
        affine = self.affine[lens, None]
        plane = (pixels - affine[..., 2:4]) / affine[..., 0:2]
        points = _apply_shape(self.shape[lens], plane.mT.contiguous())
        a, b = points.unbind(-2)
        values = self.coefficients[lens] @ self.basis.evaluate(a, b)
        return torch.cat([values.movedim(1, 0), 1 - (a * a + b * b)[None]])


def _fit_basis(fold: Fold, affine: Float[Tensor, "lens 4"], basis: _Basis, tolerance: float) -> FoldedLenses:
    height, direction, design, inverse = _build_fit(basis)
    curve, source = _trace_fold(fold, _spread_directions(2 * basis.azimuths))
    unit = curve.norm(dim=-1).mean(-1)
    shape = _fit_shape(curve / unit[:, None, None], basis)
    target = _invert_shape(shape, (1 - height.square()).sqrt(), direction) * unit[:, None, None, None]
    rays, known = _find_rays(fold, target, height, direction, source[:, ::2])
    values = rays.movedim(0, 2).reshape(len(inverse.T), -1)
    coefficients = inverse @ values
    # The product alone is as inaccurate as the smallest singular value is small.
    coefficients += inverse @ (values - design @ coefficients)
    residual = (values - design @ coefficients).abs().amax(0).view(len(unit), 3).amax(-1)
    even_odd = coefficients.view(2, -1, len(unit), 3).permute(2, 0, 3, 1).flatten(1, 2)
    accurate = known & (residual <= tolerance)
    outline = curve * affine[:, None, :2] + affine[:, None, 2:]
    anywhere = _FAR_AWAY * torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(len(direction))[:, None]
    return FoldedLenses(
        affine=torch.cat([affine[:, :2] * unit[:, None], affine[:, 2:]], -1),
        outline=torch.where(accurate[:, None, None], outline, anywhere),
        near=_measure_edge(fold, unit, shape),
        shape=shape,
        basis=basis,
        coefficients=even_odd,
        accurate=accurate,
    )


def _trace_fold(
    fold: Fold, direction: Float[Tensor, "n 2"]
) -> tuple[Float[Tensor, "lens n 2"], Float[Tensor, "lens n"]]:
    """Find the fold in some directions: where it lands, and its radius in the undistorted plane."""
    (cos, sin), limit = direction.unbind(-1), fold.limit[:, None]
    distortion = fold.distortion.map(lambda part: part[:, None])

    def evaluate(radius: Tensor) -> tuple[Tensor, Tensor]:
        x, y, a, b, c, d = distortion.evaluate_components(radius * cos, radius * sin)
        return torch.stack([x, y], -1), a * d - b * c

    # The secant method; errors of the radius hardly move the point that it lands on.
    last, radius = 0.98 * limit * torch.ones_like(cos), limit * torch.ones_like(cos)
    last_value = evaluate(last)[1]
    for _ in range(_SECANT_STEPS):
        value = evaluate(radius)[1]
        step = (value * (radius - last) / (value - last_value)).nan_to_num(0.0, 0.0, 0.0)
        last, last_value = radius, value
        radius = torch.clamp(radius - step, 0.5 * limit, 1.5 * limit)
    return evaluate(radius)[0], radius


def _measure_edge(
    fold: Fold, unit: Float[Tensor, "lens"], shape: Float[Tensor, "lens m"]
) -> Float[Tensor, "lens"]:
    """Compute the largest s² at the limit, and a little more."""
    circle = _spread_directions(_EDGE_POINTS) * fold.limit[:, None, None]
    edge = fold.distortion.map(lambda part: part[:, None])(circle) / unit[:, None, None]
    return 1.1 * (1 - _apply_shape(shape, edge.mT).square().sum(-2)).abs().amax(-1)


def _fit_shape(curve: Float[Tensor, "lens n 2"], basis: _Basis) -> Float[Tensor, "lens m"]:
    """Fit h to the reciprocals of the distances from the center."""
    harmonics = _evaluate_harmonics(basis.harmonics, *curve.unbind(-1))
    # The curve is nearly a circle, on which harmonics are orthogonal: the normal equations are well conditioned.
    right = harmonics @ curve.norm(dim=-1, keepdim=True).reciprocal()
    return torch.linalg.solve_ex(harmonics @ harmonics.mT, right).result[..., 0]


def _apply_shape(
    shape: Float[Tensor, "lens m"], points: Float[Tensor, "lens 2 p"]
) -> Float[Tensor, "lens 2 p"]:
    """Compute q h(q)."""
    return points * (shape[:, None] @ _evaluate_harmonics(shape.shape[1] // 2, *points.unbind(1)))


def _invert_shape(
    shape: Float[Tensor, "lens m"], radius: Float[Tensor, "j"], direction: Float[Tensor, "n 2"]
) -> Float[Tensor, "lens j n 2"]:
    """Find the points q with q h(q) = radius · direction, by Newton's method: h is real and keeps directions."""
    terms = _evaluate_harmonics(shape.shape[1] // 2, *direction.unbind(-1)) * shape[..., None]
    powers = [terms[:, 0], *(terms[:, k : k + 2].sum(1) for k in range(1, terms.shape[1], 2))]
    target = radius[:, None]
    length = target.expand(len(shape), -1, len(direction))
    for _ in range(_RADIUS_STEPS):
        h, slope = torch.zeros_like(length), torch.zeros_like(length)
        for power in reversed(powers):
            slope = torch.addcmul(h, slope, length)
            h = torch.addcmul(power[:, None], h, length)
        length = length - (length * h - target) / (h + length * slope)
    return length[..., None] * direction


def _find_rays(
    fold: Fold,
    target: Float[Tensor, "lens j n 2"],
    height: Float[Tensor, "j"],
    direction: Float[Tensor, "n 2"],
    source: Float[Tensor, "lens n"],
) -> tuple[Float[Tensor, "lens j n 3"], Bool[Tensor, "lens"]]:
    """Find the rays before the fold that land on points of the distorted plane, and which lenses have them all."""
    limit = fold.limit[:, None]
    radial = fold.distortion.map(lambda part: part[:, None])
    reach = radial.evaluate_radial(limit)[0]
    radius = invert_monotone(radial.evaluate_radial, reach * (1 - height.square()).sqrt(), limit)
    # The radial part alone, stretched towards the fold.
    stretch = (source / limit - 1)[:, None]
    length = radius[..., None] * (1 + stretch * (radius / limit).square()[..., None])
    whole = fold.distortion.map(lambda part: part[:, None, None])
    points, converged, determinant = solve_newton_2d(
        whole.evaluate_components, target, length[..., None] * direction, 1.5 * limit[..., None]
    )
    return fold.lift(points), (converged & (determinant > 0)).all(-1).all(-1)
