"""DINOv2 with and without registers: the image encoder of VGGT and of the paper. Names are those of its checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings import NoPosition
from g_ray.nn.transformer import Block, run_part


@dataclass(frozen=True)
class DINOv2Config:
    """Sizes of a vision transformer, and the grid of its learned position embedding (37 × 14 = 518 px)."""

    dim: int
    layers: int
    heads: int
    patch: int = 14
    grid: int = 37
    registers: int = 4
    """Learned tokens between the class token and the patches; the first release has none."""
    swiglu: bool = False
    """Gated MLPs, as in ViT-g."""


WITH_REGISTERS = {
    "vits14": DINOv2Config(384, 12, 6),
    "vitb14": DINOv2Config(768, 12, 12),
    "vitl14": DINOv2Config(1024, 24, 16),
    "vitg14": DINOv2Config(1536, 40, 24, swiglu=True),
}
DINOV2_SIZES: dict[str, DINOv2Config] = {
    **WITH_REGISTERS,
    **{f"{name}_noreg": replace(size, registers=0) for name, size in WITH_REGISTERS.items()},
}
"""Sizes by name; `_noreg` is the first release, dinov2_vits14 and so on, the others are its dinov2_vits14_reg."""


class PatchEmbed(nn.Module):
    """One linear map of all pixels of a patch."""

    def __init__(self, dim: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch)

    def forward(self, images: Float[Tensor, "image 3 h w"]) -> Float[Tensor, "image patch dim"]:
        return self.proj(images).flatten(2).mT


class SwiGLU(nn.Module):
    """W₃ (SiLU(W₁ x) ⊙ W₂ x), with two thirds of the usual 4 · dim channels, rounded up to multiples of 8."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = (int(4 * dim * 2 / 3) + 7) // 8 * 8
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
        gate, value = self.w12(x).chunk(2, -1)
        return self.w3(F.silu(gate) * value)


class DINOv2(nn.Module):
    """Images normalized as ImageNet's become patch tokens; class and register tokens end here.

    Without `taps`, tokens are those after the final norm. With them, they are the hidden states of these numbers (0 is
    the input of the first block, n the output of block n), each normalized over its channels, side by side. Blocks
    behind the last tap, and the final norm, do not exist then.

    The learned position embedding is a cue of the grid that stays whatever the aggregator's encoding is.
    """

    def __init__(self, config: DINOv2Config, taps: Sequence[int] = (), *, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.taps, self.recompute = config, tuple(taps), recompute
        check_taps(config, self.taps)
        dim = config.dim
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        if config.registers:
            self.register_tokens = nn.Parameter(0.02 * torch.randn(1, config.registers, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + config.grid**2, dim))
        self.patch_embed = PatchEmbed(dim, config.patch)
        encoding = NoPosition(dim // config.heads)
        self.blocks = nn.ModuleList(
            Block(dim, encoding, layer_scale=1.0, mlp=SwiGLU(dim) if config.swiglu else None)
            for _ in range(max(self.taps, default=config.layers))
        )
        self.norm = nn.Identity() if self.taps else nn.LayerNorm(dim, eps=1e-6)

    @property
    def width(self) -> int:
        """Channels of a token that comes out."""
        return self.config.dim * max(1, len(self.taps))

    def forward(
        self,
        images: Float[Tensor, "image 3 h w"],
        key_mask: Bool[Tensor, "image patch"] | None = None,
    ) -> Float[Tensor, "image patch width"]:
        """Compute patch tokens. `key_mask` is False for patches that are masked out (padding)."""
        if not self.taps:
            # The norm is learned, and belongs to the last block alone.
            *_, last = self.compute_states(images, key_mask, [len(self.blocks)])
            return self.norm(last)
        states = self.compute_states(images, key_mask, self.taps)
        # Without learned numbers: the projection behind has them, and states of all depths come at one scale.
        return torch.cat([F.layer_norm(state, (self.config.dim,)) for state in states], -1)

    def compute_states(
        self,
        images: Float[Tensor, "image 3 h w"],
        key_mask: Bool[Tensor, "image patch"] | None,
        numbers: Sequence[int],
    ) -> list[Float[Tensor, "image patch dim"]]:
        """Compute the patches of some hidden states, as they are between blocks."""
        special = 1 + self.config.registers
        mask = None if key_mask is None else F.pad(key_mask, (special, 0), value=True)
        states, x = {}, self._embed(images)
        for number in range(max(numbers) + 1):
            if number:
                x = run_part(self.blocks[number - 1], x, recompute=self.recompute, key_mask=mask)
            if number in numbers:
                states[number] = x[:, special:]
        return [states[number] for number in numbers]

    def _embed(self, images: Float[Tensor, "image 3 h w"]) -> Float[Tensor, "image token dim"]:
        rows, columns = images.shape[-2] // self.config.patch, images.shape[-1] // self.config.patch
        place = self.interpolate_position(rows, columns)
        patches = self.patch_embed(images) + place[:, 1:]
        parts = [(self.cls_token + place[:, :1]).expand(len(patches), -1, -1), patches]
        if self.config.registers:
            # Registers follow the class token and have no place in the image, hence no position.
            parts.insert(1, self.register_tokens.expand(len(patches), -1, -1))
        return torch.cat(parts, 1)

    def interpolate_position(self, rows: int, columns: int) -> Float[Tensor, "1 token dim"]:
        """Interpolate the embedding of class token and patch grid: bicubic, edges on edges.

        Antialiased where there are registers, as each of the two releases was trained.
        """
        grid = self.config.grid
        if (rows, columns) == (grid, grid):
            return self.pos_embed
        first, patches = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        # In float32 under any autocast: every layer inherits what is rounded here.
        square = patches.float().mT.unflatten(-1, (grid, grid))
        antialias = self.config.registers > 0
        resized = F.interpolate(square, (rows, columns), mode="bicubic", antialias=antialias)
        return torch.cat([first, resized.flatten(2).mT.to(first.dtype)], 1)


def check_taps(config: DINOv2Config, taps: Sequence[int]) -> None:
    """Raise ValueError for hidden states that the encoder does not have."""
    if list(taps) != sorted(set(taps)) or not all(1 <= tap <= config.layers for tap in taps):
        raise ValueError(
            f"encoder taps {list(taps)}: name hidden states between 1 and {config.layers} in ascending order"
        )
