"""Ray maps of lenses whose distortion folds the plane inside the image, along a curve that is no circle.

On the near side of a fold two points of the undistorted plane land on a pixel, the ray's own p₊ and a further one p₋
that no ray takes; on the fold they meet, and beyond it they are a pair of complex conjugates. Their mean and the square
of half their difference do not change when the two are exchanged, so both are smooth functions of the pixel across the
fold, and so are even and odd in

    ray = (ray(p₊) + ray(p₋)) / 2 + s · (ray(p₊) − ray(p₋)) / 2s,   s the radial part of (p₋ − p₊) / 2,

which `rim_maps` interpolates. At its nodes p₊ and p₋ are found by Newton's method in complex numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from g_ray.cameras.block_maps import Blocks, Unproject, fill_blocks, fill_dark
from g_ray.cameras.distortion import PlanarDistortion
from g_ray.cameras.rim_maps import NEAR_RIM, fill_rim_blocks

# Side of a block as a share of the fold's radius, so that no block reaches both the fold and the center, where p₋ has
# no direction; and its bounds in pixels.
_BLOCK_SHARE = 0.4
_SMALLEST_BLOCK, _LARGEST_BLOCK = 42, 168
# Blocks that come closer to the fold than this share of its radius are interpolated beside a square root.
_BAND = 0.65
# Newton steps for all nodes, and further ones for those on the fold, where it converges slowly.
_STEPS, _MORE_STEPS = 6, 24
# Newton squares the error, so a last step this small means an exact result.
_SMALL_STEP = 1e-8
# Nodes that are solved at once: their complex numbers stay in the processor's cache.
_CHUNK = 1 << 13
# How far starts lie off the real axis, as a share of the limit: on it, Newton's method cannot leave it.
_OFF_AXIS = 0.02
# Slope at the limit, below which a lens turns around there.
_FLAT = 1e-6

Lift = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Fold:
    """What a lens has to say about its fold; all in float64, for a flat batch of lenses."""

    distortion: PlanarDistortion
    """Coefficients [lens n]."""
    limit: Float[Tensor, "lens"]
    """Radius of the undistorted plane up to which rays are valid, if they lie before the fold."""
    lift: Lift
    """Map points x, y of the undistorted plane, which may be complex, to the components of unit rays."""

    def compute_radius(self) -> Float[Tensor, "lens"]:
        """Compute where the radial part alone folds the plane; inf if it does not."""
        radius, slope = self.distortion.evaluate_radial(self.limit)
        return torch.where(slope.abs() <= _FLAT, radius, torch.inf)

    def select(self, lenses: list[int]) -> "Fold":
        parts = (
            getattr(self.distortion, name)[lenses]
            for name in ("numerator", "denominator", "tangential", "prism")
        )
        return Fold(PlanarDistortion(*parts), self.limit[lenses], self.lift)


def lift_angles(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Map ψ (cos φ, sin φ) to unit rays, also for complex numbers."""
    psi = (x * x + y * y).sqrt()
    quotient = psi.sin() / psi
    return x * quotient, y * quotient, psi.cos()


