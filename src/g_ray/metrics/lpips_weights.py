"""Where LPIPS finds its weights: files of yours, or the cache that one command fills. Tensors only are unpickled."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

CONVOLUTIONS = tuple(f"features.{i}.{part}" for i in (0, 3, 6, 8, 10) for part in ("weight", "bias"))
HEADS = tuple(f"lin{i}.model.1.weight" for i in range(5))
NAMES = (*CONVOLUTIONS, *HEADS)
"""torchvision's names for AlexNet's convolutions, and lpips' for the heads."""

COMMAND = "python -m g_ray.metrics.fetch_lpips"


def find_weights(*paths: str | Path) -> dict[str, Tensor]:
    """Weights from the given files together (e.g. your AlexNet and lpips' heads), or else from the cache."""
    if paths:
        return read_weights(*map(Path, paths))
    if get_cache_file().is_file():
        return read_weights(get_cache_file())
    raise FileNotFoundError(f"no LPIPS weights at {get_cache_file()}: run `{COMMAND}` once, or give a file")


def get_cache_file() -> Path:
    """In G_RAY_CACHE, or ~/.cache/g-ray."""
    folder = os.environ.get("G_RAY_CACHE") or Path.home() / ".cache" / "g-ray"
    return Path(folder) / "lpips_alex_v0.1.npz"


def read_weights(*paths: Path) -> dict[str, Tensor]:
    """The fifteen tensors from .npz files or torch checkpoints, whatever else those hold."""
    weights: dict[str, Tensor] = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"no LPIPS weights at {path}: give an existing file, or run `{COMMAND}`")
        weights |= _read(path)
    missing = [name for name in NAMES if name not in weights]
    if missing:
        raise ValueError(
            f"{', '.join(map(str, paths))}: no {', '.join(missing)}; LPIPS needs torchvision's AlexNet and "
            "lpips' five heads, in one file or in two"
        )
    return {name: weights[name].float() for name in NAMES}


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays}
    content = torch.load(path, map_location="cpu", weights_only=True)
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}
