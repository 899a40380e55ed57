"""DPT: four taps of the trunk, fused from coarse to fine, become a dense map (VGGT's head, its parameter names)."""

from collections.abc import Sequence
from math import hypot, sqrt

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.models.heads import Pointmap, get_activation
from g_ray.nn.transformer import run_part
from g_ray.runtime.device import disable_autocast

FIRST_GUESS = 0.02
"""Deviation of the last layer's weights: the first maps are nearly flat."""

POSITION_WEIGHT = 0.1
"""Scale of the position embedding; features have a size of about 1."""


class DPTHead(nn.Module):
    """Patch features of four layers → points (3 outputs) or depths (1) with a confidence, for every pixel.

    Computed in float32 or better, also under autocast, `frames_chunk` images at a time. With `recompute`, backward
    keeps the taps alone and computes the maps of one chunk at a time again.
    """

    def __init__(
        self,
        dim: int,
        patch: int,
        *,
        features: int = 256,
        channels: Sequence[int] = (256, 512, 1024, 1024),
        outputs: int = 3,
        activate: str = "inverse_log",
        frames_chunk: int = 8,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.patch, self.activate, self.frames_chunk = patch, get_activation(activate), frames_chunk
        self.recompute = recompute
        a, b, c, d = channels
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.projects = nn.ModuleList(Project(dim, width, 1) for width in channels)
        self.resize_layers = nn.ModuleList(
            [
                nn.ConvTranspose2d(a, a, 4, 4),
                nn.ConvTranspose2d(b, b, 2, 2),
                nn.Identity(),
                nn.Conv2d(d, d, 3, 2, 1),
            ]
        )
        self.scratch = Fusion((a, b, c, d), features, outputs + 1)
        initialize_weights(self)
        last = self.scratch.output_conv2[-1]
        assert isinstance(last, nn.Conv2d)
        nn.init.normal_(last.weight, std=FIRST_GUESS)

    def forward(self, taps: Sequence[Float[Tensor, "image patch dim"]], rows: int, columns: int) -> Pointmap:
        """Fuse four taps of images that are `rows` × `columns` patches large, finest first."""
        with disable_autocast(taps[0]):
            parts = [
                run_part(
                    self._compute_map,
                    *(tap[start : start + self.frames_chunk] for tap in taps),
                    rows=rows,
                    columns=columns,
                    recompute=self.recompute,
                )
                for start in range(0, len(taps[0]), self.frames_chunk)
            ]
            return Pointmap.from_raw(torch.cat(parts), self.activate)

    def _compute_map(self, *taps: Tensor, rows: int, columns: int) -> Float[Tensor, "image h w raw"]:
        levels = []
        for tap, project, resize in zip(taps, self.projects, self.resize_layers, strict=True):
            maps = project(self.norm(tap.to(self.norm.weight.dtype)), rows, columns)
            levels.append(resize(maps + embed_position(maps, columns / rows)))
        raw = self.scratch(levels, (rows * self.patch, columns * self.patch))
        return raw.movedim(1, -1)


def initialize_weights(module: nn.Module) -> None:
    """Apply He's initialization to all convolutions; residual branches start with nothing, or four levels would add up.

    torch's own loses two thirds of the variance with every layer, so that from the head's end all pixels look alike:
    trained from nothing it answers with one direction for the whole image for thousands of steps.
    """
    branches: list[nn.Conv2d] = []
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            inputs = layer.in_channels if isinstance(layer, nn.ConvTranspose2d) else layer.weight[0].numel()
            nn.init.normal_(layer.weight, std=sqrt(2 / inputs))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, ResidualUnit):
            branches.append(layer.conv2)
    for branch in branches:
        nn.init.zeros_(branch.weight)


class Project(nn.Conv2d):
    """A 1×1 convolution of tokens: their map comes out in the memory layout (channels last) that convolutions like."""

    def forward(
        self, tokens: Float[Tensor, "image patch dim"], rows: int, columns: int
    ) -> Float[Tensor, "image c rows columns"]:
        thin = F.linear(tokens, self.weight.flatten(1), self.bias)
        return thin.unflatten(1, (rows, columns)).movedim(-1, 1)


