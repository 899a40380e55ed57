"""Covisibility of evaluation scenes, across devices and camera models, computed once and stored."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene, Framing
from g_ray_lab.sources.covisibility import CoarseView, compute_pairwise, read_covisibility

POINTS_PX = 40
"""Side of the grid of points that is looked for in other views."""
LOOKUP_PX = 224
"""Long side of the maps that it is looked for in, as published for ETH3D."""
SPARSE_LOOKUP_PX = 96
"""The same for LiDAR: at this size its points are dense."""
DECIMALS = 4


def compute_scene_covisibility(
    scene: EvaluationScene, *, sparse: bool = False
) -> Float[np.ndarray, "view view"]:
    """Return the share of frame i's pixels whose points frame j sees, at [i, j].

    Points agree within 0.17 m and half a per cent of their distance (as published), which is measured along the ray, so
    that any lens will do.
    """
    views = [_make_coarse_view(frame, SPARSE_LOOKUP_PX if sparse else LOOKUP_PX) for frame in scene.frames]
    # Rounding keeps the walks of two machines together where their last digits differ.
    return compute_pairwise(views, scene.poses).round(DECIMALS)


def _make_coarse_view(frame: EvaluationFrame, lookup_px: int) -> CoarseView:
    grid = Framing.whole(frame.camera, POINTS_PX, POINTS_PX)
    depth, valid = frame.load_depth(grid)
    points = depth[..., None] * RayMap.from_camera(grid.apply(frame.camera).to(torch.float32)).directions
    scale = lookup_px / max(frame.camera.width, frame.camera.height)
    size = [max(2, round(scale * side)) for side in (frame.camera.width, frame.camera.height)]
    lookup = Framing.whole(frame.camera, *size)
    return CoarseView(
        points, valid, lookup.apply(frame.camera).to(torch.float32), frame.load_depth(lookup)[0]
    )


def load_or_compute(
    folder: Path, scene: EvaluationScene, *, sparse: bool = False
) -> Float[np.ndarray, "view view"]:
    """Return the matrix that is stored for this version of a scene; compute and store it if there is none."""
    name = f"{scene.dataset}--{scene.name.replace('/', '--')}--{scene.fingerprint()}.npy"
    path = folder / name
    if not path.is_file():
        matrix = compute_scene_covisibility(scene, sparse=sparse)
        with atomic_path(path) as scratch, scratch.open("wb") as file:
            np.save(file, matrix)
    return np.asarray(read_covisibility(path, len(scene)))
