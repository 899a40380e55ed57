"""Where the pixels of a reference view go in a source view while their distance is swept.

A pixel with the unit bearing r and the inverse ray distance ρ is seen by the source along

    q(ρ) = R r + ρ t,   R, t = source_from_reference,

which is linear in ρ, has no singularity at infinity (ρ = 0) and needs nothing of the source but its `project`.
Lens models cost 30 to 120 ns a point, so that projecting every hypothesis would be most of the work; but the pixel
moves along a smooth curve, and a few exact projections per group of hypotheses describe it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.media.view import View

# Projection by table
#
# `RayMapCamera.project` inverts a table of rays by Newton's method, 10 µs a point; a sweep needs millions of points.
# Here the pixels of directions on the six faces of a cube are computed once and interpolated between.


ERROR_PX = 0.006
"""Largest error of bilinear interpolation that the spacing of the nodes is chosen for."""
BEND = 0.65
"""Largest second derivative of atan, the bend that a cube face adds to a lens that is linear in the angle."""
GROWTH = 2
"""Rounds in which nodes that the lens does not image are extrapolated from their neighbors."""


@dataclass(frozen=True, eq=False)
class ProjectionTable:
    """Pixels at the nodes of a cube map; projects as a `Camera` does."""

    pixels: Float[Tensor, "6 n n 2"]
    known: Bool[Tensor, "6 n n"]
    usable: Bool[Tensor, "h w"]  # pixels that have a ray

    @staticmethod
    def make(camera: Camera) -> "ProjectionTable":
        """Tabulate a camera's projection, only in the directions that it may see."""
        rays, usable = camera.unproject_grid()
        focal = _measure_pixels_per_radian(rays, usable)
        side = max(16, math.ceil(2 * math.sqrt(BEND * focal / (8 * ERROR_PX)))) + 1
        directions = _list_directions(side, rays)
        axis = torch.nn.functional.normalize(rays[usable].mean(0), dim=0)
        # A margin of three nodes around the widest ray.
        widest = (rays[usable] @ axis).clamp(-1, 1).amin().acos() + 6 / side
        near = (directions @ axis).clamp(-1, 1).acos() <= widest
        pixels = torch.zeros(*directions.shape[:-1], 2, dtype=rays.dtype, device=rays.device)
        known = torch.zeros_like(near)
        pixels[near], known[near] = camera.project(directions[near])
        for _ in range(GROWTH):
            pixels, known = _grow(pixels, known)
        return ProjectionTable(pixels, known, usable)

    @property
    def width(self) -> int:
        return self.usable.shape[1]

    @property
    def height(self) -> int:
        return self.usable.shape[0]

    def contains(self, pixels: Float[Tensor, "*shape 2"]) -> Bool[Tensor, "*shape"]:
        """Whether pixels lie in the frame."""
        u, v = pixels.unbind(-1)
        return (u >= 0) & (u <= self.width) & (v >= 0) & (v <= self.height)

    def project(
        self, points: Float[Tensor, "*shape 3"]
    ) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
        """Camera-frame points to pixels, and whether a pixel with a ray is there."""
        side = self.pixels.shape[1]
        face, place = _find_faces(points)
        at = (place + 1) * ((side - 1) / 2)
        corner = at.floor().clamp(0, side - 2)
        x, y = (at - corner).unbind(-1)
        column, row = corner.long().unbind(-1)
        first = (face * side + row) * side + column
        values, known = self.pixels.flatten(0, 2), self.known.flatten()
        corners = [first, first + 1, first + side, first + side + 1]
        weights = [(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y]
        nodes = torch.stack([values[index] for index in corners])
        pixels = (nodes * torch.stack(weights)[..., None]).sum(0)
        valid = torch.stack([known[index] for index in corners]).all(0)
        # Between both sides of a seam there is no pixel.
        size = pixels.new_tensor([self.width, self.height])
        valid &= ((nodes.amax(0) - nodes.amin(0)) < size / 16).all(-1)
        u, v = pixels.unbind(-1)
        inside = self.contains(pixels)
        seen = self.usable[v.long().clamp(0, self.height - 1), u.long().clamp(0, self.width - 1)]
        return pixels, valid & inside & seen


def accelerate(camera: Camera) -> Camera | ProjectionTable:
    """A camera, or a table in its place where its own projection is slow."""
    return ProjectionTable.make(camera) if isinstance(camera, RayMapCamera) else camera


def _list_directions(side: int, like: Tensor) -> Float[Tensor, "6 n n 3"]:
    """Unit directions of the nodes; faces +x −x +y −y +z −z, as `_find_faces`."""
    line = torch.linspace(-1, 1, side, dtype=like.dtype, device=like.device)
    b, a = torch.meshgrid(line, line, indexing="ij")
    one = torch.ones_like(a)
    faces = []
    for axis in range(3):
        for sign in (1, -1):
            parts = [a, b]
            parts.insert(axis, sign * one)
            faces.append(torch.stack(parts, -1))
    return torch.nn.functional.normalize(torch.stack(faces), dim=-1)


def _find_faces(
    points: Float[Tensor, "*shape 3"],
) -> tuple[Int[Tensor, "*shape"], Float[Tensor, "*shape 2"]]:
    """The cube face that points fall onto, and where on it, in [−1, 1]."""
    size, axis = points.abs().max(-1)
    main = points.gather(-1, axis[..., None])[..., 0]
    x, y, z = points.unbind(-1)
    a, b = torch.where(axis == 0, y, x), torch.where(axis == 2, y, z)
    return 2 * axis + (main < 0), torch.stack([a, b], -1) / size.clamp_min(1e-30)[..., None]


def _grow(
    pixels: Float[Tensor, "6 n n 2"], known: Bool[Tensor, "6 n n"]
) -> tuple[Float[Tensor, "6 n n 2"], Bool[Tensor, "6 n n"]]:
    """Extrapolate linearly to unknown nodes from two known ones in a row, along rows and columns."""
    total, count = torch.zeros_like(pixels), torch.zeros_like(pixels[..., 0])
    for dim in (1, 2):
        for step in (-1, 1):
            first, second = pixels.roll(step, dim), pixels.roll(2 * step, dim)
            both = known.roll(step, dim) & known.roll(2 * step, dim)
            # Pixels rolled in from the opposite border are not neighbors.
            both.narrow(dim, 0 if step > 0 else both.shape[dim] - 2, 2).fill_(False)
            total += torch.where(both[..., None], 2 * first - second, 0.0)
            count += both
    found = ~known & (count > 0)
    grown = torch.where(found[..., None], total / count.clamp_min(1)[..., None], pixels)
    return grown, known | found


def _measure_pixels_per_radian(rays: Float[Tensor, "h w 3"], usable: Bool[Tensor, "h w"]) -> float:
    """The finest resolution of a ray map, but for outliers."""
    step = (rays[:, 1:] - rays[:, :-1]).norm(dim=-1)[usable[:, 1:] & usable[:, :-1]]
    return 1 / max(float(step.quantile(0.05)) if len(step) < 1 << 20 else float(step.median()), 1e-6)


NODES = 6
"""Exact projections per group of hypotheses; a polynomial of degree 5 runs through them. A search next to an estimate
needs fewer."""
LAST_COEFFICIENTS_PX = (0.2, 0.04)
"""Curves with larger Chebyshev coefficients of degree 4 and 5 are projected exactly at every hypothesis; with fewer
nodes the second bound holds for the last."""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """The curves q(ρ) of all pixels of a reference view in one source view."""

    bearings: Float[Tensor, "h w 3"]  # R r, in the source frame
    shift: Float[Tensor, "3"]  # t
    camera: Camera | ProjectionTable  # of the source

    @staticmethod
    def between(reference: View, source: View, rays: Float[Tensor, "h w 3"]) -> "Trajectories":
        """Curves of the rays of a reference view (one for each of its pixels) in a source view."""
        # Relative poses in float64: world coordinates may be large.
        relative = source.get_pose().to(torch.float64).inverse() @ reference.get_pose().to(torch.float64)
        rotation, shift = relative.rotation.to(rays), relative.translation.to(rays)
        return Trajectories(rays @ rotation.mT, shift, accelerate(source.camera.to(rays.dtype)))

    def project(
        self, inverse: Float[Tensor, "*n h w"]
    ) -> tuple[Float[Tensor, "*n h w 2"], Bool[Tensor, "*n h w"]]:
        """Project exactly at the given inverse distances."""
        return self.camera.project(self.bearings + inverse[..., None] * self.shift)

    def prepare(
        self, center: Float[Tensor, "h w"], offsets: Float[Tensor, "k"], count: int = NODES
    ) -> "CurveGroup":
        """Fit the curves over the inverse distances center + offsets to `count` exact projections."""
        if len(offsets) <= count:
            pixels, valid = self.project(center + offsets[:, None, None])
            identity = torch.eye(len(offsets), device=offsets.device)
            return CurveGroup(self, center, offsets, pixels, valid, torch.zeros_like(valid[0]), identity)
        low, high = offsets.double().aminmax()
        middle, reach = (low + high) / 2, ((high - low) / 2).clamp_min(1e-30)
        order = torch.arange(count, dtype=torch.float64, device=offsets.device)
        nodes = middle + reach * torch.cos(math.pi * (order + 0.5) / count)
        pixels, valid = self.project(center + nodes.to(center)[:, None, None])
        # Chebyshev coefficients from values at the nodes, then values at the offsets from coefficients.
        coefficients = torch.cos(math.pi * order[:, None] * (order + 0.5) / count) * (2 / count)
        coefficients[0] /= 2
        unit = ((offsets.double() - middle) / reach).clamp(-1, 1)
        values = torch.cos(order * torch.acos(unit)[:, None]) @ coefficients
        rough = self._find_rough(coefficients[-2:].to(pixels), pixels, valid)
        valid = valid.all(0).expand(len(offsets), -1, -1)
        return CurveGroup(self, center, offsets, pixels, valid, rough, values.to(pixels))

    def _find_rough(
        self, last: Float[Tensor, "2 node"], pixels: Tensor, valid: Tensor
    ) -> Bool[Tensor, "h w"]:
        """Pixels whose curve bends sharply, crosses the seam of a panorama or the rim of the lens."""
        tail = (last @ pixels.flatten(1)).unflatten(1, pixels.shape[1:]).abs().amax(-1)
        sharp = tail[1] > LAST_COEFFICIENTS_PX[1]
        if last.shape[1] == NODES:
            sharp |= tail[0] > LAST_COEFFICIENTS_PX[0]
        # Curves that stay far outside on one side of the frame are not seen, however they bend.
        size = pixels.new_tensor([self.camera.width, self.camera.height])
        near = ((pixels.amax(0) > -size) & (pixels.amin(0) < 2 * size)).all(-1)
        every = valid.all(0)
        return torch.where(every, sharp & near, valid.any(0))


def measure_travel(ways: Sequence[Trajectories], low: float, high: float) -> float:
    """Return by how many pixels pixels move between two inverse distances: of nearly all, in the source where it is
    most, were they all as fast as where they are fastest."""
    longest = 0.0
    # 64 pieces of each curve, on a grid of about 24 pixels; the 0.9 quantile leaves out steep exceptions.
    for way in ways:
        stride = max(1, min(way.bearings.shape[:-1]) // 24)
        coarse = Trajectories(way.bearings[::stride, ::stride], way.shift, way.camera)
        inverse = torch.linspace(low, high, 65, device=way.shift.device)[:, None, None]
        pixels, valid = coarse.project(inverse.expand(-1, *coarse.bearings.shape[:2]))
        seen = valid & way.camera.contains(pixels)
        moves = (pixels[1:] - pixels[:-1]).norm(dim=-1)[seen[1:] & seen[:-1]]
        if len(moves):
            longest = max(longest, 64 * float(moves.quantile(0.9)))
    return longest


@dataclass(frozen=True, eq=False)
class CurveGroup:
    """Curves of pixels over one group of hypotheses."""

    trajectories: Trajectories
    center: Float[Tensor, "h w"]
    offsets: Float[Tensor, "k"]
    nodes: Float[Tensor, "node h w 2"]
    valid: Bool[Tensor, "k h w"]
    rough: Bool[Tensor, "h w"]
    values: Float[Tensor, "k node"]

    def evaluate(self, start: int, stop: int) -> tuple[Float[Tensor, "n h w 2"], Bool[Tensor, "n h w"]]:
        """Source pixels at the hypotheses start … stop − 1 of the group, and whether the lens images them."""
        pixels = (self.values[start:stop] @ self.nodes.flatten(1)).unflatten(1, self.nodes.shape[1:])
        valid = self.valid[start:stop]
        if bool(self.rough.any()):
            at = self.center[self.rough] + self.offsets[start:stop, None]
            ways = self.trajectories
            exact, imaged = ways.camera.project(ways.bearings[self.rough] + at[..., None] * ways.shift)
            valid = valid.clone()
            pixels[:, self.rough], valid[:, self.rough] = exact, imaged
        return pixels, valid
