"""Colors of points on a mesh from photographs: visibility along rays of the true lens, best views first, blended.

A photograph counts for a point with the score

    s = q · cos θ / (d · α)

where d is the distance, α the angle of a pixel there and θ that between ray and normal, so that cos θ / (d · α) is the
resolution on the surface; q in [0, 1] is the photograph's sharpness, and falls towards its border, masked pixels and
edges of what it sees. Colors are averaged in two bands: coarse ones with weight s^LOW, which hides steps between
photographs, details with weight s^HIGH, so that they come from the best photograph.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.images import read_reduced_photo
from g_ray.media.photos import fit_size
from g_ray.media.view import View
from g_ray.mesh.rasterizer import move_to_camera, render_depth, sample_map
from g_ray.mesh.surface_mesh import SurfaceMesh, split_large_faces
from g_ray.rays.resample import resample_image

BUFFER = 640
"""Long side at which visibility is computed."""
FINE = 0.04
"""Longest edge, in median distances, of triangles that are drawn for visibility: edges are drawn straight."""
SLACK = 0.015
"""Relative distance behind the first surface at which a point still counts as on it."""
EDGE = 0.05
"""Relative step of distances, beyond their slope, that is an edge of what a view sees."""
FEATHER = 0.02
"""Width of the ramp at borders and edges, of the image's long side."""
STEEP = 0.05
"""Cosine that steeper views count with."""
LOW, HIGH = 2.0, 12.0
COARSE = 8
"""Pixels of a photograph that one of its coarse copy covers."""
POINTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class PhotoSight:
    """What one photograph sees of a mesh."""

    view: View
    camera: Camera
    """float32, of the maps' size."""
    pose: Pose
    farthest: Float[Tensor, "h w"]
    """Distance up to which a point at a pixel is visible."""
    quality: Float[Tensor, "h w"]
    """q / α"""
    image: UInt8[Tensor, "3 h w"]
    """The photograph in this size: it is decoded once more at most, for the texture."""

    def load_photo(self, long_side: int) -> Float[Tensor, "3 h w"]:
        """Return the photograph reduced to at most `long_side` pixels."""
        width, height = fit_size(self.view.camera.width, self.view.camera.height, long_side)
        if width > self.camera.width:
            return load_photo(self.view, long_side)[0]
        return resample_image(self.image.float() / 255, width, height)

    def score(
        self, points: Float[Tensor, "n 3"], normals: Float[Tensor, "n 3"]
    ) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n"]]:
        """Return where the photograph sees points, in [0, 1]², and their score s; 0 where it does not."""
        local = move_to_camera(points, self.pose)
        pixels, imaged = self.camera.project(local)
        width, height = self.camera.width, self.camera.height
        inside = imaged & self.camera.contains(pixels)
        column, row = (
            axis.long().clamp(0, size - 1)
            for axis, size in zip(pixels.nan_to_num().unbind(-1), (width, height), strict=True)
        )
        distance = local.norm(dim=-1)
        visible = inside & (distance <= self.farthest[row, column])
        places = pixels / pixels.new_tensor([width, height])
        toward = (self.pose.translation - points.double()).float()
        cosine = (toward * normals).sum(-1) / distance.clamp_min(1e-12)
        quality = sample_map(self.quality[None], places)[:, 0]
        score = quality * cosine.clamp_min(STEEP) / distance.clamp_min(1e-12)
        return places, torch.where(visible, score, 0.0)


def find_sights(mesh: SurfaceMesh, views: Sequence[View]) -> list[PhotoSight]:
    """Render the mesh along the rays of every photograph's lens, and judge how good each photograph is where."""
    centers = np.stack([view.get_pose().translation.double().numpy(force=True) for view in views])
    distance = np.median(np.linalg.norm(mesh.vertices[::50, None] - centers[None], axis=-1).min(1))
    fine = split_large_faces(mesh, FINE * float(distance))
    sights, sharpness = [], []
    for view in views:
        image, camera = load_photo(view, BUFFER)
        sharpness.append(_measure_sharpness(image))
        sights.append(_look(fine, view, camera, image))
    typical = float(np.median(sharpness)) or 1.0
    return [
        replace(sight, quality=sight.quality * min(1.0, sharp / typical))
        for sight, sharp in zip(sights, sharpness, strict=True)
    ]


