"""DINOv2 with registers: the image encoder of VGGT and of the paper. Parameters are named as in its checkpoints."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings import NoPosition
from g_ray.nn.transformer import Block

SPECIAL = 5
"""One class token and four registers stand before the patches."""


@dataclass(frozen=True)
class DINOv2Config:
    """Sizes of a vision transformer, and the grid of its learned position embedding (37 × 14 = 518 px)."""

    dim: int
    layers: int
    heads: int
    patch: int = 14
    grid: int = 37


DINOV2_SIZES: dict[str, DINOv2Config] = {
    "vits14": DINOv2Config(384, 12, 6),
    "vitb14": DINOv2Config(768, 12, 12),
    "vitl14": DINOv2Config(1024, 24, 16),
}


class PatchEmbed(nn.Module):
    """One linear map of all pixels of a patch."""

    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch)

    def forward(self, images: Float[Tensor, "image 3 h w"]) -> Float[Tensor, "image patch dim"]:
        return self.proj(images).flatten(2).mT


class DINOv2(nn.Module):
    """Images normalized as ImageNet's become patch tokens after the final norm; class and register tokens end here.

    The learned position embedding is a cue of the grid that stays whatever the aggregator's encoding is.
    """

    def __init__(self, config: DINOv2Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.register_tokens = nn.Parameter(0.02 * torch.randn(1, SPECIAL - 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + config.grid**2, dim))
        self.patch_embed = PatchEmbed(dim, config.patch)
        encoding = NoPosition(dim // config.heads)
        self.blocks = nn.ModuleList(Block(dim, encoding, layer_scale=1.0) for _ in range(config.layers))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(
        self,
        images: Float[Tensor, "image 3 h w"],
        key_mask: Bool[Tensor, "image patch"] | None = None,
    ) -> Float[Tensor, "image patch dim"]:
        """Compute patch tokens. `key_mask` is False for patches that are masked out (padding)."""
        rows, columns = images.shape[-2] // self.config.patch, images.shape[-1] // self.config.patch
        place = self.interpolate_position(rows, columns)
        patches = self.patch_embed(images) + place[:, 1:]
        first = (self.cls_token + place[:, :1]).expand(len(patches), -1, -1)
        registers = self.register_tokens.expand(len(patches), -1, -1)
        x = torch.cat([first, registers, patches], 1)
        mask = None if key_mask is None else F.pad(key_mask, (SPECIAL, 0), value=True)
        for block in self.blocks:
            x = block(x, key_mask=mask)
        return self.norm(x[:, SPECIAL:])

    def interpolate_position(self, rows: int, columns: int) -> Float[Tensor, "1 token dim"]:
        """Interpolate the embedding of class token and patch grid: bicubic, antialiased, edges on edges."""
        grid = self.config.grid
        if (rows, columns) == (grid, grid):
            return self.pos_embed
        first, patches = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        square = patches.float().mT.unflatten(-1, (grid, grid))
        resized = F.interpolate(square, (rows, columns), mode="bicubic", antialias=True)
        return torch.cat([first, resized.flatten(2).mT.to(first.dtype)], 1)
