"""Write the mesh of a reconstruction: mesh.glb with a texture, mesh.ply with colors of vertices."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from g_ray.export.export_options import ExportOptions
from g_ray.export.points import PointCloud
from g_ray.export.result import Reconstruction
from g_ray.media.photos import fit_size
from g_ray.media.scene_files import write_mesh_glb, write_mesh_ply
from g_ray.media.view import MaskFile, View
from g_ray.mesh.coloring import BUFFER
from g_ray.mesh.depth_fusion import DepthView
from g_ray.mesh.mesh_building import BuiltMesh, MeshSettings, OrientedPoints, build_mesh
from g_ray.mesh.texture import encode_jpeg

MESH_GLB, MESH_PLY = "mesh.glb", "mesh.ply"

# CPU seconds and bytes, measured on 5 to 50 photographs (docs: benchmarks).
CELLS_PER_PIXEL, CELLS_PER_FACE = 0.25, 2.0
"""Cells of the Poisson surface: as many as depth has points, at most those that the triangles asked for need."""
CELL_SECONDS, CELL_BYTES = 6e-5, 2000
SIGHT_SECONDS = 8e-7
"""Per pixel of every photograph, reduced to the size at which visibility is computed."""
TEXELS_PER_PIXEL, FILLED = 0.5, 0.8
"""Texels: a share of the photographs' pixels, at most a share of the largest texture."""
TEXEL_SECONDS, TEXEL_BYTES = 1.6e-6, 90


def estimate_mesh(views: Sequence[View], fused: float, options: ExportOptions) -> tuple[float, int]:
    """Estimate the CPU seconds and the bytes of a mesh from so many pixels of depth."""
    if options.mesh == "none" or not fused:
        return 0.0, 0
    cells = min(CELLS_PER_PIXEL * fused, CELLS_PER_FACE * options.faces)
    sizes = [fit_size(view.camera.width, view.camera.height, BUFFER) for view in views]
    reduced = sum(width * height for width, height in sizes)
    pixels = sum(view.camera.width * view.camera.height for view in views)
    texels = min(TEXELS_PER_PIXEL * pixels, FILLED * options.texture_size**2)
    seconds = CELL_SECONDS * cells + SIGHT_SECONDS * reduced + TEXEL_SECONDS * texels
    return seconds, round(max(CELL_BYTES * cells, TEXEL_BYTES * texels))


def write_mesh(
    reconstruction: Reconstruction,
    cloud: PointCloud,
    options: ExportOptions,
    masks: Sequence[MaskFile | None],
) -> list[str]:
    """Write mesh.glb and mesh.ply if they are asked for; returns notes: their size, or why there is no mesh."""
    folder = reconstruction.saved_folder
    for name in (MESH_GLB, MESH_PLY):
        (folder / name).unlink(missing_ok=True)
    method = options.mesh or ("none" if reconstruction.cloud is None else "poisson")
    if method == "none":
        return []
    depths, photos = collect_mesh_views(reconstruction, masks)
    settings = MeshSettings(method, options.faces, options.texture_size)
    try:
        built = build_mesh(depths, photos, orient_points(cloud, depths), settings)
    except ValueError as error:
        return [f"{MESH_GLB} is not written: {error}"]
    mesh = built.mesh
    jpeg = None if mesh.texture is None else encode_jpeg(mesh.texture)
    write_mesh_glb(folder / MESH_GLB, mesh.vertices, mesh.faces, mesh.colors, mesh.uv, jpeg)
    write_mesh_ply(folder / MESH_PLY, mesh.vertices, mesh.faces, mesh.colors)
    return [_describe_mesh(built, method)]


def collect_mesh_views(
    reconstruction: Reconstruction, masks: Sequence[MaskFile | None]
) -> tuple[list[DepthView], list[View]]:
    """Return the depth of all views, and their photographs with masks."""
    depths = [
        DepthView(view.camera, view.pose, view.ray_depth, view.valid & (view.ray_depth > 0))
        for view in reconstruction.views
    ]
    photos = [
        replace(view, image=reconstruction.get_image_path(view.name), mask=mask)
        for view, mask in zip(reconstruction.cameras(), masks, strict=True)
    ]
    return depths, photos


def orient_points(cloud: PointCloud | None, depths: Sequence[DepthView]) -> OrientedPoints:
    """Return the fused points with their normals; without them, the points of all depth maps with theirs."""
    if cloud is not None and cloud.normals is not None:
        return OrientedPoints(cloud.positions, cloud.normals.astype(np.float64))
    points, normals = zip(*(view.list_oriented_points() for view in depths), strict=True)
    return OrientedPoints(*(torch.cat(parts).numpy(force=True) for parts in (points, normals)))


def _describe_mesh(built: BuiltMesh, method: str) -> str:
    mesh = built.mesh
    painted = "colors of vertices"
    if mesh.texture is not None:
        painted = f"a texture of {mesh.texture.shape[1]}×{mesh.texture.shape[0]} texels"
    reduced = ""
    if built.fine_faces > len(mesh.faces):
        reduced = (
            f", decimated from {built.fine_faces:,}: 95% of the surface moved by less than {built.error:.2%}"
        )
    return f"{MESH_GLB} has {len(mesh.faces):,} triangles ({method}{reduced}) and {painted}"
