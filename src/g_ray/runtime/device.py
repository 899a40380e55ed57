"""Devices and number formats: which one a command runs on, what the CPU computes fast, and what must stay precise."""

import os

import torch
from torch import Tensor

LOCAL_RANK = "LOCAL_RANK"
"""Environment variable: the number of this process among those of its machine. torchrun sets it, and so do processes
that start others for a share of the work."""


def read_local_rank() -> int:
    """Return the number of this process among those of its machine; 0 if it is alone."""
    return int(os.environ.get(LOCAL_RANK, "0"))


def choose_device(name: str) -> torch.device:
    """Return the device of this process: `auto` and `cuda` distribute the processes of a machine over its GPUs."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device {name!r} is not a device: use auto, cpu, cuda or cuda:0") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device {name}: g-ray runs on cpu and cuda; use auto, cpu, cuda or cuda:0")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"--device {name}: PyTorch sees no GPU here")
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"--device {name}: there are {torch.cuda.device_count()} GPUs, counted from 0")
        own = read_local_rank() % torch.cuda.device_count()
        device = torch.device("cuda", own if device.index is None else device.index)
        torch.cuda.set_device(device)
    return device


# Instructions of the CPU for 8-bit integers and for bfloat16.


def has_int8_instructions() -> bool:
    """Return whether the CPU multiplies 8-bit integers exactly and fast (VNNI, or AMX, which comes with it).

    Older kernels add pairs of products in 16 bits, where they may saturate.
    """
    return torch.cpu._is_vnni_supported()


def has_bf16_instructions() -> bool:
    """Return whether the CPU multiplies bfloat16 itself; without, every product goes through float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


# Autocast must not reach geometry: phases in bf16 lose up to half a radian.


def disable_autocast(like: Tensor) -> torch.autocast:
    """Open a context in which matrix products keep the precision of their inputs, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False)


def promote_to_float32(tensor: Tensor) -> Tensor:
    """Lift half-precision geometry to float32; leave float32 and float64 unchanged."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
