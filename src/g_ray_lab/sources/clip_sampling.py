"""Draw the frames of a clip that form a scene, and normalize their poses (as LVSM trains on RealEstate10K)."""

import hashlib

import numpy as np

from g_ray.geometry.pose import Pose
from g_ray.synthesis.synthesizer import compute_baseline_scale

STANDING = 1e-2
"""A path shorter than this is not scaled: its direction is noise."""


def draw_frames(
    random: np.random.Generator, frames: int, gap: tuple[int, int], contexts: int, targets: int
) -> list[int]:
    """Draw contexts, then targets: contexts at both ends of a range of U{gap} frames, all others strictly between.

    The range is never longer than the clip.
    """
    length = int(random.integers(gap[0], min(gap[1], frames - 1) + 1))
    first = int(random.integers(frames - length))
    between = first + 1 + random.choice(length - 1, contexts - 2 + targets, replace=False)
    inner, wanted = between[: contexts - 2], between[contexts - 2 :]
    return [first, *(int(n) for n in inner), first + length, *(int(n) for n in wanted)]


def check_sampling(gap: tuple[int, int], contexts: int, targets: int) -> None:
    """Raise ValueError for settings with which `draw_frames` can fail."""
    if contexts < 2 or targets < 1:
        raise ValueError(f"{contexts} contexts and {targets} targets: a clip needs at least 2 and 1")
    if not contexts + targets - 1 <= gap[0] <= gap[1]:
        raise ValueError(
            f"frame gap {gap} must be a range, and leave room for the {contexts + targets - 2} frames between its ends"
        )


def normalize_poses(poses: Pose, contexts: int) -> Pose:
    """Make the first context the world, and scale the last one to distance 1 (unless the camera stood still)."""
    relative = poses.relative_to_first()
    baseline = relative.translation[..., contexts - 1, :].norm(dim=-1)
    scale = 1 / baseline.where(baseline > STANDING, 1.0)
    return relative.scale_translation(scale[..., None].expand(relative.batch_shape))


def hash_to_unit(key: str) -> float:
    """Hash a name to a number in [0, 1): splits made with it do not depend on the other names."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "big") / 2**56


# Poses of unknown scale, as structure from motion gives them.


def scale_to_baseline(poses: Pose, contexts: int, baseline: float | int) -> Pose:
    """Make the first context the world, and scale so that the farthest other context is `baseline` away from it.

    Poses are [*batch, view], contexts first. Where all contexts stand in one place the scale stays as it is.
    """
    relative = poses.relative_to_first()
    return relative.scale_translation(
        compute_baseline_scale(relative, contexts, baseline)[..., None].expand(relative.batch_shape)
    )