def lift_tangents(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Map x/z, y/z to unit rays, also for complex numbers."""
    z = (1 + x * x + y * y).rsqrt()
    return x * z, y * z, z


@dataclass(frozen=True, eq=False)
class FoldedLenses:
    """A flat batch of lenses whose folds lie in the image."""

    fold: Fold
    affine: Float[Tensor, "lens 4"]
    """fx, fy, cx, cy."""

    @property
    def radius_px(self) -> Float[Tensor, "lens"]:
        return self.fold.compute_radius() * self.affine[:, :2].amin(-1)

    @property
    def most_nodes(self) -> int | None:
        return None

    @property
    def lowest(self) -> Float[Tensor, "lens"]:
        """z of rays at the limit, beyond which there are none."""
        return self.fold.lift(self.fold.limit, torch.zeros_like(self.fold.limit))[2]

    def find_near(self, lens: Int[Tensor, "q"]) -> Float[Tensor, "q"]:
        return torch.full((len(lens),), 2 * NEAR_RIM, dtype=torch.float64)

    def evaluate(
        self, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"]
    ) -> tuple[Float[Tensor, "7 q p"], Bool[Tensor, "q p"]]:
        """Evaluate the components of even, those of odd, and s², with a mask of the nodes that have them."""
        step = max(1, _CHUNK // pixels.shape[1])
        parts = [self._evaluate_few(*some) for some in zip(lens.split(step), pixels.split(step), strict=True)]
        values, known = zip(*parts, strict=True)
        return torch.cat(values, 1), torch.cat(known)

    def _evaluate_few(
        self, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"]
    ) -> tuple[Float[Tensor, "7 q p"], Bool[Tensor, "q p"]]:
        affine = self.affine[lens, None]
        u, v = ((pixels - affine[..., 2:4]) / affine[..., 0:2]).unbind(-1)
        radius = torch.hypot(u, v).clamp_min(1e-9)
        x, y, converged = self._solve(lens, u, v, radius)
        rays = torch.stack(self.fold.lift(x, y))
        mean, half = (rays[:, 0] + rays[:, 1]) / 2, (rays[:, 0] - rays[:, 1]) / 2
        s = ((x[1] - x[0]) * u + (y[1] - y[0]) * v) / (2 * radius)
        # s² is measured so that it is about 1 − t/R², as of radially symmetric lenses.
        scale = self._measure_curvature(lens)[:, None]
        odd, square = half / s * scale, (s / scale).square()
        values = torch.cat([mean, odd, square[None]])
        real = values.imag.abs().amax(0) <= 1e-9
        finite = values.real.isfinite().all(0)
        # Newton's method may find another pair of points; before the fold, one of the right pair is within the limit.
        nearest = torch.hypot(x.real, y.real).amin(0)
        right = (square.real <= 0) | (nearest <= 1.05 * self.fold.limit[lens, None])
        return values.real.nan_to_num(0.0, 0.0, 0.0).contiguous(), converged & real & finite & right

    def measure_reach(self, blocks: Blocks) -> tuple[Float[Tensor, "q"], Float[Tensor, "q"]]:
        """Compute the smallest and the largest radius of blocks, as shares of their lens's fold."""
        fx, fy, cx, cy = self.affine[blocks.lens].unbind(-1)
        near, far = [], []
        for first, size, f, c in ((blocks.left, blocks.width, fx, cx), (blocks.top, blocks.height, fy, cy)):
            low, high = (first - c) / f, (first + size - c) / f
            near.append(torch.maximum(low, -high).clamp_min(0))
            far.append(torch.maximum(-low, high))
        radius = self.fold.compute_radius()[blocks.lens]
        return torch.hypot(*near) / radius, torch.hypot(*far) / radius

    def _measure_curvature(self, lens: Int[Tensor, "q"]) -> Float[Tensor, "q"]:
        """Compute sqrt(R / −f''), with f the radial part and R its value at the fold."""
        step = 1e-4 * self.fold.limit
        radius, slope = self.fold.distortion.evaluate_radial(self.fold.limit)
        inner = self.fold.distortion.evaluate_radial(self.fold.limit - step)[1]
        return (radius * step / (inner - slope)).sqrt()[lens]

    def _solve(
        self, lens: Int[Tensor, "q"], u: Tensor, v: Tensor, radius: Tensor
    ) -> tuple[Complex[Tensor, "2 q p"], Complex[Tensor, "2 q p"], Bool[Tensor, "q p"]]:
        """Find p₊ and p₋ for points of the distorted plane, and where both are found."""
        limit, scale = self.fold.limit[lens, None], self._measure_curvature(lens)[:, None]
        share = 1 - radius / self.fold.compute_radius()[lens, None]
        # Near its fold the radial part is a parabola.
        offset = torch.complex(
            2 * share * scale.square(), (_OFF_AXIS * limit.square()).expand_as(share)
        ).sqrt()
        start = torch.stack([limit - offset, limit + offset])
        x, y = start * (u / radius), start * (v / radius)
        fold = self.fold.distortion
        distortion = PlanarDistortion(
            *(part[lens, None] for part in (fold.numerator, fold.denominator, fold.tangential, fold.prism))
        )
        x, y, converged = _iterate(distortion, x, y, u, v, _STEPS)
        rest = (~converged).nonzero(as_tuple=True)
        if len(rest[0]):
            few, at = distortion.select(rest, u.shape), (slice(None), *rest)
            x[at], y[at], converged[rest] = _iterate(few, x[at], y[at], u[rest], v[rest], _MORE_STEPS)
        return x, y, converged


def _iterate(
    distortion: PlanarDistortion,
    x: Complex[Tensor, "2 *shape"],
    y: Complex[Tensor, "2 *shape"],
    u: Float[Tensor, "*shape"],
    v: Float[Tensor, "*shape"],
    steps: int,
) -> tuple[Complex[Tensor, "2 *shape"], Complex[Tensor, "2 *shape"], Bool[Tensor, "*shape"]]:
    """Take up to so many Newton steps towards the points that land on (u, v); return also which have converged."""
    converged = torch.zeros_like(u, dtype=torch.bool)
    for _ in range(steps):
        value_u, value_v, a, b, c, d = distortion.evaluate_components(x, y)
        e, f, determinant = value_u - u, value_v - v, a * d - b * c
        step_x, step_y = (d * e - b * f) / determinant, (a * f - c * e) / determinant
        x, y = x - step_x, y - step_y
        converged = torch.maximum(step_x.abs(), step_y.abs()).amax(0) <= _SMALL_STEP
        if bool(converged.all()):
            break
    return x, y, converged


def fill_fold_maps(
    lenses: FoldedLenses,
    unproject: Unproject,
    rays: list[Float[Tensor, "h w 3"]],
    valid: list[Bool[Tensor, "h w"]],
) -> None:
    """Write unit rays and validity at all pixel centers; beyond the fold rays are the optical axis."""
    height, width, _ = rays[0].shape
    side = min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, _BLOCK_SHARE * float(lenses.radius_px.amin())))
    blocks = Blocks.cover(len(rays), height, width, side, side)
    near, far = lenses.measure_reach(blocks)
    reach = lenses.fold.distortion.compute_reach(lenses.fold.limit) / lenses.fold.compute_radius()
    dark = near > reach[blocks.lens]
    fill_dark(blocks.select(dark), rays, valid)
    band = ~dark & (far > _BAND)
    fill_blocks(unproject, blocks.select(~dark & ~band), rays, valid)
    fill_rim_blocks(lenses, unproject, blocks.select(band), rays, valid)
