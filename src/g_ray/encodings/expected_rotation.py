"""What RayRoPE prepares: expected rotations, of keys as every query camera sees them.

The depth of a token is known only up to an interval, so its direction and depth in another camera are intervals too.
Their rotations are replaced by the mean over the interval (`expected_cos_sin`), whose modulus falls below 1 where the
interval is wide: high frequencies that would be noise fade out by themselves.

Sizes: a key has 12 coordinates in each query camera (see `RayRoPE`). What depends on cameras alone is computed once per
forward pass, `PerCamera`; what depends on depths once per layer, in `compute_query_rotation` and
`compute_key_rotation`.
"""

from dataclasses import dataclass, replace
from math import asinh, pi

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.coordinates import RayCoordinate, get_coordinate, project_directions
from g_ray.encodings.encoding_base import Prepared
from g_ray.encodings.rotation import Rotation
from g_ray.runtime.device import disable_autocast, promote_to_float32

FLAT = 0.01
"""Below this phase width the released code takes the first endpoint."""


def expected_cos_sin(
    middle: Float[Tensor, "*shape"], width: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Compute E[cos a], E[sin a] for a uniform within width/2 of the middle: e^{i·middle} · sinc(width/2).

    Symmetric in the two ends and smooth through width = 0.
    """
    shrink = sinc(0.5 * width)
    return middle.cos() * shrink, middle.sin() * shrink


def expected_cos_sin_tripling(
    middle: Float[Tensor, "*shape coordinate"], width: Float[Tensor, "*shape coordinate"], count: int
) -> tuple[Float[Tensor, "*shape {count} coordinate"], Float[Tensor, "*shape {count} coordinate"]]:
    """Compute `expected_cos_sin` for phases times 1, 3, 9, …: sine and cosine of the first, then complex cubes.

    sinc(3y) = sinc(y) (1 + 2 cos 2y) / 3. Each cube triples the rounding error of the phase, as multiplying the
    phase by 3 does.
    """
    turn = torch.complex(middle.cos(), middle.sin())
    half = torch.complex((0.5 * width).cos(), (0.5 * width).sin())
    shrink = sinc(0.5 * width)
    # Only one sine and cosine per coordinate: they would take most of the time of this encoding.
    powers = [turn * shrink]
    for _ in range(count - 1):
        square = half * half
        shrink = shrink * (1 + 2 * square.real) / 3
        half, turn = square * half, turn * turn * turn
        powers.append(turn * shrink)
    expected = torch.stack(powers, -2)
    return expected.real, expected.imag


def sinc(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Compute sin(x)/x, by its series near 0, where the quotient's derivative cancels (and torch.sinc's does too)."""
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
    """Compute the released form: difference quotient of the antiderivative, or the first end where |width| ≤ 0.01.

    Only for comparison with released numbers: it is off by up to 5e-3 and stops gradients where it is flat.
    """
    flat = width.abs() <= FLAT
    safe = torch.where(flat, 1.0, width)
    start, end = middle - 0.5 * width, middle + 0.5 * width
    cos = torch.where(flat, start.cos(), (end.sin() - start.sin()) / safe)
    sin = torch.where(flat, start.sin(), (start.cos() - end.cos()) / safe)
    return cos, sin


EXPECTATIONS = {"smooth": expected_cos_sin, "threshold": expected_cos_sin_released}


# Keys as every query camera sees them, waiting for each layer's depths.


# As released, in units of the scene: depths are at most e³ before they are clamped.
LONGEST_LOG_DEPTH = 3.0
SHORTEST_DEPTH, LONGEST_DEPTH = 0.01, 100.0


def compute_depth_interval(raw: Float[Tensor, "batch token 2"]) -> Float[Tensor, "batch token 2"]:
    """Compute the ends exp(ℓ − σ), exp(ℓ + σ) of a token's depth interval from the predictor's raw (ℓ, σ).

    σ enters linearly and may be negative; depths are capped at e³ and clamped to [0.01, 100], as released.
    """
    middle, half = promote_to_float32(raw).unbind(-1)
    log_ends = torch.stack([middle - half, middle + half], -1)
    return log_ends.clamp(max=LONGEST_LOG_DEPTH).exp().clamp(SHORTEST_DEPTH, LONGEST_DEPTH)


@dataclass(frozen=True)
class RangeCoordinates:
    """Directions and depths of points, in the coordinates that an encoding chose."""

    coordinate: str
    depth: str
    expectation: str
    frequencies: Float[Tensor, "n coordinate"]
    jumps: Float[Tensor, "coordinate"]  # height of each coordinate's branch cut; infinite where there is none
    tripling: bool  # whether each frequency is three times the one before it
    clamp_angles: bool = False  # whether ray angles end at ±π/2

    def compute_expected(
        self,
        ends: Float[Tensor, "batch token 2"],
        rays: Float[Tensor, "#batch token sample 3"],
        shift: Float[Tensor, "#batch token 3"] | None,
        intrinsics: Float[Tensor, "#batch #token 3 3"],
        is_patch: Bool[Tensor, "token"],
    ) -> tuple[Float[Tensor, "batch token n coordinate"], Float[Tensor, "batch token n coordinate"]]:
        """Compute E[cos], E[sin] over the interval between the points at both depths; 1 and 0 for special tokens.

        `rays` and `shift` are in the axes of the camera that looks: a point at depth d is d · ray + shift. A query in
        its own camera has no shift.
        """
        # By inverse depths: ray + shift / depth tends to the ray, where depth · ray + shift would lose digits.
        inverse_depth = (1.0 / ends).unbind(-1)
        start, end = (self._compute_values(rays, shift, near, intrinsics) for near in inverse_depth)
        # The short way from start to end: across the branch cut of an angle, where that is nearer.
        width = _wrap_angle(end - start, self.jumps)
        middle = _wrap_angle(start + 0.5 * width, self.jumps)
        # Phase 0 and width 0 for special tokens: E[cos] = 1, E[sin] = 0, the identity.
        middle, width = (part * is_patch[:, None].to(part.dtype) for part in (middle, width))
        # Inductor has no code for complex numbers.
        if self.tripling and self.expectation == "smooth" and not torch.compiler.is_compiling():
            lowest = self.frequencies[0]
            return expected_cos_sin_tripling(middle * lowest, width * lowest, len(self.frequencies))
        expectation = EXPECTATIONS[self.expectation]
        return expectation(middle[..., None, :] * self.frequencies, width[..., None, :] * self.frequencies)

    def _compute_values(
        self, rays: Tensor, shift: Tensor | None, inverse_depth: Tensor, intrinsics: Tensor
    ) -> Float[Tensor, "batch token coordinate"]:
        """Compute the coordinates of the points ray · depth + shift.

        From ray + shift / depth, which has the same direction and stays finite as the depth grows.
        """
        # Without a shift the direction does not depend on depth; 0 · depth keeps shapes and gradients alike.
        offset = 0.0 * inverse_depth[..., None] if shift is None else shift * inverse_depth[..., None]
        points = rays + offset[..., None, :]
        if self.coordinate == "projected":
            directions = project_directions(points, intrinsics[..., None, :, :])
        else:
            kind = get_coordinate(self.coordinate)
            assert isinstance(kind, RayCoordinate)
            directions = kind.compute_for_directions(points)
            if self.clamp_angles:
                directions = directions.clamp(-pi / 2, pi / 2)
        # The absolute value, as released: points behind the camera alias to points in front of it.
        ahead = (points[..., 2].square() + 1e-9).sqrt().clamp(min=1e-4)
        return torch.cat([directions.flatten(-2), self._compute_depth(ahead, inverse_depth[..., None])], -1)

    def _compute_depth(self, ahead: Tensor, inverse_depth: Tensor) -> Tensor:
        away = inverse_depth.clamp(min=1e-4)
        if self.depth == "inverse":
            return (away / ahead).clamp(0.0, 20.0)
        if self.depth == "asinh":
            return torch.asinh(ahead / away).clamp(-asinh(10.0), asinh(10.0))
        return (ahead / away).clamp(-10.0, 10.0)


def _wrap_angle(angle: Tensor, jumps: Tensor) -> Tensor:
    """Bring angles back between −π and π: an interval across the cut must not become nearly a full turn."""
    finite = jumps.isfinite()
    turn = torch.where(finite, jumps, 1.0)
    # Whole turns are constants: backward must not pass through `round`.
    return angle - torch.where(finite, (angle / turn).round() * turn, 0.0).detach()


@dataclass(frozen=True)
class PerCamera(Prepared):
    """RayRoPE for one set of views. `with_depth` completes it for one layer."""

    ranges: RangeCoordinates
    query_views: tuple[int, ...]
    own: Float[Tensor, "batch query sample 3"]  # rays of the queries in their own cameras
    turned: Float[Tensor, "batch camera key sample 3"]  # rays of the keys, axes of each query camera
    shift: Float[Tensor, "batch camera key 3"]  # centers of the keys' cameras there
    intrinsics: Float[Tensor, "batch camera 3 3"]  # of the query cameras
    center_phases: Float[Tensor, "batch camera view n 3"]  # of the key cameras' centers: per pair of cameras
    camera_of_query: Int[Tensor, "query"]  # index among the query cameras
    view_of_key: Int[Tensor, "key"]
    query_is_patch: Bool[Tensor, "query"]
    key_is_patch: Bool[Tensor, "key"]
    rotate_values: bool
    # Ends of this layer's depth intervals, for any batch that shares the views.
    ends: tuple[Float[Tensor, "samples query 2"], Float[Tensor, "samples key 2"]] | None = None

    def with_depth(
        self,
        raw: Float[Tensor, "batch query 2"],
        raw_keys: Float[Tensor, "batch key 2"] | None = None,
        *,
        known: Float[Tensor, "batch query"] | None = None,
        known_keys: Float[Tensor, "batch key"] | None = None,
    ) -> "PerCamera":
        """Complete it for one layer by the predictor's raw outputs of queries and keys; known depths (not NaN) win."""
        if raw_keys is None:
            raw_keys, known_keys = raw, known
        for name, depth, layout in (("queries", raw, self.queries), ("keys", raw_keys, self.keys)):
            if depth.shape[1] != len(layout):
                raise ValueError(
                    f"depths for {depth.shape[1]} {name}, but the encoding was prepared for {len(layout)}"
                )
        with disable_autocast(raw):
            return replace(
                self, ends=(_insert_known_depths(raw, known), _insert_known_depths(raw_keys, known_keys))
            )

    def get_depth_ends(self) -> tuple[Tensor, Tensor]:
        if self.ends is None:
            raise ValueError(
                "RayRoPE needs a depth for every token: call position.with_depth(raw) in each layer"
            )
        return self.ends

    def get_camera_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that depend on cameras only."""
        return (self.own, self.turned, self.shift, self.intrinsics, self.center_phases)

    def compute_query_rotation(self, ends: Float[Tensor, "samples query 2"]) -> Rotation:
        """Compute the rotations of queries in their own cameras: no offset, no angular width, only a depth interval."""
        with disable_autocast(ends):
            intrinsics = self.intrinsics[:, self.camera_of_query]
            cos, sin = self.ranges.compute_expected(ends, self.own, None, intrinsics, self.query_is_patch)
        # A query's camera has its own center as origin: these three coordinates are 0, unrotated.
        ones = cos.new_ones(*cos.shape[:-1], 3)
        return _assemble_rotation((ones, torch.zeros_like(ones)), (cos, sin))

    def compute_key_rotation(self, view: int, ends: Float[Tensor, "samples key 2"]) -> Rotation:
        """Compute the rotations of all keys as the camera of query view `view` sees them."""
        camera = self.query_views.index(view)
        rays, shift = self.turned[:, camera], self.shift[:, camera]
        with disable_autocast(ends):
            ranges = self.ranges.compute_expected(
                ends, rays, shift, self.intrinsics[:, camera, None], self.key_is_patch
            )
            # All keys of one view share its camera center: sine and cosine per view, then one row per key.
            phases = self.center_phases[:, camera]
            cos, sin = (
                part[:, self.view_of_key].expand_as(ranges[0][..., :3])
                for part in (phases.cos(), phases.sin())
            )
            patch = self.key_is_patch[:, None, None]
            return _assemble_rotation((torch.where(patch, cos, 1.0), torch.where(patch, sin, 0.0)), ranges)


def _insert_known_depths(raw: Tensor, known: Tensor | None) -> Tensor:
    ends = compute_depth_interval(raw)
    if known is None:
        return ends
    both = known[..., None].to(ends).clamp(SHORTEST_DEPTH, LONGEST_DEPTH)
    return torch.where(both.isnan(), ends, both)


def _assemble_rotation(center: tuple[Tensor, Tensor], ranges: tuple[Tensor, Tensor]) -> Rotation:
    """Assemble one block of D/2 pairs, with a head axis. Frequency-major, as released: pair f · 12 + coordinate.

    pair         0 1 2         3 4   5 6   7 8        9 10 11      12 …
    coordinate   center x y z  direction of 3 rays   their depths  center x, next frequency …
    """
    cos, sin = (
        torch.cat(parts, -1).flatten(-2)[:, None, :, None] for parts in zip(center, ranges, strict=True)
    )
    return Rotation(cos, sin)
