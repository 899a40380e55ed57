"""Chunks have worlds of their own, up to scale; views that they share bring them into one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity

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
