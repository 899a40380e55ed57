"""Which arithmetic suits a device: warn of what is slow there, refuse what it cannot do."""

import warnings

import torch

from g_ray.nn.int8 import check_int8
from g_ray.predictors.model_settings import Precision
from g_ray.runtime.device import has_bf16_instructions

SLOW_BF16 = (
    "--precision bf16: this CPU has no bf16 instructions, so that bf16 may be several times slower than fp32"
)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Warn of bf16 on a CPU that only imitates it; raise ValueError for int8 where it is not faster."""
    if precision == "int8":
        check_int8(device)
    elif precision == "bf16" and device.type == "cpu" and not has_bf16_instructions():
        warnings.warn(SLOW_BF16, stacklevel=2)
