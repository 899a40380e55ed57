"""From depth and photographs to a mesh: surface, trimming, decimation, colors of vertices, texture."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8

from g_ray.media.photos import fit_size
from g_ray.media.view import View
from g_ray.mesh.coloring import BUFFER, color_points, find_sights, level_exposures
from g_ray.mesh.depth_fusion import BLOCK, DepthView, TsdfVolume, build_fused_mesh, fuse_depth
from g_ray.mesh.poisson import decimate, reconstruct_poisson
from g_ray.mesh.rasterizer import render_depth, sample_map
from g_ray.mesh.surface_mesh import SurfaceMesh, split_large_faces
from g_ray.mesh.texture import paint_texture
from g_ray.mesh.trimming import trim_unsupported

CELL_PX = 2.0
"""Finest details, in pixels of the depth maps at their median distance."""
TRUNCATION = 4.0
"""In voxels."""
COMPARED = 3
"""Views in which the error of decimation is measured."""


@dataclass(frozen=True)
class MeshSettings:
    """How a mesh is made."""

    method: Literal["poisson", "tsdf"] = "poisson"
    faces: int = 200_000
    texture_size: int = 4096
    """Texels along a side of the texture, at most; 0: no texture, colors of vertices only."""


@dataclass(frozen=True, eq=False)
class OrientedPoints:
    """Points of a surface with unit normals towards the views."""

    positions: Float[np.ndarray, "point 3"]
    normals: Float[np.ndarray, "point 3"]


@dataclass(frozen=True, eq=False)
class BuiltMesh:
    """A mesh, and how much its surface moved when it was decimated."""

    mesh: SurfaceMesh
    fine_faces: int
    """Triangles before decimation."""
    error: float
    """Relative change of distances from the views, that of all but 5 % is smaller; 0 without decimation."""


def build_mesh(
    depths: Sequence[DepthView],
    photos: Sequence[View],
    cloud: OrientedPoints,
    settings: MeshSettings,
) -> BuiltMesh:
    """Build a textured mesh from depth of any lens, the points fused from it, and the photographs with their poses.

    ValueError if there is no depth, or too little for a surface.
    """
    fine = build_surface(depths, cloud, settings)
    mesh = decimate(fine, settings.faces)
    error = 0.0 if mesh is fine else measure_change(fine, mesh, depths)
    sights = find_sights(mesh, photos)
    normals = mesh.compute_normals()
    gains = level_exposures(mesh, normals, sights)
    colors = color_points(mesh.vertices, normals, sights, gains, BUFFER).colors
    mesh = replace(mesh, colors=colors)
    if settings.texture_size:
        mesh = paint_texture(mesh, sights, gains, settings.texture_size)
    return BuiltMesh(mesh, len(fine.faces), error)


def build_surface(depths: Sequence[DepthView], cloud: OrientedPoints, settings: MeshSettings) -> SurfaceMesh:
    """Build the surface that depths support, at their resolution or that of the triangles asked for."""
    if not any(bool(view.valid.any()) for view in depths):
        raise ValueError("no view has depth: there is nothing to mesh")
    cell = CELL_PX * measure_pixel_size(depths)
    if settings.method == "poisson":
        surface = reconstruct_poisson(cloud.positions, cloud.normals, cell, settings.faces)
    else:
        surface = build_fused_mesh(_fuse(depths, cell))
    mesh = trim_unsupported(surface, depths)
    if not len(mesh.faces):
        raise ValueError("no triangle is supported by depth: nothing is left of the mesh")
    return mesh


def measure_pixel_size(depths: Sequence[DepthView]) -> float:
    """Return the median width of a pixel of the depth maps on the surface."""
    sizes = []
    for view in depths:
        rays = view.camera.to(torch.float32).unproject_grid()[0]
        angle = (rays[:, 1:] - rays[:, :-1]).norm(dim=-1)
        sizes.append((angle * view.ray_depth[:, 1:])[view.valid[:, 1:]][::16])
    return float(torch.cat(sizes).median())


MAX_FUSED_BLOCKS = 4000
"""Blocks of voxels, at most; with more, voxels are enlarged."""


def _fuse(depths: Sequence[DepthView], voxel: float) -> TsdfVolume:
    """Fuse depth with voxels of a size, or larger ones if there would be too many."""
    for _ in range(8):
        side = voxel * BLOCK
        cells = torch.cat([(view.list_points()[::7] / side).floor().long().unique(dim=0) for view in depths])
        if len(cells.unique(dim=0)) <= MAX_FUSED_BLOCKS:
            break
        voxel *= 1.5
    return fuse_depth(depths, voxel=voxel, truncation=TRUNCATION * voxel, carve=True)


def measure_change(fine: SurfaceMesh, coarse: SurfaceMesh, depths: Sequence[DepthView]) -> float:
    """Return the relative change of distances along the rays of some views that all but 5 % stay below."""
    changes = []
    for view in depths[:: max(1, len(depths) // COMPARED)][:COMPARED]:
        long = float(view.ray_depth[view.valid].median()) * 0.04 if bool(view.valid.any()) else 1.0
        before, after = (
            render_depth(split_large_faces(mesh, long), view.camera, view.pose).distance
            for mesh in (fine, coarse)
        )
        both = before.isfinite() & after.isfinite()
        changes.append(((after - before).abs() / before)[both])
    change = torch.cat(changes)
    return float(change.quantile(0.95)) if 0 < len(change) < 1 << 24 else 0.0


def render_picture(
    mesh: SurfaceMesh, view: View, long_side: int, background: int = 255
) -> UInt8[np.ndarray, "h w 3"]:
    """Render a mesh with its texture, or the colors of its vertices, through the lens of a view."""
    camera = view.camera.to(torch.float32)
    width, height = fit_size(camera.width, camera.height, long_side)
    buffer = render_depth(mesh, camera.resize(width, height), view.get_pose())
    shown = (buffer.face >= 0).numpy()
    corners = mesh.faces[buffer.face.numpy()[shown]]
    weights = buffer.weights.numpy()[shown][..., None]
    picture = np.full((height, width, 3), background, np.uint8)
    if mesh.uv is not None and mesh.texture is not None:
        places = torch.from_numpy((mesh.uv[corners] * weights).sum(1)).float()
        texture = torch.from_numpy(mesh.texture).movedim(-1, 0).float()
        picture[shown] = sample_map(texture, places).round().byte().numpy()
    elif mesh.colors is not None:
        picture[shown] = np.rint((mesh.colors[corners] * weights).sum(1))
    return picture
