"""LPIPS v0.1 with AlexNet (Zhang et al. 2018): a perceptual distance between two images.

The weights are not part of the package: they come from files of the user or from a cache that one command fills.
Checkpoints are read with `weights_only=True`, so that no code in them is run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.geometry.precision import disable_autocast

CONVOLUTIONS = tuple(f"features.{i}.{part}" for i in (0, 3, 6, 8, 10) for part in ("weight", "bias"))
HEADS = tuple(f"lin{i}.model.1.weight" for i in range(5))
NAMES = (*CONVOLUTIONS, *HEADS)
"""Names of the weights: torchvision's for AlexNet's convolutions, those of the lpips package for the heads."""
CHANNELS = (64, 192, 384, 256, 256)
SMALLEST = 31
"""Shortest side of an image in pixels: the strided layers reduce anything smaller to nothing."""
COMMAND = "python -m g_ray.metrics.fetch_lpips"


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


def find_weights(*paths: str | Path) -> dict[str, Tensor]:
    """Read the weights from the given files together (e.g. AlexNet and lpips' heads), or else from the cache."""
    if paths:
        return read_weights(*map(Path, paths))
    if get_cache_file().is_file():
        return read_weights(get_cache_file())
    raise FileNotFoundError(f"no LPIPS weights at {get_cache_file()}: run `{COMMAND}` once, or give a file")


def get_cache_file() -> Path:
    """Return the path of the cached weights: in G_RAY_CACHE, or in ~/.cache/g-ray."""
    folder = os.environ.get("G_RAY_CACHE") or Path.home() / ".cache" / "g-ray"
    return Path(folder) / "lpips_alex_v0.1.npz"


def read_weights(*paths: Path) -> dict[str, Tensor]:
    """Read the fifteen tensors in NAMES from .npz files or torch checkpoints; ignore other entries."""
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
