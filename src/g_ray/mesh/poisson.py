"""Surface through points with normals, and decimation of its triangles: COLMAP's Poisson reconstruction (Kazhdan and
Hoppe 2013) and quadric simplification (Garland and Heckbert 1997), which work on files."""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8

from g_ray.media.scene_files import read_mesh_ply, write_mesh_ply, write_ply
from g_ray.mesh.surface_mesh import SurfaceMesh
from g_ray.runtime.interruptible import run_interruptibly

MIN_DEPTH, MAX_DEPTH = 6, 11
"""Levels of the octree."""
CORE = 0.005
"""Share of points on either side of each axis that does not count for the extent of a scene."""
MARGIN = 1.2
"""Side of the octree's cube in extents of the points; Poisson's own is 1.1."""


def reconstruct_poisson(
    points: Float[np.ndarray, "point 3"], normals: Float[np.ndarray, "point 3"], cell: float, faces: int
) -> SurfaceMesh:
    """Reconstruct a closed surface through points whose normals point outwards, with the finest details of size `cell`
    or, if these are more than a mesh of `faces` triangles can show, of twice the size, four times, ….

    It also closes what no point is near: trim it afterwards. Points far from all others are left out. ValueError for
    fewer than 100 points.
    """
    inside = _find_core(points)
    points, normals = points[inside], normals[inside]
    if len(points) < 100:
        raise ValueError(f"{len(points)} points are too few for a surface: give at least 100")
    middle, extent = (points.min(0) + points.max(0)) / 2, float(np.ptp(points, axis=0).max())
    depth = int(np.clip(math.ceil(math.log2(MARGIN * extent / cell)), MIN_DEPTH, MAX_DEPTH))
    # A cell of the octree becomes two triangles, or somewhat fewer.
    while depth > MIN_DEPTH and _count_cells(points, MARGIN * extent / 2 ** (depth - 1)) >= faces:
        depth -= 1
    with tempfile.TemporaryDirectory(prefix="g-ray-mesh-") as folder:
        source, target = Path(folder) / "points.ply", Path(folder) / "mesh.ply"
        colors: UInt8[np.ndarray, "point 3"] = np.zeros((len(points), 3), np.uint8)
        # Around the origin, because files have single precision.
        write_ply(source, points - middle, colors, np.ones(len(points)), normals)
        run_interruptibly(lambda: _run_poisson(source, target, depth))
        vertices, corners = read_mesh_ply(target)
    return SurfaceMesh(vertices + middle, corners)


def _count_cells(points: Float[np.ndarray, "point 3"], side: float) -> int:
    """Count the cells of a grid that hold points."""
    column, row, layer = np.floor((points - points.min(0)) / side).astype(np.int64).T
    return len(np.unique((column << 40) + (row << 20) + layer))


def _find_core(points: np.ndarray) -> np.ndarray:
    """Find points within twice the extent of nearly all of them: one far away would make all cells coarse."""
    if not len(points):
        return np.zeros(0, bool)
    low, high = np.quantile(points, [CORE, 1 - CORE], axis=0)
    reach = (high - low).max()
    return ((points >= low - reach / 2) & (points <= high + reach / 2)).all(1)


def _run_poisson(source: Path, target: Path, depth: int) -> None:
    import pycolmap

    options = pycolmap.PoissonMeshingOptions(
        depth=depth, trim=0.0, color=False, num_threads=torch.get_num_threads()
    )
    pycolmap.poisson_meshing(source, target, options)


def decimate(mesh: SurfaceMesh, faces: int) -> SurfaceMesh:
    """Collapse edges, those first that move the surface least, until at most `faces` triangles remain."""
    if len(mesh.faces) <= faces:
        return mesh
    middle = mesh.vertices.mean(0)
    with tempfile.TemporaryDirectory(prefix="g-ray-mesh-") as folder:
        source, target = Path(folder) / "fine.ply", Path(folder) / "coarse.ply"
        write_mesh_ply(source, mesh.vertices - middle, mesh.faces)
        run_interruptibly(lambda: _run_simplification(source, target, faces / len(mesh.faces)))
        vertices, corners = read_mesh_ply(target)
    return SurfaceMesh(vertices + middle, corners)


def _run_simplification(source: Path, target: Path, ratio: float) -> None:
    import pycolmap

    level, pycolmap.logging.minloglevel = pycolmap.logging.minloglevel, pycolmap.logging.ERROR.value
    try:
        options = pycolmap.MeshSimplificationOptions(
            target_face_ratio=ratio, num_threads=torch.get_num_threads()
        )
        pycolmap.simplify_mesh(source, target, options)
    finally:
        pycolmap.logging.minloglevel = level
