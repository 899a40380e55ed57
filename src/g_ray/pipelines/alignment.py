"""Chunks have worlds of their own, up to scale; views that they share bring them into one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity, fit_similarity_to_poses

SAMPLES = 20_000
"""Pixels of the shared views that fix a similarity; more do not make it better."""
ROUNDS = 5
"""Times that pixels far from agreement lose weight."""


@dataclass(frozen=True, eq=False)
class ViewPiece:
    """What a chunk says of one view, over the pixels that the network saw."""

    view: int
    """Number of the view in the whole set."""
    rays: Float[Tensor, "h w 3"]
    """Calibrated unit rays."""
    ray_depth: Float[Tensor, "h w"]
    confidence: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]
    pose: Pose

    def points(self) -> Float[Tensor, "h w 3"]:
        return transform_points(self.rays * self.ray_depth[..., None], self.pose)

    def transform(self, similarity: Similarity) -> "ViewPiece":
        """In another world: the pose moves, depths grow with its scale."""
        depth = self.ray_depth * similarity.scale.to(self.ray_depth.dtype)
        return ViewPiece(
            self.view, self.rays, depth, self.confidence, self.valid, similarity.transform_pose(self.pose)
        )


@dataclass(frozen=True, eq=False)
class JoinedChunk:
    """A chunk in the world of the first one."""

    new: tuple[ViewPiece, ...]
    """Views that no chunk before had."""
    all: tuple[ViewPiece, ...]
    disagreement: float
    """Median distance between the two chunks' points of shared views, as a share of their depth; 0 for the first."""


def join_chunk(before: Sequence[ViewPiece], chunk: Sequence[ViewPiece]) -> JoinedChunk:
    """A chunk, moved so that the views it shares with `before` agree. A view keeps what was said first."""
    known = {piece.view: piece for piece in before}
    shared = [piece for piece in chunk if piece.view in known]
    if not before:
        return JoinedChunk(tuple(chunk), tuple(chunk), 0.0)
    if not shared:
        raise ValueError("chunks that share no view cannot be joined")
    similarity = _fit_robust_similarity(shared, [known[piece.view] for piece in shared])
    moved = tuple(piece.transform(similarity) for piece in chunk)
    new = tuple(piece for piece in moved if piece.view not in known)
    here = [piece for piece in moved if piece.view in known]
    return JoinedChunk(new, moved, _compute_disagreement(here, [known[piece.view] for piece in here]))


def _fit_robust_similarity(ours: Sequence[ViewPiece], theirs: Sequence[ViewPiece]) -> Similarity:
    source, target, weight = _collect_common_points(ours, theirs)
    similarity = fit_similarity(source, target, weight)
    for _ in range(ROUNDS):  # pixels that disagree are mostly wrong depths at edges
        off = (similarity.apply(source) - target).norm(dim=-1)
        similarity = fit_similarity(
            source, target, weight / (1 + (off / off.median().clamp(min=1e-9)).square())
        )
    return similarity


def _compute_disagreement(ours: Sequence[ViewPiece], theirs: Sequence[ViewPiece]) -> float:
    source, target, _ = _collect_common_points(ours, theirs)
    depth = torch.cat([piece.ray_depth[piece.valid] for piece in theirs]).median()
    return float((source - target).norm(dim=-1).median() / depth)


def _collect_common_points(
    ours: Sequence[ViewPiece], theirs: Sequence[ViewPiece]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"], Float[Tensor, "n"]]:
    """Points of the same pixels in both worlds, and how far both are sure of them."""
    source, target, weight = [], [], []
    for one, other in zip(ours, theirs, strict=True):
        both = one.valid & other.valid
        source.append(one.points()[both])
        target.append(other.points()[both])
        weight.append((one.confidence * other.confidence)[both].sqrt())
    points = torch.cat(source)
    step = max(1, len(points) // SAMPLES)
    return points[::step], torch.cat(target)[::step], torch.cat(weight)[::step]


# Known poses and distances: a scene is brought to them, and scored with them.


@dataclass(frozen=True)
class Alignment:
    """A similarity to the world of known poses, and how well the found ones then agree with them."""

    similarity: Similarity
    cameras: int
    position_rmse: float
    """Of camera centres, in the unit of the known poses."""
    position_extent: float
    """Root mean square distance of the known centres from their middle: what position_rmse compares with."""
    rotation_deg: float
    """Mean angle between found and known orientations."""

    def to_metrics(self) -> dict[str, float]:
        return {
            "cameras with known poses": float(self.cameras),
            "position error (RMSE)": self.position_rmse,
            "extent of the known positions (RMS)": self.position_extent,
            "rotation error (mean), deg": self.rotation_deg,
        }


def align_to_poses(estimated: Sequence[Pose], known: Sequence[Pose | None]) -> Alignment:
    """From the views whose poses are known; two of them must be apart."""
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
    """The scale that puts two cameras this far apart."""
    estimated_distance = float((first.translation - second.translation).double().norm())
    if not distance > 0 or not estimated_distance > 0:
        raise ValueError(
            f"a distance of {distance} between cameras that are {estimated_distance:g} apart gives no scale"
        )
    return Similarity.from_scale(distance / estimated_distance)


def _stack(poses: Sequence[Pose]) -> Pose:
    return Pose(torch.stack([pose.world_from_cam.double() for pose in poses]))


def _compute_angle_deg(one: Tensor, other: Tensor) -> Tensor:
    """From the distance of the matrices, which is exact for small angles, too."""
    half = (one - other).flatten(-2).norm(dim=-1) / 8**0.5
    return (2 * torch.asin(half.clamp(max=1))).rad2deg()
