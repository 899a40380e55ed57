"""Measure what a position encoding costs: time relative to plain attention, and memory kept for backward."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from g_ray.cameras.pinhole import Pinhole
from g_ray.encodings import encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.rays.views import Tokens, Views

NAMES = ("rope", "gray", "gta", "gta_gray", "prope", "rayrope", "rayrope_gray")
HEADS, HEAD_DIM, PATCH = 8, 144, 8  # 144 is divisible by the channel groups of every encoding in NAMES

Operator = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


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
        seconds = _time_interleaved(operators, inputs, repeats, progress)
        saved = {name: measure_saved(operator, inputs) for name, operator in operators.items()}
    finally:
        torch.set_num_threads(threads)
    settings = {
        "views": views, "grid": grid, "batch": batch, "repeats": repeats, "heads": HEADS, "head_dim": HEAD_DIM,
        "threads": 1, "dtype": "float32", "unit": "ratio to sdpa of the median over interleaved repeats",
        "saved_unit": "bytes kept alive for backward, in q tensors",
        "sdpa_cpu_seconds": {kind: statistics.median(times) for kind, times in seconds["sdpa"].items()},
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


def _time_interleaved(
    operators: dict[str, Operator], inputs: Inputs, repeats: int, progress: Callable[[str], None]
) -> dict[str, dict[str, list[float]]]:
    """Time all operators once per round, so that changes in the machine's load affect all of them alike."""
    seconds: dict[str, dict[str, list[float]]] = {
        name: {"forward": [], "forward_backward": []} for name in operators
    }
    for repeat in range(repeats + 1):  # the first round is a warm-up
        progress(f"round {repeat} of {repeats}")
        for name, operator in operators.items():
            forward, both = _time_operator(operator, inputs)
            if repeat:
                seconds[name]["forward"].append(forward)
                seconds[name]["forward_backward"].append(both)
    return seconds


def _time_operator(operator: Operator, inputs: Inputs) -> tuple[float, float]:
    """Return the CPU seconds of a forward pass without gradients, and of a forward and backward pass."""
    with torch.no_grad():
        start = time.process_time()
        operator(*inputs.leaves)
        forward = time.process_time() - start
    start = time.process_time()
    torch.autograd.grad(operator(*inputs.leaves), inputs.leaves, inputs.grad, allow_unused=True)
    return forward, time.process_time() - start


def _make_row(name: str, seconds: dict[str, dict[str, list[float]]], saved: float) -> dict[str, Any]:
    """Take ratios within each round, then their median: runs close in time see the same load."""
    ratios = {
        kind: statistics.median(
            own / plain for own, plain in zip(seconds[name][kind], seconds["sdpa"][kind], strict=True)
        )
        for kind in ("forward", "forward_backward")
    }
    return {"name": name, **ratios, "saved": saved}
