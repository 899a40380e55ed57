"""Autocast must not reach geometry: phases in bf16 lose up to half a radian."""

import torch
from torch import Tensor


def disable_autocast(like: Tensor) -> torch.autocast:
    """Open a context in which matrix products keep the precision of their inputs, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False)


def promote_to_float32(tensor: Tensor) -> Tensor:
    """Lift half-precision geometry to float32; leave float32 and float64 unchanged."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