def load_photo(view: View, long_side: int) -> tuple[Float[Tensor, "3 h w"], Camera]:
    """Return a photograph reduced to at most `long_side` pixels, and its camera alike."""
    width, height = fit_size(view.camera.width, view.camera.height, long_side)
    camera = view.camera.to(torch.float32).resize(width, height)
    if isinstance(view.image, Path):
        return read_reduced_photo(view.image, width, height).clamp(0, 1), camera
    return resample_image(view.load_image(), width, height).float(), camera


def _load_mask(view: View, camera: Camera) -> Bool[Tensor, "h w"]:
    """Return which pixels of a reduced photograph have a ray and may be used."""
    usable = camera.unproject_grid()[1]
    mask = view.load_mask()
    if mask is not None:
        usable = usable & (resample_image(mask[None].float(), camera.width, camera.height)[0] > 0.999)
    return usable


def _measure_sharpness(image: Float[Tensor, "3 h w"]) -> float:
    """Return the contrast of neighboring pixels relative to that of the image."""
    gray = image.mean(0)
    step = (gray[1:, 1:] - gray[:-1, 1:]).abs().mean() + (gray[1:, 1:] - gray[1:, :-1]).abs().mean()
    return float(step / gray.std().clamp_min(1e-6))


def _look(mesh: SurfaceMesh, view: View, camera: Camera, image: Float[Tensor, "3 h w"]) -> PhotoSight:
    pose = view.get_pose().to(torch.float64)
    first = render_depth(mesh, camera, pose).distance
    near, far = -_pool_max(-first), _pool_max(torch.where(first.isfinite(), first, 0.0))
    edge = _find_steps(first)
    farthest = torch.where(edge, near, torch.maximum(far, near)) * (1 + SLACK)
    farthest = torch.where(near.isfinite(), farthest, torch.inf)
    usable = _load_mask(view, camera)
    good = (usable & ~edge).float()
    reach = max(1, round(FEATHER * max(camera.width, camera.height)))
    # Zero padding makes the border of the image an edge too.
    rows = torch.nn.functional.avg_pool2d(good[None, None], (2 * reach + 1, 1), 1, (reach, 0))
    ramp = torch.nn.functional.avg_pool2d(rows, (1, 2 * reach + 1), 1, (0, reach))[0, 0]
    quality = (ramp**2).clamp_min(1e-3) * usable / _measure_pixel_angles(camera)
    return PhotoSight(view, camera, pose, farthest, quality, (255 * image.clamp(0, 1)).round().byte())


