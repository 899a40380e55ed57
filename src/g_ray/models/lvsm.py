"""LVSM, decoder only: context patches and target rays in, target pixels out (paper, appendix "Novel View Synthesis").

Every target is rendered in a sequence of its own, [contexts, target], with full attention inside it. What a token
knows of its camera is `conditioning` (input channels) and `encoding` (attention); the six rows of the paper's
tables, METHODS in `lvsm_config`, differ in nothing else.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings import Prepared, encoding
from g_ray.models.lvsm_config import LVSMConfig
from g_ray.nn.conditioning import CHANNELS, RayChannels, join_patches, split_into_patches
from g_ray.nn.transformer import EVERYTHING, MultiHeadAttention
from g_ray.rays.views import Tokens, Views


class LVSMBlock(nn.Module):
    """Pre-norm transformer layer without biases: x + Attention(LN x), then x + W₂ ReLU(W₁ LN x)."""

    def __init__(self, config: LVSMConfig, index: int) -> None:
        super().__init__()
        host = encoding(config.encoding, config.head_dim, **config.encoding_options)
        self.attention_norm = nn.LayerNorm(config.dim, eps=1e-5, bias=False)
        self.attention = MultiHeadAttention(config.dim, host, bias=False, qk_norm=True)
        self.ffn_norm = nn.LayerNorm(config.dim, eps=1e-5, bias=False)
        self.widen = nn.Linear(config.dim, config.ffn, bias=False)
        self.narrow = nn.Linear(config.ffn, config.dim, bias=False)
        nn.init.xavier_uniform_(self.attention.qkv.weight)
        for linear in (self.attention.out, self.widen, self.narrow):
            nn.init.normal_(linear.weight, std=0.02 / sqrt(2 * (index + 1)))

    def forward(
        self,
        x: Float[Tensor, "batch token dim"],
        position: Prepared,
        key_mask: Bool[Tensor, "batch token"] | None = None,
        queries: slice = EVERYTHING,
    ) -> Float[Tensor, "batch query dim"]:
        """All tokens, or only the `queries` among them, after attending to all."""
        attended = self.attention(self.attention_norm(x), position, key_mask=key_mask, queries=queries)
        x = x[:, queries] + attended
        return x + self.narrow(self.widen(self.ffn_norm(x)).relu())


class LVSM(nn.Module):
    """Any number of context and target views, of any camera model and aspect ratio, cut into patches of one size."""

    def __init__(self, config: LVSMConfig) -> None:
        super().__init__()
        self.config = config
        area = config.patch**2
        self.encoding = encoding(config.encoding, config.head_dim, **config.encoding_options)
        self.ray_channels = RayChannels(config.conditioning)
        self.context_tokens = nn.Linear((3 + CHANNELS) * area, config.dim, bias=False)
        self.target_tokens = nn.Linear(CHANNELS * area, config.dim, bias=False)
        self.input_norm = nn.LayerNorm(config.dim, eps=1e-5, bias=False)
        self.blocks = nn.ModuleList(LVSMBlock(config, index) for index in range(config.layers))
        self.output_norm = nn.LayerNorm(config.dim, eps=1e-5, bias=False)
        self.pixels = nn.Linear(config.dim, 3 * area, bias=False)

    def forward(
        self,
        context_images: Float[Tensor, "batch context 3 h w"],
        contexts: Views,
        targets: Views,
    ) -> Float[Tensor, "batch target 3 height width"]:
        """Images in [0, 1] as the target cameras would take them; context images are in [0, 1] too."""
        _check(context_images, contexts, targets)
        views = contexts + targets
        rays = self._make_ray_patches(views, range(len(contexts)), context_images)
        rgb = split_into_patches(context_images.movedim(-3, -1), self.config.patch)
        context_tokens = self.context_tokens(torch.cat([rgb, rays], -1)).flatten(1, 2)
        tokens, known = views.tokens(self.config.patch), list(range(len(contexts)))
        each = [
            self._render_target(context_tokens, tokens.select([*known, target]), target)
            for target in range(len(contexts), len(views))
        ]
        return torch.stack(each, 1)

    def _render_target(
        self, context_tokens: Float[Tensor, "batch known dim"], tokens: Tokens, target: int
    ) -> Float[Tensor, "batch 3 height width"]:
        """One target, in its own sequence; in the last layer only its tokens are queries."""
        everywhere, mask = self.encoding.prepare(tokens), _make_key_mask(tokens, len(context_tokens))
        here = self.encoding.prepare(tokens.select([target]), tokens)
        target_tokens = self.target_tokens(
            self._make_ray_patches(tokens.views, [target], context_tokens)[:, 0]
        )
        x = self.input_norm(torch.cat([context_tokens, target_tokens], 1))
        for block in self.blocks[:-1]:
            x = block(x, everywhere, mask)
        x = self.blocks[-1](x, here, mask, slice(context_tokens.shape[1], None))
        rgb = self.pixels(self.output_norm(x)).sigmoid()
        patch, rows = self.config.patch, tokens.views.cameras[target].height // self.config.patch
        # Contiguous: convolutions (LPIPS in the loss) round differently if the channels lie last in memory.
        return join_patches(rgb, patch, rows).movedim(-1, 1).contiguous()

    def _make_ray_patches(
        self, views: Views, indices: Sequence[int], like: Tensor
    ) -> Float[Tensor, "batch view patch channel"]:
        maps = [split_into_patches(self.ray_channels(views, index), self.config.patch) for index in indices]
        return torch.stack([part.expand(len(like), *part.shape[1:]) for part in maps], 1).to(like)


def _make_key_mask(tokens: Tokens, batch: int) -> Bool[Tensor, "batch token"] | None:
    """Nobody attends to patches that no ray reaches (the black corners of a fisheye)."""
    valid = tokens.valid()
    if not torch.compiler.is_compiling() and bool(valid.all()):
        return None
    return valid.expand(batch, -1)


def _check(images: Tensor, contexts: Views, targets: Views) -> None:
    batch, count, _, height, width = images.shape
    sizes = [(camera.width, camera.height) for camera in contexts.cameras]
    if sizes != [(width, height)] * count:
        raise ValueError(
            f"{count} context images of {width}×{height} px, but the context cameras are of {_format_sizes(sizes)}: "
            "resample image and camera together, one camera per image"
        )
    sizes = [(camera.width, camera.height) for camera in targets.cameras]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"targets of different sizes {_format_sizes(sizes)}: call the model once for each size"
        )
    for name, views in (("context", contexts), ("target", targets)):
        if views.batch not in (1, batch):
            raise ValueError(
                f"{batch} context images, but {name} views of batch {views.batch}: make them equal or 1"
            )


def _format_sizes(sizes: list[tuple[int, int]]) -> str:
    return ", ".join(f"{width}×{height}" for width, height in sizes)
