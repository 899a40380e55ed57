"""Large results without thousands of page faults."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor


def allocate_empty(*shape: int, dtype: torch.dtype, device: Any) -> Tensor:
    """Uninitialised tensor. On the CPU numpy owns it: numpy asks the kernel for huge pages, torch does not.

    Filling a fresh 50 MB tensor takes five times longer in 4 kB pages than in huge ones.
    """
    if torch.device(device).type != "cpu" or dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype, device=device)
    kind = np.float32 if dtype == torch.float32 else np.float64
    return torch.from_numpy(np.empty(math.prod(shape), kind)).view(shape)
