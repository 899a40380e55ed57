"""Measure what position encodings cost (time relative to plain attention, memory kept for backward) and are worth.

Coordinates are compared by how well their positional score reflects the angle between two rays, up to 240°.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from g_ray.cameras.pinhole import Pinhole
from g_ray.coordinates import COORDINATES, RayCoordinate
from g_ray.encodings import encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.encodings.rotary import make_geometric_frequencies, round_to_period
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.rays.views import Tokens, Views

NAMES = ("rope", "gray", "gta", "gta_gray", "prope", "rayrope", "rayrope_gray")
HEADS, HEAD_DIM, PATCH = 8, 144, 8  # 144 is divisible by the channel groups of every encoding in NAMES

Operator = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Job = TypeVar("Job", bound=Hashable)


@dataclass(frozen=True)
class Inputs:
    """Inputs of one attention layer; `raw` stands for the output of RayRoPE's depth predictor."""

    q: Tensor
    k: Tensor
    v: Tensor
    raw: Tensor
    grad: Tensor

    @classmethod
    def draw(cls, batch: int, tokens: int) -> "Inputs":
        """Draw random inputs from torch's global generator."""
        shape = (batch, HEADS, tokens, HEAD_DIM)
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        raw = torch.randn(batch, tokens, 2) * 0.3 + torch.tensor([0.0, 1.0])
        return cls(q, k, v, raw.requires_grad_(), torch.randn(shape))

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v, self.raw


