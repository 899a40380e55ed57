"""Random lenses: pinholes of any field of view, and four-coefficient fisheyes that never fold."""

from collections.abc import Sequence
from dataclasses import replace
from math import pi

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import rho
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pointmap import transform_points
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray_lab.sources.batches import ReconstructionBatch

MONOTONE_RAD = 2 * pi / 3
"""Up to this angle from the axis ρ(ψ) grows: 240° of lens, more than any image here shows."""

STRENGTH = 0.6
"""By how much the slope of ρ may differ from the equidistant lens's 1, at most, up to that angle."""


def draw_fisheye_coefficients(unit: Float[Tensor, "*lens 5"]) -> Float[Tensor, "*lens 4"]:
    """k1 … k4 from numbers in [0, 1), with ρ'(ψ) = 1 + Σ (2i + 1) kᵢ ψ²ⁱ in [1 − STRENGTH, 1 + STRENGTH].

    Four signed shares of one budget, each at its largest at the widest angle: monotone by construction, so that
    no draw has to be thrown away.
    """
    shares = 2 * unit[..., :4] - 1
    shares = shares / shares.abs().sum(-1, keepdim=True).clamp(min=1e-6)
    order = torch.arange(1, 5, dtype=unit.dtype, device=unit.device)
    return STRENGTH * unit[..., 4:] * shares / ((2 * order + 1) * MONOTONE_RAD ** (2 * order))


def make_fisheyes(
    fov_rad: Float[Tensor, "*lens"],
    k: Float[Tensor, "*lens 4"],
    center: Float[Tensor, "*lens 2"],
    zoom: Float[Tensor, "*lens"],
    width: int,
    height: int,
) -> OpenCVFisheye:
    """`fov_rad` is swept along the width of a native image whose principal point is in its middle."""
    focal = zoom * width / 2 / rho(fov_rad / 2, k)
    params = torch.cat(
        [focal[..., None], focal[..., None], compute_zoomed_center(center, zoom, width, height), k], -1
    )
    return OpenCVFisheye(params.float(), width, height)


def make_pinholes(
    fov_rad: Float[Tensor, "*lens"],
    center: Float[Tensor, "*lens 2"],
    zoom: Float[Tensor, "*lens"],
    width: int,
    height: int,
) -> Pinhole:
    """As `make_fisheyes`, without distortion."""
    focal = (zoom * width / 2 / torch.tan(fov_rad / 2)).float()
    cx, cy = compute_zoomed_center(center, zoom, width, height).float().unbind(-1)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=cx, cy=cy)


def compute_zoomed_center(
    center: Float[Tensor, "*lens 2"], zoom: Float[Tensor, "*lens"], width: int, height: int
) -> Float[Tensor, "*lens 2"]:
    """Principal point in pixels, given from the middle in image sizes, after a zoom into the middle of the image."""
    return (0.5 + zoom[..., None] * center) * center.new_tensor([width, height])


# Photographs as other lenses in the same place would have taken them: real content, any projection.


FINER = 4
"""Rays per pixel and axis: a new pixel is the mean of what they see."""
NARROWER = 0.9
"""A fisheye's field of view over that of the photograph it is cut from, so that its corners find content."""


def reproject_batch(batch: ReconstructionBatch, cameras: Sequence[Camera]) -> ReconstructionBatch:
    """Render the same sets through other lenses, one camera per view and each batched over the sets.

    Colors are interpolated and averaged, depth is the nearest pixel's along the new ray. Rays that leave the
    photograph have no depth and are black.
    """
    parts = [_reproject_view(batch, view, camera) for view, camera in enumerate(cameras)]
    images, depth, valid, rays = (torch.stack(part, 1) for part in zip(*parts, strict=True))
    points = depth[..., None] * rays
    return replace(
        batch,
        images=images,
        views=Views(list(cameras)),
        camera_points=points,
        world_points=transform_points(points, batch.poses) * valid[..., None],
        ray_depth=depth,
        z_depth=points[..., 2],
        valid=valid,
    )


def draw_contained_fisheyes(
    batch: ReconstructionBatch, width: int, height: int, random: np.random.Generator
) -> list[Camera]:
    """Draw a random fisheye for every view, all of whose rays lie inside the photograph."""
    lenses: list[Camera] = []
    for camera in batch.views.cameras:
        sets = len(batch)
        unit = torch.from_numpy(random.random((sets, 5)))
        wide = torch.as_tensor(camera.fov().horizontal_deg, dtype=torch.float64).expand(sets) * pi / 180
        straight = torch.zeros(sets, 2, dtype=torch.float64), torch.ones(sets, dtype=torch.float64)
        lenses.append(
            make_fisheyes(NARROWER * wide, draw_fisheye_coefficients(unit), *straight, width, height)
        )
    return lenses


def _reproject_view(
    batch: ReconstructionBatch, view: int, camera: Camera
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    old = batch.views.cameras[view]
    fine = camera.resize(FINER * camera.width, FINER * camera.height)
    positions, inside = _locate_rays(old, RayMap.from_camera(fine))
    colors = F.grid_sample(batch.images[:, view], positions, mode="bilinear", align_corners=False)
    images = F.avg_pool2d(colors * inside[:, None], FINER)
    rays = RayMap.from_camera(camera)
    positions, inside = _locate_rays(old, rays)
    known = torch.stack([batch.ray_depth[:, view], batch.valid[:, view].to(batch.ray_depth)], 1)
    nearest = F.grid_sample(known, positions, mode="nearest", align_corners=False)
    valid = (nearest[:, 1] > 0.5) & inside
    return images, nearest[:, 0] * valid, valid, rays.directions.expand(*valid.shape, 3)


def _locate_rays(old: Camera, rays: RayMap) -> tuple[Float[Tensor, "set h w 2"], Tensor]:
    """Project rays into the old image, in grid_sample's units (−1 to 1 from edge to edge), with their validity."""
    pixels, ahead = old.project(rays.directions)
    place = 2 * pixels / pixels.new_tensor([old.width, old.height]) - 1
    return place, ahead & rays.valid & (place.abs() <= 1).all(-1)