class Fusion(nn.Module):
    """RefineNet: levels 4 to 1 are added up from coarse to fine, then brought to the size of the image."""

    def __init__(self, channels: Sequence[int], features: int, outputs: int) -> None:
        super().__init__()
        for level, width in enumerate(channels, 1):
            setattr(self, f"layer{level}_rn", nn.Conv2d(width, features, 3, padding=1, bias=False))
            setattr(self, f"refinenet{level}", FuseLevel(features, coarsest=level == len(channels)))
        self.output_conv1 = nn.Conv2d(features, features // 2, 3, padding=1)
        self.output_conv2 = nn.Sequential(
            nn.Conv2d(features // 2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, outputs, 1)
        )

    def forward(
        self, levels: Sequence[Float[Tensor, "image _ _ _"]], size: tuple[int, int]
    ) -> Float[Tensor, "image raw h w"]:
        thin = [getattr(self, f"layer{level}_rn")(maps) for level, maps in enumerate(levels, 1)]
        # Each level is enlarged to the next finer one's own size: odd sizes would not meet by doubling.
        sizes = [(2 * thin[0].shape[-2], 2 * thin[0].shape[-1]), *(maps.shape[-2:] for maps in thin[:-1])]
        x = self.get_submodule(f"refinenet{len(thin)}")(thin[-1], None, sizes[-1])
        for level in range(len(thin) - 1, 0, -1):
            x = self.get_submodule(f"refinenet{level}")(x, thin[level - 1], sizes[level - 1])
        x = enlarge(self.output_conv1(x), size)
        return self.output_conv2(x + embed_position(x, size[1] / size[0]))


class FuseLevel(nn.Module):
    """Adds a level to the sum of the coarser ones, refines it and enlarges it to the next."""

    def __init__(self, features: int, *, coarsest: bool) -> None:
        super().__init__()
        self.out_conv = nn.Conv2d(features, features, 1)
        self.resConfUnit1 = None if coarsest else ResidualUnit(features)
        self.resConfUnit2 = ResidualUnit(features)

    def forward(
        self,
        x: Float[Tensor, "image c h w"],
        level: Float[Tensor, "image c h w"] | None,
        size: tuple[int, int] | torch.Size,
    ) -> Float[Tensor, "image c height width"]:
        if self.resConfUnit1 is not None and level is not None:
            x = x + self.resConfUnit1(level)
        # A 1×1 convolution and a bilinear enlargement commute: convolving first costs a quarter.
        return enlarge(self.out_conv(self.resConfUnit2(x)), size)


class ResidualUnit(nn.Module):
    """r + conv(relu(conv(r))) with r = relu(x): the skip, too, carries the rectified input."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, x: Float[Tensor, "image c h w"]) -> Float[Tensor, "image c h w"]:
        x = x.relu()
        return x + self.conv2(self.conv1(x).relu())


def enlarge(
    x: Float[Tensor, "image c _ _"], size: tuple[int, int] | torch.Size
) -> Float[Tensor, "image c h w"]:
    """Resize bilinearly, with corner pixels on corner pixels."""
    return F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=True)


def embed_position(like: Float[Tensor, "image c h w"], aspect: float) -> Float[Tensor, "c h w"]:
    """Compute sines and cosines of x, then of y; (x, y) in units of half the diagonal, zero in the middle.

    Only one row and one column are computed, in float64; the map repeats them.
    """
    channels, height, width = like.shape[1:]
    half = (aspect / hypot(aspect, 1.0), 1.0 / hypot(aspect, 1.0))
    ends = [extent * (count - 1) / count for extent, count in zip(half, (width, height), strict=True)]
    across, down = (
        _compute_waves(
            torch.linspace(-end, end, count, dtype=torch.float64, device=like.device), channels // 4
        )
        for end, count in zip(ends, (width, height), strict=True)
    )
    across, down = (POSITION_WEIGHT * waves.to(like.dtype) for waves in (across, down))
    columns = across[:, None, :].expand(-1, height, width)
    rows = down[:, :, None].expand(-1, height, width)
    return torch.cat([columns, rows])


def _compute_waves(x: Float[Tensor, "n"], count: int) -> Float[Tensor, "channel n"]:
    """Compute sin and cos of x · 100^(−k/count)."""
    frequencies = 100.0 ** (-torch.arange(count, dtype=x.dtype, device=x.device) / count)
    phases = frequencies[:, None] * x
    return torch.cat([phases.sin(), phases.cos()])