def benchmark_encodings(
    views: int, grid: int, batch: int, repeats: int = 7, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Return CPU times as ratios to plain attention: medians over interleaved repeats, on one thread.

    Preparing an encoding is not timed, because a network does it once per forward pass; what RayRoPE computes in
    every layer is timed.
    """
    if min(views, grid, batch, repeats) < 1:
        raise ValueError(f"views {views}, grid {grid}, batch {batch} and repeats {repeats} must be positive")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        inputs = Inputs.draw(batch, views * grid * grid)
        operators = _make_operators(_make_tokens(views, grid, batch))
        jobs = {
            (name, kind): partial(run, operator, inputs)
            for name, operator in operators.items()
            for kind, run in PASSES.items()
        }
        seconds = time_interleaved(jobs, repeats, progress)
        saved = {name: measure_saved(operator, inputs) for name, operator in operators.items()}
    finally:
        torch.set_num_threads(threads)
    settings = {
        "views": views, "grid": grid, "batch": batch, "repeats": repeats, "heads": HEADS, "head_dim": HEAD_DIM,
        "threads": 1, "dtype": "float32", "unit": "ratio to sdpa of the median over interleaved repeats",
        "saved_unit": "bytes kept alive for backward, in q tensors",
        "sdpa_cpu_seconds": {kind: statistics.median(seconds["sdpa", kind]) for kind in PASSES},
    }  # fmt: skip
    return {"settings": settings, "rows": [_make_row(name, seconds, saved[name]) for name in operators]}


def measure_saved(operator: Operator, inputs: Inputs) -> float:
    """Return the storage that only the autograd graph keeps alive after a forward pass, in units of one q tensor.

    Counted without autograd's own hooks: copy the inputs, drop all references except the graph, and sum up every
    storage that is still alive. Tensors that custom functions keep outside `saved_tensors` then count too.
    """
    leaves = [part.detach().requires_grad_() for part in inputs.leaves]
    with _StorageTracker() as storages:
        copies = [part.clone() for part in leaves]
        graph = operator(*copies).grad_fn
        del copies
    alive = storages.count_alive_bytes()
    assert graph is not None
    return alive / (inputs.q.numel() * inputs.q.element_size())


class _StorageTracker(TorchDispatchMode):
    """Record every storage that operations create, by weak reference."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                reference = StorageWeakRef(storage)
                self.storages[reference.cdata] = (reference, storage.nbytes())
        return result

    def count_alive_bytes(self) -> int:
        """Return the size of all recorded storages that still exist."""
        return sum(size for reference, size in self.storages.values() if not reference.expired())


def _make_tokens(views: int, grid: int, batch: int) -> Tokens:
    """Make the tokens of pinholes of 40° to 80° on an arc around the origin."""
    size = grid * PATCH
    fields = torch.linspace(40.0, 80.0, views)
    cameras = [Pinhole.from_fov(float(degrees), size, size) for degrees in fields]
    angles = torch.linspace(-0.5, 0.5, views)
    eyes = torch.stack([2 * angles.sin(), torch.zeros(views), -2 * angles.cos()], -1)
    poses = Pose.look_at(eyes, torch.zeros(views, 3))
    return Views(cameras, Pose(poses.world_from_cam.expand(batch, views, 4, 4))).tokens(PATCH)


def _make_operators(tokens: Tokens) -> dict[str, Operator]:
    """Return attention with each encoding in NAMES, and without one as `sdpa`."""
    operators: dict[str, Operator] = {"sdpa": lambda q, k, v, raw: F.scaled_dot_product_attention(q, k, v)}
    for name in NAMES:
        position = encoding(name, HEAD_DIM).prepare(tokens)
        if isinstance(position, PerCamera):
            operators[name] = lambda q, k, v, raw, p=position: attention(q, k, v, p.with_depth(raw))
        else:
            operators[name] = lambda q, k, v, raw, p=position: attention(q, k, v, p)
    return operators


def time_interleaved(
    jobs: Mapping[Job, Callable[[], object]],
    repeats: int,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[Job, list[float]]:
    """Return CPU seconds by job and round. Every round runs all jobs, so that a machine's load affects them alike."""
    seconds: dict[Job, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):  # the first round, in which memory is allocated, does not count
        progress(f"round {repeat} of {repeats}")
        for name, job in jobs.items():
            start = time.process_time()
            job()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return seconds


@torch.no_grad()
def _run_forward(operator: Operator, inputs: Inputs) -> None:
    operator(*inputs.leaves)


def _run_both(operator: Operator, inputs: Inputs) -> None:
    torch.autograd.grad(operator(*inputs.leaves), inputs.leaves, inputs.grad, allow_unused=True)


PASSES = {"forward": _run_forward, "forward_backward": _run_both}


def _make_row(name: str, seconds: dict[tuple[str, str], list[float]], saved: float) -> dict[str, Any]:
    """Take ratios within each round, then their median: runs close in time see the same load."""
    ratios = {
        kind: statistics.median(
            own / plain for own, plain in zip(seconds[name, kind], seconds["sdpa", kind], strict=True)
        )
        for kind in PASSES
    }
    return {"name": name, **ratios, "saved": saved}


# Coordinates


FREQUENCIES = 16
NUDGE_DEG = 0.1
"""Rotation of one ray for `largest_jump`: small, so that only discontinuities change the score noticeably."""


def compare_coordinates(
    fields_of_view_deg: tuple[float, ...] = (60.0, 100.0, 140.0, 180.0, 200.0, 240.0),
    scale: float = 1.0,
    rays: int = 600,
    seed: int = 0,
) -> dict[str, Any]:
    """Return two figures per coordinate and field of view for the positional score (eq:app_score, α = `scale`).

    `rank_correlation` is that between the score of two rays and their cosine (1: the score orders all pairs by
    angle). `largest_jump` is the largest change of the score when one ray is rotated by 0.1°, as a share of its
    range.
    """
    rows = []
    for degrees in fields_of_view_deg:
        directions = _draw_cone(degrees / 2, rays, torch.Generator().manual_seed(seed))
        nudged = _nudge(directions)
        closeness = (directions @ directions.mT).clamp(-1, 1)
        upper = torch.triu_indices(rays, rays, 1)
        for name, kind in COORDINATES.items():
            if not isinstance(kind, RayCoordinate):
                continue
            score = _compute_scores(kind, directions, directions, scale)
            after = _compute_scores(kind, nudged, directions, scale)
            row = {
                "coordinate": name,
                "field_of_view_deg": degrees,
                "rank_correlation": _compute_rank_correlation(score[tuple(upper)], closeness[tuple(upper)]),
                "largest_jump": ((score - after).abs().max() / (4.0 * len(kind.axes) * FREQUENCIES)).item(),
            }
            rows.append(row)
    return {
        "settings": {"scale": scale, "frequencies": FREQUENCIES, "rays": rays, "seed": seed},
        "rows": rows,
    }


def _draw_cone(half_angle_deg: float, count: int, generator: torch.Generator) -> Float[Tensor, "ray 3"]:
    """Draw rays uniformly from the spherical cap around the optical axis."""
    lowest = torch.cos(torch.deg2rad(torch.tensor(half_angle_deg, dtype=torch.float64)))
    z = 1 - torch.rand(count, generator=generator, dtype=torch.float64) * (1 - lowest)
    phi = 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    radius = (1 - z * z).sqrt()
    return torch.stack([radius * phi.cos(), radius * phi.sin(), z], -1)


def _nudge(directions: Float[Tensor, "ray 3"]) -> Float[Tensor, "ray 3"]:
    """Rotate every ray by 0.1° away from the optical axis, the direction in which wide lenses cross 90°."""
    step = torch.deg2rad(torch.tensor(NUDGE_DEG, dtype=torch.float64))
    axis = torch.nn.functional.normalize(
        torch.stack([-directions[:, 1], directions[:, 0], torch.zeros_like(directions[:, 0])], -1), dim=-1
    )
    return directions * step.cos() + torch.linalg.cross(axis, directions) * step.sin()


def _compute_scores(
    kind: RayCoordinate, queries: Tensor, keys: Tensor, scale: float
) -> Float[Tensor, "query key"]:
    """Compute Σ_a Σ_k 2 cos(ω_k Δξ_a) for all pairs, with integer frequencies on periodic axes.

    As cos(x − y) = cos x cos y + sin x sin y, all pairs are one matrix product instead of a cosine per pair.
    """
    bank = make_geometric_frequencies(FREQUENCIES, scale)
    query_parts, key_parts = (
        torch.cat(
            [
                part
                for a, axis in enumerate(kind.axes)
                for phase in (positions[:, a, None] * round_to_period(bank, axis),)
                for part in (phase.cos(), phase.sin())
            ],
            -1,
        )
        for positions in map(kind.compute_for_directions, (queries, keys))
    )
    return 2 * query_parts @ key_parts.mT


def _compute_rank_correlation(a: Float[Tensor, "pair"], b: Float[Tensor, "pair"]) -> float:
    """Return Spearman's rank correlation."""
    ranks = torch.stack([part.argsort().argsort().double() for part in (a, b)])
    return torch.corrcoef(ranks)[0, 1].item()
