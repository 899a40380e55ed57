"""Choose the device that a command runs on."""

import torch


def choose_device(name: str, local_rank: int) -> torch.device:
    """`auto` and `cuda` give each process of a node its own GPU."""
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
            raise ValueError(f"--device {name} was asked for, but PyTorch sees no GPU here")
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"--device {name}: there are {torch.cuda.device_count()} GPUs, counted from 0")
        device = torch.device("cuda", local_rank if device.index is None else device.index)
        torch.cuda.set_device(device)
    return device
