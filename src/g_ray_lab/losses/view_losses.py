"""The losses of novel-view synthesis and of reconstruction: pure functions that return a value per sample."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import compute_mean_distance, transform_points
from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.runtime.device import disable_autocast, promote_to_float32
from g_ray_lab.losses import NVSLossSettings, ReconstructionWeights

# Novel-view synthesis: L = L_MSE + 0.5 L_LPIPS (paper, appendix "Novel View Synthesis")


@dataclass(frozen=True)
class NVSLoss:
    """Terms of every scene, each averaged over its targets."""

    mse: Float[Tensor, "batch"]
    perceptual: Float[Tensor, "batch"]  # 0 where it was left out
    total: Float[Tensor, "batch"]


def nvs_loss(
    truth: Float[Tensor, "batch target 3 h w"],
    predicted: Float[Tensor, "batch target 3 h w"],
    *,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None,
    weight: float = NVSLossSettings.lpips,
) -> NVSLoss:
    """Compute the terms of every scene.

    `perceptual` is LPIPS, a function of (truth, predicted) that returns a value per image. None, which has to be given
    explicitly, leaves the squared error alone.
    """
    predicted = predicted.to(truth.dtype)
    squared = (truth - predicted).square().mean((-4, -3, -2, -1))
    if perceptual is None:
        return NVSLoss(squared, torch.zeros_like(squared), squared)
    distance = perceptual(truth, predicted).mean(-1)
    return NVSLoss(squared, distance, squared + weight * distance)


# Reconstruction: poses, and points in the first view's frame and in every camera's own
#
# Ground truth is normalized to the first view's frame and to the mean distance of its points (appendix "3D
# Reconstruction").

SLACK = 1e-3
"""Added to the number of valid pixels."""

SCALES = (1e-6, 1e6)
"""A mean distance outside of these is taken for one of them."""

FARTHEST = 100.0
"""Coordinates are clamped at this many mean distances: the sky must not rule the loss."""


@runtime_checkable
class Truth(Protocol):
    """Anything with these, such as a batch of `g_ray_lab.sources`: any frame, any unit."""

    @property
    def world_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def camera_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def poses(self) -> Pose: ...
    @property
    def valid(self) -> Bool[Tensor, "set view h w"]: ...


@dataclass(frozen=True)
class NormalizedTruth:
    """In the frame of the first view, at the scale of the set."""

    world_points: Float[Tensor, "set view h w 3"]
    camera_points: Float[Tensor, "set view h w 3"]
    poses: Pose
    valid: Bool[Tensor, "set view h w"]
    scale: Float[Tensor, "set"]  # what was divided by, in the truth's own unit


@torch.no_grad()
def normalize_truth(truth: Truth) -> NormalizedTruth:
    """Divide by the mean world-point distance from the first camera (appendix "3D Reconstruction").

    Predictions are not normalized: the network has to learn this scale.
    """
    with disable_autocast(truth.world_points):
        first = truth.poses.to(promote_to_float32(truth.world_points).dtype)
        # Into the first view's frame before distances are measured: a data set's world may have any origin.
        world = transform_points(promote_to_float32(truth.world_points), first[..., :1].inverse())
        scale = compute_mean_distance(world, truth.valid, slack=SLACK).clamp(*SCALES)
        poses = first.relative_to_first().scale_translation(1 / scale[..., None])
    return NormalizedTruth(
        _scale_and_clamp(world, scale),
        _scale_and_clamp(promote_to_float32(truth.camera_points), scale),
        poses,
        truth.valid,
        scale,
    )


def _scale_and_clamp(points: Tensor, scale: Tensor) -> Tensor:
    """Finite everywhere: what is not valid may hold anything, and 0 · NaN is NaN."""
    return torch.nan_to_num(points / scale[:, None, None, None, None]).clamp(-FARTHEST, FARTHEST)


# A mean without the largest few per cent.


MANY = 1000
"""Fewer values than this are not filtered."""

LARGEST = 100.0
"""Where a value stops to count more. VGGT applies it only above `MANY` values, where a small batch with one far point
would have a loss hundreds of times that of a large one."""


def mean_below_quantile(values: Float[Tensor, "value"], quantile: float) -> Float[Tensor, ""]:
    """Mean of the values below their own quantile, of all of them where more than `MANY` would not remain.

    The quantile is the value of rank round(q (n − 1)), without interpolation. No values at all are 0.
    """
    if values.numel() == 0:
        return values.sum()
    values = values.clamp(max=LARGEST)
    if values.numel() <= MANY:
        return values.mean()
    rank = round(quantile * (values.numel() - 1))
    # kthvalue, not torch.quantile, which refuses more than 16 million values.
    kept = values < values.detach().kthvalue(rank + 1).values
    return values[kept].mean() if int(kept.sum()) > MANY else values.mean()


# Normal-based gradient loss: neighboring points must span the right surface, at several scales.


SMALLEST_NORMAL = 1e-8
"""Triangles with less than (half) this area have no direction; it also bounds the gradient of those a little above."""

FEWEST_CORNERS = 10
"""Fewer normals than this are no surface."""


def multi_scale_normal_loss(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    valid: Bool[Tensor, "*view h w"],
    *,
    scales: int,
) -> Float[Tensor, ""]:
    """Mean of the loss on all pixels, on every second, on every fourth, … of each row and column."""
    steps = [(..., slice(None, None, 2**scale), slice(None, None, 2**scale)) for scale in range(scales)]
    losses = [
        normal_loss(truth[(*at, slice(None))], predicted[(*at, slice(None))], valid[at]) for at in steps
    ]
    return torch.stack(losses).mean()


def normal_loss(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    valid: Bool[Tensor, "*view h w"],
) -> Float[Tensor, ""]:
    """Mean of 1 − cos between true and predicted normals whose three pixels are valid."""
    usable = find_valid_corners(valid)
    ours, theirs = compute_corner_normals(truth), compute_corner_normals(predicted)
    cosine = _dot(ours, theirs) / (_norm(ours) * _norm(theirs))
    count = usable.sum()
    mean = torch.where(usable, 1 - cosine, 0).sum() / count.clamp(min=1)
    return mean * (count >= FEWEST_CORNERS)


Vectors = tuple[Float[Tensor, "2 2 *view rows columns"], ...]
"""x, y, z apart: several times faster on a CPU than a last axis of three."""


def compute_corner_normals(points: Float[Tensor, "*view h w 3"]) -> Vectors:
    """Cross products at the four corners of every 2×2 block: the way down times the way right, along both sides.

    These are the normals between each pixel's four pairs of adjacent neighbors, counted block by block; the first
    axis separates the left and right way down, the second the upper and lower way right.
    """
    (dx, rx), (dy, ry), (dz, rz) = (_compute_steps(part.contiguous()) for part in points.unbind(-1))
    return dy * rz - dz * ry, dz * rx - dx * rz, dx * ry - dy * rx


def find_valid_corners(valid: Bool[Tensor, "*view h w"]) -> Bool[Tensor, "2 2 *view rows columns"]:
    """Return whether a corner and both its neighbors are valid: all of a block but the pixel across."""
    a, b = valid[..., :-1, :-1], valid[..., :-1, 1:]
    c, d = valid[..., 1:, :-1], valid[..., 1:, 1:]
    return torch.stack([a & b & c, a & c & d, a & b & d, b & c & d]).unflatten(0, (2, 2))


def _compute_steps(part: Float[Tensor, "*view h w"]) -> tuple[Tensor, Tensor]:
    """Steps down on the left and right of every block [2, 1, …], and right at its top and bottom [1, 2, …]."""
    down, right = part.diff(dim=-2), part.diff(dim=-1)
    left_right = torch.stack([down[..., :-1], down[..., 1:]])
    top_bottom = torch.stack([right[..., :-1, :], right[..., 1:, :]])
    return left_right[:, None], top_bottom[None]


def _dot(first: Vectors, second: Vectors) -> Tensor:
    return sum((a * b for a, b in zip(first[1:], second[1:], strict=True)), first[0] * second[0])


def _norm(vectors: Vectors) -> Tensor:
    # Cut before the root, whose slope at 0 is infinite.
    return _dot(vectors, vectors).clamp(min=SMALLEST_NORMAL**2).sqrt()


# Pointmap loss: confidence-weighted L2 regression, plain L2 regression, and normals.


FEWEST_POINTS = 100
"""A batch with fewer valid pixels teaches nothing about points."""


@dataclass(frozen=True)
class PointTerms:
    """Means over the valid pixels of a whole batch."""

    confidence: Float[Tensor, ""]
    regression: Float[Tensor, ""]
    normals: Float[Tensor, ""]

    @property
    def total(self) -> Float[Tensor, ""]:
        return self.confidence + self.regression + self.normals


def confidence_weighted_loss(
    error: Float[Tensor, "*shape"], confidence: Float[Tensor, "*shape"], *, gamma: float, alpha: float
) -> Float[Tensor, "*shape"]:
    """γ c r − α log c: smallest at c = α / (γ r), so that a confidence learns the inverse of its error."""
    return gamma * error * confidence - alpha * confidence.log()


def pointmap_loss(
    truth: Float[Tensor, "set view h w 3"],
    predicted: Float[Tensor, "set view h w 3"],
    confidence: Float[Tensor, "set view h w"],
    valid: Bool[Tensor, "set view h w"],
    *,
    gamma: float,
    alpha: float,
    quantile: float,
    scales: int,
) -> PointTerms:
    """The terms of one pointmap, each with its worst pixels left out but for normals (appendix "3D Reconstruction").

    Errors of the whole batch compete for the quantile, not those of an image.
    """
    if int(valid.sum()) < FEWEST_POINTS:
        # Zero, but with a graph: DDP waits for a gradient of every parameter.
        nothing = 0 * (predicted.sum() + confidence.sum())
        return PointTerms(nothing, nothing, nothing)
    # Euclidean, not squared: a few wrong points must not outweigh an image.
    error = torch.linalg.vector_norm(predicted - truth, dim=-1)[valid]
    weighted = confidence_weighted_loss(error, confidence[valid], gamma=gamma, alpha=alpha)
    return PointTerms(
        confidence=mean_below_quantile(weighted, quantile),
        regression=mean_below_quantile(error, quantile),
        normals=multi_scale_normal_loss(truth, predicted, valid, scales=scales),
    )


# Camera loss: L1 of translation and quaternion.


LARGEST_POSE_ERROR = 100.0
"""Where the error of a translation's coordinate stops to grow."""

