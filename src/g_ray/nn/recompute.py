"""Activation recomputation: the backward pass keeps the inputs of a part of the network and computes the rest again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def run_part(part: Callable[..., Tensor], *inputs: Any, recompute: bool, **options: Any) -> Tensor:
    """Compute `part(*inputs, **options)`; with `recompute`, backward keeps the inputs alone. Gradients are the same."""
    if not (recompute and torch.is_grad_enabled()):
        return part(*inputs, **options)
    # Nothing here is random, and saving a generator's state would wait for the GPU.
    out = checkpoint(part, *inputs, use_reentrant=False, preserve_rng_state=False, **options)
    assert isinstance(out, Tensor)
    return out
