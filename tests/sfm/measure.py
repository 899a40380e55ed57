"""Errors of estimated poses against true ones."""

import torch

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_to_poses
from g_ray.sfm import SparseScene


def compare_poses(scene: SparseScene, truth: Pose) -> tuple[float, float]:
    """Largest position error over the extent of the true positions, largest rotation error in degrees, after Sim(3)."""
    target = truth.to(torch.float64)[torch.tensor(scene.registered)]
    moved = fit_similarity_to_poses(scene.stack_poses(), target).transform_pose(scene.stack_poses())
    centers = target.translation
    extent = torch.cdist(centers, centers).max()
    offset = torch.linalg.vector_norm(moved.translation - centers, dim=-1)
    return float(offset.max() / extent), float(measure_angles_deg(moved, target).max())


def measure_angles_deg(first: Pose, second: Pose) -> torch.Tensor:
    between = first.rotation.mT @ second.rotation
    cosine = (between.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    return torch.rad2deg(torch.acos(cosine.clamp(-1, 1)))
