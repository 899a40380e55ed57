"""Cross-projection phase mismatch as numbers: one ray pair, several lenses, two coordinates (paper, Fig. 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera, pixel_centers
from g_ray.coordinates import tangent


@dataclass(frozen=True)
class PhaseComparison:
    """Relative phases Δφ = ω_k (ξ_b − ξ_a) of ray pairs (a, b), as each camera's image positions give them."""

    pixels: Float[Tensor, "pair camera 2 2"]  # where a and b land: [.., end, (u, v)]
    angles: Float[Tensor, "pair camera 2 2"]  # θ of the rays cast back through those pixels: [.., end, axis]
    grid: Float[Tensor, "pair camera 2 frequency"]  # ξ = token-grid index, in patches
    ray: Float[Tensor, "pair camera 2 frequency"]  # ξ = ray angle, in radians (eq:relative_angular_phase)


def compute_spread(phases: Float[Tensor, "pair camera 2 frequency"]) -> Float[Tensor, "pair"]:
    """Largest disagreement between cameras over axes and frequencies, in radians: 0 if the lens does not matter."""
    return (phases.amax(1) - phases.amin(1)).amax((-2, -1))


def compare_phases(
    cameras: Sequence[Camera],
    pairs: Float[Tensor, "pair 2 3"],
    patch: int,
    grid_bank: Float[Tensor, "frequency"],
    ray_bank: Float[Tensor, "frequency"],
) -> PhaseComparison:
    """Send each ray to each image, then take positions and angles back from the pixels alone."""
    pixels = torch.stack([_project(camera, pairs) for camera in cameras], 1)
    angles = torch.stack([_compute_angles(camera, pixels[:, i]) for i, camera in enumerate(cameras)], 1)
    return PhaseComparison(
        pixels=pixels,
        angles=angles,
        grid=_subtract_ends(pixels / patch)[..., None] * grid_bank.to(pixels),
        ray=_subtract_ends(angles)[..., None] * ray_bank.to(pixels),
    )


def draw_shared_ray_pairs(
    cameras: Sequence[Camera], count: int, seed: int = 0
) -> Float[Tensor, "{count} 2 3"]:
    """Random pairs of rays that every camera sees, drawn from the pixels of the narrowest one."""
    narrow = min(cameras, key=lambda camera: float(camera.fov().diagonal_deg))
    centers = pixel_centers(narrow.width, narrow.height, dtype=narrow.dtype, device=narrow.device)
    rays, valid = narrow.unproject(centers.reshape(-1, 2))
    for camera in cameras:
        valid = valid & is_visible(camera, rays)
    candidates = rays[valid]
    if len(candidates) < 2:
        raise ValueError(
            "no ray pair is visible to all cameras: point them the same way, or widen the narrowest"
        )
    generator = torch.Generator().manual_seed(seed)
    return candidates[torch.randint(len(candidates), (count, 2), generator=generator)]


def is_visible(camera: Camera, directions: Float[Tensor, "*shape 3"]) -> Bool[Tensor, "*shape"]:
    """Whether a ray lands inside the frame."""
    pixels, valid = camera.project(directions)
    return valid & camera.contains(pixels)


def _project(camera: Camera, rays: Tensor) -> Tensor:
    pixels, valid = camera.project(rays)
    if not bool((valid & camera.contains(pixels)).all()):
        raise ValueError(
            f"the {camera.NAME} camera does not see every ray of the pairs: use shared_ray_pairs"
        )
    return pixels


def _compute_angles(camera: Camera, pixels: Tensor) -> Tensor:
    return tangent(camera.unproject(pixels)[0])


def _subtract_ends(ends: Float[Tensor, "pair camera 2 axis"]) -> Float[Tensor, "pair camera axis"]:
    return ends[:, :, 1] - ends[:, :, 0]
