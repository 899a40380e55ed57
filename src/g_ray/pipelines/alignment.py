"""Bring chunks of a scene into one world, and the scene to known poses or a known distance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.export.reconstruction import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity, fit_similarity_to_poses

SAMPLES = 20_000
"""Pixels of the shared views that determine a similarity; more do not make it better."""
ROUNDS = 5
"""Times that pixels far from agreement lose weight."""
MAX_DISAGREEMENT = 0.1
"""Share of depth by which two chunks may disagree before users are told."""


@dataclass(frozen=True, eq=False)
class JoinedChunk:
    """A chunk in the world of the first one."""

    new: tuple[ReconstructedView, ...]
    """Views that no earlier chunk had."""
    all: tuple[ReconstructedView, ...]
    disagreement: float
    """Median distance between the two chunks' points of shared views, as a share of their depth; 0 for the first."""


def join_chunks(chunks: Iterable[Sequence[ReconstructedView]]) -> tuple[list[ReconstructedView], list[str]]:
    """Join chunks that overlap, one after the other; returns all views in the first one's world, and notes."""
    views: list[ReconstructedView] = []
    notes = []
    before: tuple[ReconstructedView, ...] = ()
    for number, chunk in enumerate(chunks, 1):
        joined = join_chunk(before, chunk)
        before = joined.all
        views += joined.new
        if joined.disagreement > MAX_DISAGREEMENT:
            notes.append(
                f"chunk {number} disagrees with the one before by {100 * joined.disagreement:.0f} % of depth"
            )
    return views, notes


def join_chunk(before: Sequence[ReconstructedView], chunk: Sequence[ReconstructedView]) -> JoinedChunk:
    """Move a chunk so that the views it shares with `before` agree. A shared view stays as it was in `before`."""
    known = {view.name: view for view in before}
    shared = [view for view in chunk if view.name in known]
    if not before:
        return JoinedChunk(tuple(chunk), tuple(chunk), 0.0)
    if not shared:
        raise ValueError("chunks that share no view cannot be joined")
    similarity = _fit_robust_similarity(shared, [known[view.name] for view in shared])
    moved = tuple(view.transform(similarity) for view in chunk)
    new = tuple(view for view in moved if view.name not in known)
    here = [view for view in moved if view.name in known]
    return JoinedChunk(new, moved, _compute_disagreement(here, [known[view.name] for view in here]))


def _fit_robust_similarity(
    ours: Sequence[ReconstructedView], theirs: Sequence[ReconstructedView]
) -> Similarity:
    source, target, weight = _collect_common_points(ours, theirs)
    similarity = fit_similarity(source, target, weight)
    # Iteratively reweighted least squares with Cauchy weights: pixels that disagree are mostly wrong depths at edges.
    for _ in range(ROUNDS):
        off = (similarity.apply(source) - target).norm(dim=-1)
        similarity = fit_similarity(
            source, target, weight / (1 + (off / off.median().clamp(min=1e-9)).square())
        )
    return similarity


def _compute_disagreement(ours: Sequence[ReconstructedView], theirs: Sequence[ReconstructedView]) -> float:
    source, target, _ = _collect_common_points(ours, theirs)
    depth = torch.cat([view.ray_depth[view.valid] for view in theirs]).median()
    return float((source - target).norm(dim=-1).median() / depth)


def _collect_common_points(
    ours: Sequence[ReconstructedView], theirs: Sequence[ReconstructedView]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"], Float[Tensor, "n"]]:
    """Return points of the same pixels in both worlds, and the geometric mean of their confidences."""
    source, target, weight = [], [], []
    for one, other in zip(ours, theirs, strict=True):
        both = one.valid & other.valid
        source.append(one.points()[both])
        target.append(other.points()[both])
        weight.append((one.confidence * other.confidence)[both].sqrt())
    points = torch.cat(source)
    step = max(1, len(points) // SAMPLES)
    return points[::step], torch.cat(target)[::step], torch.cat(weight)[::step]


# Known poses and distances


@dataclass(frozen=True)
class Alignment:
    """A similarity to the world of known poses, and how well the estimated ones then agree with them."""

    similarity: Similarity
    cameras: int
    position_rmse: float
    """Of camera centres, in the unit of the known poses."""
    position_extent: float
    """Root mean square distance of the known centres from their middle: what position_rmse compares with."""
    rotation_deg: float
    """Mean angle between estimated and known orientations."""

    def to_metrics(self) -> dict[str, float]:
        """Return the agreement by names for people."""
        return {
            "cameras with known poses": float(self.cameras),
            "position error (RMSE)": self.position_rmse,
            "extent of the known positions (RMS)": self.position_extent,
            "rotation error (mean), deg": self.rotation_deg,
        }


def align_to_poses(estimated: Sequence[Pose], known: Sequence[Pose | None]) -> Alignment:
    """Align estimated poses to those that are known; at least two, at different places."""
    pairs = [(one, other) for one, other in zip(estimated, known, strict=True) if other is not None]
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} known poses cannot align a scene: two or more can")
    ours, theirs = (_stack(side) for side in zip(*pairs, strict=True))
    similarity = fit_similarity_to_poses(ours, theirs)
    moved = similarity.transform_pose(ours)
    off = (moved.translation - theirs.translation).square().sum(-1)
    extent = (theirs.translation - theirs.translation.mean(0)).square().sum(-1)
    return Alignment(
        similarity,
        len(pairs),
        float(off.mean().sqrt()),
        float(extent.mean().sqrt()),
        float(_compute_angle_deg(moved.rotation, theirs.rotation).mean()),
    )


def scale_to_distance(first: Pose, second: Pose, distance: float) -> Similarity:
    """Return the scale that puts two cameras this far apart."""
    estimated_distance = float((first.translation - second.translation).double().norm())
    if not distance > 0 or not estimated_distance > 0:
        raise ValueError(
            f"a distance of {distance} between cameras that are {estimated_distance:g} apart gives no scale"
        )
    return Similarity.from_scale(distance / estimated_distance)


def _stack(poses: Sequence[Pose]) -> Pose:
    return Pose(torch.stack([pose.world_from_cam.double() for pose in poses]))


def _compute_angle_deg(one: Tensor, other: Tensor) -> Tensor:
    """Return the angle between rotations, by ‖A − B‖ = √8 sin(angle / 2), which is accurate for small angles too."""
    half = (one - other).flatten(-2).norm(dim=-1) / 8**0.5
    return (2 * torch.asin(half.clamp(max=1))).rad2deg()
