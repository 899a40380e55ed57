"""Estimate the operations and the memory of a reconstruction before it starts, and choose the size of its chunks."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from g_ray.cameras.camera import Camera
from g_ray.models.dinov2 import DINOV2_SIZES
from g_ray.models.inference import PatchFraming
from g_ray.models.reconstruction_config import ReconstructionConfig
from g_ray.nn.int8 import check_int8
from g_ray.predictors.model_settings import Precision
from g_ray.runtime.device import has_bf16_instructions

BASE_MEMORY = 600 * 2**20
"""Bytes of a process that has imported torch and holds photographs and results of a small scene."""
FLOAT = 4  # bytes
SPECIAL = 5  # camera and register tokens
KEPT = 24
"""Copies of the tokens that a block holds at once: residual, q, k, v, their rotated copies, hidden layer."""
HEAD = 3
"""Maps of `dpt_features` channels at full resolution that the DPT head holds at once. Measured peaks are 0.7 to 0.95 of
the estimate with it, for the small and the paper's size and 2 to 16 views (docs: benchmarks)."""
EFFICIENCY = 0.5
"""Share of the speed of a large matrix product that a whole network reaches."""


@dataclass(frozen=True)
class ChunkCost:
    """What one chunk costs."""

    operations: float
    """Floating-point operations."""
    memory: int
    """Bytes, with the weights, in addition to what the process has before."""


def estimate_chunk_cost(
    config: ReconstructionConfig, weights: int, patches: Sequence[int], query_chunk: int | None = None
) -> ChunkCost:
    """Estimate the cost of a chunk from the number of weights and the patches of each of its views."""
    tokens = sum(patches) + SPECIAL * len(patches)
    dim = config.dim
    layers = 2 * config.pairs
    linear = 2 * 12 * dim**2 * tokens * layers
    inside = sum(4 * dim * (count + SPECIAL) ** 2 for count in patches) * config.pairs
    across = 4 * dim * tokens**2 * config.pairs
    if config.encoder != "patch":
        encoder = DINOV2_SIZES[config.encoder]
        depth = max(config.encoder_taps, default=encoder.layers)
        linear += 2 * 12 * encoder.dim**2 * tokens * depth
        inside += sum(4 * encoder.dim * count**2 for count in patches) * depth
    widest = dim if config.encoder == "patch" else max(dim, DINOV2_SIZES[config.encoder].dim)
    pixels = sum(patches) * config.patch**2
    head = 2 * 9 * (config.dpt_features**2 * 14 * pixels / 4 + 32 * config.dpt_features * pixels / 2)
    chunk = max(patches) * config.patch**2 * min(config.frames_chunk, len(patches))
    memory = FLOAT * (
        weights
        + KEPT * widest * tokens
        + len(set(config.taps)) * 2 * dim * tokens
        + HEAD * config.dpt_features * chunk
        + 16 * pixels
    )
    return ChunkCost(linear + inside + across + head, int(memory))


def count_patches(cameras: Sequence[Camera], size: int, patch: int) -> list[int]:
    """Count the patches of every view at a long side of `size` px."""
    framing = PatchFraming(size, patch)
    return [width * height // patch**2 for width, height in map(framing.compute_stretched_size, cameras)]


def count_weights(model: nn.Module) -> int:
    """Count the parameters of a network; four 8-bit weights take the memory of one."""
    quantized = sum(buffer.numel() for buffer in model.buffers() if buffer.dtype == torch.int8)
    return sum(weight.numel() for weight in model.parameters()) + quantized // FLOAT


def measure_operations_per_second(device: torch.device, side: int = 768) -> float:
    """Measure the speed of a matrix product on this device."""
    left, right = (torch.rand(side, side, device=device) for _ in range(2))
    for _ in range(2):
        started, done = time.perf_counter(), 0
        while done < 3 or time.perf_counter() - started < 0.05:
            product = left @ right
            done += 1
        float(product[0, 0])  # waits for a GPU
        speed = done * 2 * side**3 / (time.perf_counter() - started)
    return speed


def format_estimate(seconds: float) -> str:
    """Format a rough duration: 40 s, 12 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def find_chunk_size(
    config: ReconstructionConfig, weights: int, patches: Sequence[int], memory: int, smallest: int
) -> int:
    """Return the most views in a chunk for this memory; ValueError if even `smallest` need more."""
    largest = max(patches)
    for count in range(len(patches), 0, -1):
        need = estimate_chunk_cost(config, weights, [largest] * count).memory
        if need <= memory:
            if count < min(smallest, len(patches)):
                break
            return count
    need = estimate_chunk_cost(config, weights, [largest] * min(smallest, len(patches))).memory
    raise ValueError(
        f"{min(smallest, len(patches))} views need about {need / 2**30:.2f} GiB: raise --max-memory or lower --size"
    )


# Arithmetic


SLOW_BF16 = (
    "--precision bf16: this CPU has no bf16 instructions, so that bf16 may be several times slower than fp32"
)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Warn of bf16 on a CPU that only imitates it; raise ValueError for int8 where it is not faster."""
    if precision == "int8":
        check_int8(device)
    elif precision == "bf16" and device.type == "cpu" and not has_bf16_instructions():
        warnings.warn(SLOW_BF16, stacklevel=2)
