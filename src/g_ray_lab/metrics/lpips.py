"""LPIPS v0.1 with AlexNet (Zhang et al. 2018): a perceptual distance between two images."""

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.geometry.precision import disable_autocast
from g_ray_lab.metrics.lpips_weights import CONVOLUTIONS, HEADS, find_weights

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
