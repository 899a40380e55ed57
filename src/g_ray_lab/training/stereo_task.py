"""Learned stereo: true places among the hypotheses, distances at three resolutions, and how sure to be."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.stereo.sweep_network import HYPOTHESES, TOLERANCE, SweepEstimate, SweepNetwork
from g_ray_lab.textured import StereoBatch, StereoSet, StereoViews
from g_ray_lab.training.task import Task

MAX_STEPS = 6.0
"""Errors count up to so many steps of the first sweep: occluded pixels may be anywhere."""
MAX_SHOWN = 3


@dataclass
class StereoTask(Task):
    """A sweep network on stereo rooms."""

    data: StereoViews
    batch_size: int

    def build_model(self) -> SweepNetwork:
        return SweepNetwork()

    def make_batch(self, step: int, rank: int, world: int) -> StereoBatch:
        return self.data.make_batch(step, rank)

    def describe_batch(self, batch: StereoBatch) -> str:
        return ", ".join(set_.name for set_ in batch.sets)

    def compute_loss(self, model: nn.Module, batch: StereoBatch) -> tuple[Tensor, dict[str, Tensor]]:
        estimate = _run(model, batch.sets)
        terms = compute_stereo_loss(estimate, batch.sets)
        errors = torch.cat([measure_errors(estimate.full[i], set_) for i, set_ in enumerate(batch.sets)])
        logged = {**terms, "error": errors.mean(), "within": (errors < TOLERANCE).float().mean()}
        return torch.stack(list(terms.values())).sum(), {k: v.detach() for k, v in logged.items()}

    def validate(self, model: nn.Module) -> float:
        """Return the share of pixels in held-out rooms that are off by more than TOLERANCE."""
        wrong = []
        for set_ in self._list_held_out(model):
            errors = measure_errors(_run(model, [set_]).full[0], set_)
            wrong.append(float((errors >= TOLERANCE).float().mean()))
        return sum(wrong) / len(wrong)

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"]:
        """Return for some rooms the reference, its true and estimated place and its confidence; near is bright."""
        pictures = []
        for set_ in self._list_held_out(model)[:MAX_SHOWN]:
            estimate = _run(model, [set_])
            confidence = F.interpolate(estimate.confidence_logits.sigmoid()[None], scale_factor=2.0)[0, 0]
            maps = (set_.compute_places() * set_.valid, estimate.full[0], confidence)
            pictures += [set_.images[0], *(values.clamp(0, 1).expand(3, -1, -1) for values in maps)]
        return torch.stack(pictures)

    def _list_held_out(self, model: nn.Module) -> list[StereoSet]:
        from g_ray_lab.training.learner import move_to_device

        device = next(model.parameters()).device
        with torch.autocast(device.type, enabled=False):  # rooms are rendered in full precision
            return move_to_device(self.data.make_held_out().sets, device)


def _run(model: nn.Module, sets: list[StereoSet]) -> SweepEstimate:
    images, limits = [set_.images for set_ in sets], torch.stack([set_.limits for set_ in sets])
    return model(images, [set_.list_sights() for set_ in sets], limits)


def measure_errors(places: Float[Tensor, "h w"], set_: StereoSet) -> Float[Tensor, "n"]:
    """Measure the relative errors of distances at all valid pixels."""
    far, near = set_.limits
    distance = 1 / (far + (near - far) * places).clamp_min(1e-4)
    return ((distance - set_.ray_depth).abs() / set_.ray_depth.clamp_min(1e-6))[set_.valid]


def compute_stereo_loss(estimate: SweepEstimate, sets: list[StereoSet]) -> dict[str, Tensor]:
    """Return the terms whose sum is minimized."""
    target = torch.stack([set_.compute_places() for set_ in sets])
    valid = torch.stack([set_.valid for set_ in sets]) & (target > 0) & (target < 1)
    # One pixel of each block stands for it: means would lie between surfaces.
    quarter, quarter_valid = target[:, 1::4, 1::4], _reduce_mask(valid, 4)
    half, half_valid = target[:, ::2, ::2], _reduce_mask(valid, 2)
    steps = HYPOTHESES - 1
    span = estimate.fine_places[:, -1] - estimate.fine_places[:, 0]
    fine = (half - estimate.fine_places[:, 0]) / span * (estimate.fine_logits.shape[1] - 1)
    inside = half_valid & (fine > 0) & (fine < estimate.fine_logits.shape[1] - 1)
    return {
        "coarse_entropy": _cross_entropy(estimate.coarse_logits, quarter * steps, quarter_valid),
        "coarse": 0.5 * _average_error(estimate.coarse, quarter, quarter_valid),
        "start": 0.5 * _average_error(estimate.start, half, half_valid),
        "fine_entropy": 0.5 * _cross_entropy(estimate.fine_logits, fine, inside),
        "fine": 0.5 * _average_error(estimate.fine, half, half_valid),
        "full": _average_error(estimate.full, target, valid),
        "confidence": _judge_confidence(estimate, sets),
    }


def _judge_confidence(estimate: SweepEstimate, sets: list[StereoSet]) -> Tensor:
    """Cross entropy of the confidence with whether the distance is right; that of the sky never is."""
    terms = []
    for logits, places, set_ in zip(estimate.confidence_logits, estimate.full.detach(), sets, strict=True):
        right = torch.zeros_like(set_.ray_depth)
        right[set_.valid] = (measure_errors(places, set_) < TOLERANCE).to(right)
        # A share of the four pixels that one of half size stands for.
        judged = set_.valid | set_.ray_depth.isinf()
        share, known = (F.avg_pool2d(part.to(right)[None], 2)[0] for part in (right, judged))
        loss = F.binary_cross_entropy_with_logits(logits, share, reduction="none")
        terms.append((loss * (known > 0.99)).sum() / (known > 0.99).sum().clamp_min(1))
    return torch.stack(terms).mean()


def _reduce_mask(valid: Bool[Tensor, "batch h w"], factor: int) -> Bool[Tensor, "batch _ _"]:
    return F.avg_pool2d(valid[:, None].float(), factor)[:, 0] > 0.99


def _average_error(
    places: Float[Tensor, "batch h w"], target: Float[Tensor, "batch h w"], valid: Bool[Tensor, "batch h w"]
) -> Tensor:
    """Mean absolute error in steps of the first sweep, each up to MAX_STEPS."""
    error = ((places - target).abs() * (HYPOTHESES - 1)).clamp(max=MAX_STEPS)
    return (error * valid).sum() / valid.sum().clamp_min(1)


def _cross_entropy(
    logits: Float[Tensor, "batch n h w"],
    position: Float[Tensor, "batch h w"],
    valid: Bool[Tensor, "batch h w"],
) -> Tensor:
    """Cross entropy with the two hypotheses that a position lies between, weighted by how near it is to each."""
    low = position.floor().clamp(0, logits.shape[1] - 2)
    share = (position - low).clamp(0, 1)
    likely = logits.log_softmax(1)
    first = likely.gather(1, low.long()[:, None])[:, 0]
    second = likely.gather(1, low.long()[:, None] + 1)[:, 0]
    loss = -(first * (1 - share) + second * share)
    return (loss * valid).sum() / valid.sum().clamp_min(1)
