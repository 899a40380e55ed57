"""The trunk of VGGT: attention inside each view and across all views in turn, with encodings that are passed in."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings.encoding_base import Encoding, Prepared
from g_ray.nn.transformer import Block, run_part
from g_ray.rays.views import Tokens

TOKEN = 0.02
"""Deviation of special tokens at first. VGGT's 1e-6 is below what LayerNorm's ε lets through: until such tokens have
grown, the network does not know which view is the first."""


class Aggregator(nn.Module):
    """Pairs of a frame block and a global block over [camera token, registers, patches] of every view.

    The first view has a camera token and registers of its own, all others share theirs: this is how the network
    knows which view is the world. Views may have grids of different sizes; there is no padding between them.
    """

    def __init__(
        self,
        dim: int,
        pairs: int,
        frame: Encoding,
        across: Encoding,
        *,
        registers: int = 4,
        layer_scale: float = 0.01,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.frame, self.across, self.recompute = frame, across, recompute
        self.special = 1 + registers
        self.camera_token = nn.Parameter(TOKEN * torch.randn(1, 2, 1, dim))
        self.register_token = nn.Parameter(TOKEN * torch.randn(1, 2, registers, dim))

        def blocks(encoding: Encoding) -> nn.ModuleList:
            return nn.ModuleList(
                Block(dim, encoding, layer_scale=layer_scale, qk_norm=True, eps=1e-5) for _ in range(pairs)
            )

        self.frame_blocks, self.global_blocks = blocks(frame), blocks(across)

    def forward(
        self,
        patches: Sequence[Float[Tensor, "batch _ dim"]],
        tokens: Tokens,
        taps: Sequence[int],
        *,
        key_mask: Bool[Tensor, "batch token"] | None = None,
        query_chunk: int | None = None,
    ) -> dict[int, Float[Tensor, "batch token two_dims"]]:
        """Compute features [frame ‖ global] after each tapped pair, from the patch features of every view.

        `tokens` = `views.tokens(patch, special=aggregator.special)` are the positions of the whole sequence; phases
        are prepared once, for all layers. `query_chunk` bounds the memory of global attention, exactly.
        """
        self._check(tokens, taps)
        inside, across = self.prepare_positions(tokens)
        windows = [span for _, span in tokens.layout.find_runs()]
        x, tapped = self._build_sequence(patches), {}
        for index in range(max(taps) + 1):
            options = {"recompute": self.recompute, "key_mask": key_mask}
            x = run_part(self.frame_blocks[index], x, inside, windows=windows, **options)
            # A tap holds both stages: detail from inside the view, and what it learned from the others.
            seen = x
            x = run_part(self.global_blocks[index], x, across, query_chunk=query_chunk, **options)
            if index in taps:
                tapped[index] = torch.cat([seen, x], -1)
        return tapped

    def prepare_positions(self, tokens: Tokens) -> tuple[Prepared, Prepared]:
        """Prepare attention inside views and across them, for all layers; once where both encodings are the same."""
        inside = self.frame.prepare(tokens)
        return inside, inside if self.across == self.frame else self.across.prepare(tokens)

    def _build_sequence(self, patches: Sequence[Tensor]) -> Float[Tensor, "batch token dim"]:
        special = torch.cat([self.camera_token, self.register_token], 2).to(patches[0].dtype)
        parts = []
        for view, features in enumerate(patches):
            # Special tokens 0 belong to the first view, 1 to all others.
            parts += [special[:, min(view, 1)].expand(len(features), -1, -1), features]
        return torch.cat(parts, 1)

    def _check(self, tokens: Tokens, taps: Sequence[int]) -> None:
        pairs = len(self.frame_blocks)
        if not taps or not all(0 <= tap < pairs for tap in taps):
            raise ValueError(f"taps {list(taps)}: name pairs between 0 and {pairs - 1}")
        counts = [segment.special for segment in tokens.layout.segments if not segment.is_patches]
        if counts != [self.special] * len(tokens.views):
            raise ValueError(
                f"{self.special} special tokens must stand before the patches of each view: "
                f"views.tokens(patch, special={self.special})"
            )