FEWEST_POSES = 100
"""Sets whose first view has no more valid pixels than this have no scale to speak of: their poses are not used."""


@dataclass(frozen=True)
class CameraTerms:
    """Means over sets, views and coordinates."""

    translation: Float[Tensor, ""]
    rotation: Float[Tensor, ""]

    @property
    def total(self) -> Float[Tensor, ""]:
        return self.translation + self.rotation


def camera_loss(
    translation: Float[Tensor, "set view 3"],
    quaternion: Float[Tensor, "set view 4"],
    truth: Pose,
    usable: Bool[Tensor, "set"],
) -> CameraTerms:
    """|t̂ − t| and |q̂ − q| of the final prediction, absolute poses world_from_cam (appendix "3D Reconstruction").

    The true quaternion (x, y, z, w) has w ≥ 0, which is all that is done about q and −q being one rotation: views
    of a set look less than half a turn apart, and a network learns the sign.
    """
    shift = (translation - truth.translation).abs().clamp(max=LARGEST_POSE_ERROR)
    turn = (quaternion - quaternion_from_rotation(truth.rotation)).abs()
    return CameraTerms(_mean_of_usable(shift, usable), _mean_of_usable(turn, usable))


def _mean_of_usable(
    values: Float[Tensor, "set view channel"], usable: Bool[Tensor, "set"]
) -> Float[Tensor, ""]:
    """0, and still a function of the prediction, where no set is usable."""
    return torch.where(usable, values.mean((1, 2)), 0).sum() / usable.sum().clamp(min=1)


