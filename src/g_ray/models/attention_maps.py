"""What patches of a reconstructed scene attend to in the other views, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.encodings.encoding_base import Prepared
from g_ray.models.inference import FramedImage
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.layout import Segment
from g_ray.rays.views import Tokens, Views


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The inputs of all global attention layers, kept from one forward pass: a few MB per view and layer."""

    model: ReconstructionModel
    tokens: Tokens
    inputs: tuple[Float[Tensor, "1 token dim"], ...]
    position: Prepared | None
    key_mask: Bool[Tensor, "1 token"] | None

    @classmethod
    @torch.no_grad()
    def from_model(cls, model: ReconstructionModel, frames: Sequence[FramedImage]) -> "AttentionMaps":
        """Run the network once over images as they are framed for it."""
        like = next(model.parameters())
        views = Views([frame.camera.to(device=like.device, dtype=like.dtype) for frame in frames])
        kept: list[tuple[Tensor, Prepared | None, Tensor | None]] = []

        def keep(_: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            kept.append((inputs[0].detach(), inputs[1], options["key_mask"]))

        blocks = model.aggregator.global_blocks
        hooks = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in blocks]
        try:
            content = [frame.content.to(like.device) for frame in frames]
            model.predict([frame.image.to(like)[None] for frame in frames], views, content=content)
        finally:
            for hook in hooks:
                hook.remove()
        tokens = views.tokens(model.config.patch, special=model.aggregator.special)
        return cls(model, tokens, tuple(one[0] for one in kept), kept[0][1], kept[0][2])

    @property
    def pairs(self) -> int:
        return len(self.inputs)

    @torch.no_grad()
    def compute_maps(self, pair: int, view: int, row: int, column: int) -> list[Float[Tensor, "row column"]]:
        """Compute how much that patch attends to every patch of every view, averaged over heads.

        All maps together sum to 1 less what goes to camera and register tokens.
        """
        spans = self._find_patches()
        segment, span = spans[view]
        if not (0 <= row < segment.rows and 0 <= column < segment.columns and 0 <= pair < self.pairs):
            raise ValueError(
                f"pair {pair}, row {row}, column {column}: view {view} has {segment.rows} × {segment.columns} patches "
                f"and the network {self.pairs} pairs"
            )
        query = span.start + row * segment.columns + column
        mean = self._compute_weights(pair, slice(query, query + 1))[0]
        return [mean[part].unflatten(0, (one.rows, one.columns)) for one, part in spans]

    @torch.no_grad()
    def average_between(self, asking: int, asked: int) -> Float[Tensor, "query key"]:
        """Compute how much each patch of the view `asking` attends to each patch of `asked`, averaged over heads and
        global layers (paper, fig:attention). A row sums to what the view gets, of 1 for all tokens."""
        spans = self._find_patches()
        (_, queries), (_, keys) = spans[asking], spans[asked]
        return torch.stack(
            [self._compute_weights(pair, queries)[:, keys] for pair in range(self.pairs)]
        ).mean(0)

    def _compute_weights(self, pair: int, queries: slice) -> Float[Tensor, "query token"]:
        """Compute the attention of some tokens in one layer, averaged over heads."""
        block: Any = self.model.aggregator.global_blocks[pair]
        normed = block.norm1(self.inputs[pair])
        return block.attn.compute_weights(normed, self.position, queries, key_mask=self.key_mask)[0].mean(0)

    def _find_patches(self) -> list[tuple[Segment, slice]]:
        """Return the grid and the tokens of every view."""
        return [one for one in self.tokens.layout.iterate_spans() if one[0].is_patches]
