"""Where the pixels of a reference view go in a source view while their distance is swept.

A pixel with the unit bearing r and the inverse ray distance ρ is seen by the source along

    q(ρ) = R r + ρ t,   R, t = source_from_reference,

which is linear in ρ, has no singularity at infinity (ρ = 0) and needs nothing of the source but its `project`.
Lens models cost 30 to 120 ns a point, so that projecting every hypothesis would be most of the work; but the pixel
moves along a smooth curve, and a few exact projections per group of hypotheses describe it.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.media.view import View
from g_ray.stereo.lookup import ProjectionTable, accelerate

NODES = 6
"""Exact projections per group of hypotheses; a polynomial of degree 5 runs through them."""
LAST_COEFFICIENTS_PX = (0.2, 0.04)
"""Curves with larger Chebyshev coefficients of degree 4 and 5 are projected exactly at every hypothesis."""


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

    def prepare(self, center: Float[Tensor, "h w"], offsets: Float[Tensor, "k"]) -> "CurveGroup":
        """Fit the curves over the inverse distances center + offsets."""
        if len(offsets) <= NODES:
            pixels, valid = self.project(center + offsets[:, None, None])
            identity = torch.eye(len(offsets), device=offsets.device)
            return CurveGroup(self, center, offsets, pixels, valid, torch.zeros_like(valid[0]), identity)
        low, high = offsets.double().aminmax()
        middle, reach = (low + high) / 2, ((high - low) / 2).clamp_min(1e-30)
        order = torch.arange(NODES, dtype=torch.float64, device=offsets.device)
        nodes = middle + reach * torch.cos(math.pi * (order + 0.5) / NODES)
        pixels, valid = self.project(center + nodes.to(center)[:, None, None])
        # Chebyshev coefficients from values at the nodes, then values at the offsets from coefficients.
        coefficients = torch.cos(math.pi * order[:, None] * (order + 0.5) / NODES) * (2 / NODES)
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
        sharp = (tail[0] > LAST_COEFFICIENTS_PX[0]) | (tail[1] > LAST_COEFFICIENTS_PX[1])
        # Curves that stay far outside on one side of the frame are not seen, however they bend.
        size = pixels.new_tensor([self.camera.width, self.camera.height])
        near = ((pixels.amax(0) > -size) & (pixels.amin(0) < 2 * size)).all(-1)
        every = valid.all(0)
        return torch.where(every, sharp & near, valid.any(0))


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