# The sum.


@runtime_checkable
class PredictedGeometry(Protocol):
    """What a network has to give. Poses are world_from_cam with the first view as the world."""

    @property
    def world_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def world_confidence(self) -> Float[Tensor, "set view h w"]: ...
    @property
    def camera_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def camera_confidence(self) -> Float[Tensor, "set view h w"]: ...
    @property
    def translation(self) -> Float[Tensor, "set view 3"]: ...
    @property
    def quaternion(self) -> Float[Tensor, "set view 4"]: ...


PAPER = ReconstructionWeights()


@dataclass(frozen=True)
class ReconstructionLoss:
    """All terms, and the total that is minimized."""

    camera: CameraTerms
    camera_points: PointTerms
    world_points: PointTerms
    total: Float[Tensor, ""]

    def named_terms(self) -> dict[str, Float[Tensor, ""]]:
        """Terms before their weights, for a log: translation, rotation, world_confidence, …, total."""
        parts = {"": self.camera, "camera_": self.camera_points, "world_": self.world_points}
        terms = {
            f"{prefix}{name}": value for prefix, part in parts.items() for name, value in vars(part).items()
        }
        return {**terms, "total": self.total}


def reconstruction_loss(
    prediction: PredictedGeometry, truth: Truth, weights: ReconstructionWeights = PAPER
) -> ReconstructionLoss:
    """Compute λ L_camera + L_camera points + L_world points, in float32 even under autocast."""
    known = normalize_truth(truth)
    with disable_autocast(known.world_points):
        camera = camera_loss(
            promote_to_float32(prediction.translation),
            promote_to_float32(prediction.quaternion),
            known.poses,
            usable=known.valid[:, 0].sum((-2, -1)) > FEWEST_POSES,
        )
        settings = {
            "gamma": weights.gamma,
            "alpha": weights.alpha,
            "quantile": weights.quantile,
            "scales": weights.normal_scales,
        }
        in_camera, in_world = (
            pointmap_loss(
                points, promote_to_float32(guess), promote_to_float32(sure), known.valid, **settings
            )
            for points, guess, sure in (
                (known.camera_points, prediction.camera_points, prediction.camera_confidence),
                (known.world_points, prediction.world_points, prediction.world_confidence),
            )
        )
        total = weights.camera * camera.total + in_camera.total + in_world.total
    return ReconstructionLoss(camera, in_camera, in_world, total)
