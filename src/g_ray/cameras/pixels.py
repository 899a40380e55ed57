"""Where the centers of pixels lie, and memory for maps of all pixels."""

import math
import weakref
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def pixel_centers(
    width: int, height: int, *, dtype: torch.dtype | None = None, device: Any = None
) -> Float[Tensor, "h w 2"]:
    """Compute (column + 0.5, row + 0.5) of every pixel."""
    u = torch.arange(width, dtype=dtype or torch.get_default_dtype(), device=device) + 0.5
    v = torch.arange(height, dtype=dtype or torch.get_default_dtype(), device=device) + 0.5
    return torch.stack(torch.meshgrid(u, v, indexing="xy"), -1)


# Freed maps of this size and above are kept for the next map, up to so many bytes in all: the kernel has to clear new
# memory page by page, which takes longer than computing the rays. Smaller ones the C library keeps.
_SMALLEST_KEPT, _MOST_KEPT = 1 << 24, 1 << 28
_kept: list[np.ndarray] = []


def allocate_empty(*shape: int, dtype: torch.dtype, device: Any) -> Tensor:
    """Allocate an uninitialized tensor. On the CPU numpy owns it: numpy asks the kernel for huge pages, torch does not.

    Filling a fresh 50 MB tensor takes five times longer in 4 kB pages than in huge ones.
    """
    if torch.device(device).type != "cpu" or dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = next((part for part in _kept if part.nbytes == size), None)
    if memory is None:
        memory = np.empty(size, np.uint8)
    else:
        _kept[:] = [part for part in _kept if part is not memory]
    if size < _SMALLEST_KEPT:
        return torch.from_numpy(memory).view(dtype).view(shape)
    # The tensor holds an array of its own; once nobody holds that any more the memory is free.
    lent = memory.view()
    weakref.finalize(lent, _keep, memory).atexit = False
    return torch.from_numpy(lent).view(dtype).view(shape)


def _keep(memory: np.ndarray) -> None:
    """Keep freed memory, the latest first, and let go of what is too much."""
    _kept.insert(0, memory)
    while sum(part.nbytes for part in _kept) > _MOST_KEPT:
        _kept.pop()
