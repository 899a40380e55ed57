"""Remove the triangles of a surface that no view supports, or that stand in space through which views look."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.mesh.depth_fusion import DepthView
from g_ray.mesh.rasterizer import move_to_camera
from g_ray.mesh.surface_mesh import SurfaceMesh, drop_small_parts, spread

SUPPORT = 0.02
"""Relative difference up to which a depth supports a vertex …"""
FREE = 0.06
"""… and by which a vertex before the depth contradicts it."""
REACH_PX = 2
"""Pixels without depth that are this near to one with depth take its value."""
CONFIRMED = 2
"""Views that must support a vertex."""
RINGS = 4
"""Holes of up to twice as many rings of triangles are kept closed."""
SMALLEST = 0.002
"""Share of all faces that a separate part needs."""


def trim_unsupported(mesh: SurfaceMesh, views: Sequence[DepthView]) -> SurfaceMesh:
    """Keep the triangles that depths support, small holes between them, and no small separate parts.

    A vertex is supported by views whose depth is its distance; it is contradicted by views whose depth lies
    behind it. It is kept where two views support it, and more
    than contradict it.
    """
    points = torch.from_numpy(mesh.vertices)
    supports, contradictions = np.zeros(len(points), np.int32), np.zeros(len(points), np.int32)
    for view in views:
        supported, contradicted = _compare(points, view)
        supports += supported
        contradictions += contradicted
    good = (supports > contradictions) & (supports >= min(CONFIRMED, len(views)))
    edges = np.unique(mesh.list_edges(), axis=0)
    # A morphological closing on the graph of the mesh.
    closed = ~spread(~spread(good, edges, RINGS), edges, RINGS) & (contradictions <= supports)
    keep = np.asarray(good | closed)
    return drop_small_parts(mesh.select_faces(np.all(keep[mesh.faces], axis=1)), SMALLEST)


def _compare(
    points: Float[Tensor, "vertex 3"], view: DepthView
) -> tuple[Bool[np.ndarray, "vertex"], Bool[np.ndarray, "vertex"]]:
    """Return which points the depth of a view supports, and which it contradicts."""
    local = move_to_camera(points, view.pose)
    camera = view.camera.to(torch.float32)
    pixels, imaged = camera.project(local)
    inside = imaged & camera.contains(pixels)
    column = pixels[:, 0].nan_to_num().long().clamp(0, camera.width - 1)
    row = pixels[:, 1].nan_to_num().long().clamp(0, camera.height - 1)
    depth = _widen(view.ray_depth.float(), view.valid)[row, column]
    distance = local.norm(dim=-1)
    known = inside & (depth > 0)
    supported = known & ((depth - distance).abs() <= SUPPORT * depth)
    contradicted = known & (distance < (1 - FREE) * depth)
    return supported.numpy(), contradicted.numpy()


def _widen(depth: Float[Tensor, "h w"], valid: Bool[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Give pixels near valid ones the mean depth of these; 0 elsewhere."""
    side = 2 * REACH_PX + 1
    sums = torch.stack([depth * valid, valid.float()])[:, None]
    total, count = torch.nn.functional.avg_pool2d(sums, side, 1, REACH_PX)[:, 0]
    return torch.where(valid, depth, torch.where(count > 0, total / count.clamp_min(1e-9), 0.0))