def _find_steps(distance: Float[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
    """Find pixels beside a step of distances. On any plane, 1 / distance is linear in the ray: its second
    difference tells a step from a slope."""
    inverse = 1 / distance
    padded = torch.nn.functional.pad(inverse[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    across = padded[1:-1, 2:] + padded[1:-1, :-2] - 2 * inverse
    down = padded[2:, 1:-1] + padded[:-2, 1:-1] - 2 * inverse
    return (torch.maximum(across.abs(), down.abs()) > EDGE * inverse) | distance.isinf()


def _pool_max(values: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    return torch.nn.functional.max_pool2d(values[None, None], 3, 1, 1)[0, 0]


def _measure_pixel_angles(camera: Camera) -> Float[Tensor, "h w"]:
    """Return the angle that a pixel covers, the root of its solid angle."""
    rays = camera.unproject_grid()[0]
    down, across = torch.gradient(rays, dim=(0, 1))
    return torch.linalg.cross(down, across).norm(dim=-1).clamp_min(1e-12).sqrt()


# Exposure

MATCHED = 20_000
"""Points at which exposures are compared."""
STEPS = 20
PRIOR = 0.05
"""Weight of leaving a photograph as it is, against the mean weight of its points."""


def level_exposures(
    mesh: SurfaceMesh, normals: Float[np.ndarray, "vertex 3"], sights: Sequence[PhotoSight]
) -> Float[Tensor, "view 3"]:
    """Return a gain per photograph and channel, with which photographs agree best about the colors of points."""
    step = max(1, len(mesh.vertices) // MATCHED)
    points, facing = (torch.from_numpy(values[::step]) for values in (mesh.vertices, normals))
    logs, weights = [], []
    for sight in sights:
        image = sight.load_photo(BUFFER // 2)
        places, score = sight.score(points, facing.float())
        color = sample_map(image, places)
        clipped = (color.amin(-1) < 0.02) | (color.amax(-1) > 0.98)
        logs.append(color.clamp_min(0.02).log())
        weights.append(torch.where(clipped, 0.0, score))
    log, weight = torch.stack(logs), torch.stack(weights)
    weight = (weight / weight.amax(0).clamp_min(1e-20))[..., None]
    weight = weight * ((weight > 0).sum(0) > 1)
    gains = torch.zeros(len(sights), 3)
    for _ in range(STEPS):
        mean = (weight * (log + gains[:, None])).sum(0) / weight.sum(0).clamp_min(1e-9)
        missing = (weight * (mean - log)).sum(1) / (weight.sum(1) * (1 + PRIOR)).clamp_min(1e-9)
        gains = missing - missing.mean(0)
    return gains.exp().clamp(0.5, 2.0)


# Colors


@dataclass(frozen=True, eq=False)
class PointColors:
    """Colors of points, and which of them a photograph sees; the others are gray."""

    colors: UInt8[np.ndarray, "n 3"]
    seen: Bool[np.ndarray, "n"]


def color_points(
    points: Float[np.ndarray, "n 3"],
    normals: Float[np.ndarray, "n 3"],
    sights: Sequence[PhotoSight],
    gains: Float[Tensor, "view 3"],
    long_side: int,
) -> PointColors:
    """Average the colors of points over photographs, reduced to `long_side`; one photograph is in memory at a time."""
    count = len(points)
    coarse, detail = torch.zeros(count, 4), torch.zeros(count, 4)
    places_of, facing_of = torch.from_numpy(points), torch.from_numpy(normals).float()
    unit = _choose_score_unit(places_of, facing_of, sights)
    for sight, gain in zip(sights, gains, strict=True):
        image = sight.load_photo(long_side) * gain[:, None, None]
        low = _average_surface(image, sight)
        shown = low.new_tensor(image.shape[:0:-1]) / (low.new_tensor(low.shape[:0:-1]) * COARSE)
        for start in range(0, count, POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            places, score = sight.score(places_of[part], facing_of[part])
            seen = score.nonzero()[:, 0]
            places, score = places[seen], (score[seen] / unit).clamp(1e-2, 1e2)
            smooth = sample_map(low, places * shown)
            fine = sample_map(image, places) - smooth
            for total, values, power in ((coarse, smooth, LOW), (detail, fine, HIGH)):
                weight = score[:, None] ** power
                total[part].index_add_(0, seen, torch.cat([weight * values, weight], 1))
    colors = coarse[:, :3] / coarse[:, 3:].clamp_min(1e-30) + detail[:, :3] / detail[:, 3:].clamp_min(1e-30)
    seen = (coarse[:, 3] > 0).numpy()
    colors = np.where(seen[:, None], (255 * colors.clamp(0, 1)).round().numpy(), 128).astype(np.uint8)
    return PointColors(colors, seen)


def _average_surface(image: Float[Tensor, "3 h w"], sight: PhotoSight) -> Float[Tensor, "3 h2 w2"]:
    """Return the coarse copy of a photograph: means of the pixels that show the mesh, where there are some."""
    shown = (sight.farthest.isfinite() & (sight.quality > 0)).float()[None, None]
    shown = torch.nn.functional.interpolate(shown, image.shape[1:])[0] + 1e-4
    parts = torch.cat([image * shown, shown])
    means = torch.nn.functional.avg_pool2d(parts, COARSE, ceil_mode=True, count_include_pad=False)
    return means[:3] / means[3:]


def _choose_score_unit(points: Tensor, normals: Tensor, sights: Sequence[PhotoSight]) -> float:
    """Return a typical score, so that powers of scores stay within float32."""
    step = max(1, len(points) // 1000)
    scores = torch.cat([sight.score(points[::step], normals[::step])[1] for sight in sights])
    scores = scores[scores > 0]
    return float(scores.median()) if len(scores) else 1.0
