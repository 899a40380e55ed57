"""Transformer layers with any encoding passed in: multi-head self-attention, and a block as in vision transformers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from g_ray.encodings.encoding_base import Encoding, Prepared
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.nn.attention import attention, compute_attention_weights, is_private
from g_ray.nn.per_camera_attention import DepthPredictor

EVERYTHING = slice(None)


class MultiHeadAttention(nn.Module):
    """qkv projection, optional norm of q and k (per head, before the encoding), attention, output projection.

    Holds parameters only: positions come with every call, prepared once per forward pass by the encoding.
    """

    def __init__(
        self,
        dim: int,
        encoding: Encoding,
        *,
        bias: bool = True,
        qk_norm: bool = False,
        norm: type[nn.RMSNorm] | type[nn.LayerNorm] = nn.RMSNorm,
    ) -> None:
        super().__init__()
        if dim % encoding.head_dim:
            raise ValueError(
                f"width {dim} is not a multiple of the encoding's head dimension {encoding.head_dim}"
            )
        self.head_dim = encoding.head_dim
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.q_norm = norm(self.head_dim, eps=1e-5) if qk_norm else nn.Identity()
        self.k_norm = norm(self.head_dim, eps=1e-5) if qk_norm else nn.Identity()
        self.depth = DepthPredictor(dim) if encoding.needs_depth else None

    def forward(
        self,
        x: Float[Tensor, "batch token dim"],
        position: Prepared | None,
        *,
        key_mask: Bool[Tensor, "batch token"] | None = None,
        query_chunk: int | None = None,
        queries: slice = EVERYTHING,
        windows: Sequence[slice] | None = None,
    ) -> Float[Tensor, "batch query dim"]:
        """Let every token attend to every token; with `queries` only those tokens attend and are returned.

        The position must then be prepared for them: `encoding.prepare(tokens.select(views), tokens)`.
        With `windows` (see `attention`) tokens attend inside their own.
        """
        q, k, v = self._project(x, queries)
        if self.depth is not None and isinstance(position, PerCamera):
            raw = self.depth(x)
            position = position.with_depth(raw[:, queries], raw)
        q, k = self.q_norm(q), self.k_norm(k)
        # Tokens before heads until here: equal windows then fold into the batch without a copy.
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        overwrite = is_private([self.qkv], [self.q_norm, self.k_norm])
        out = attention(
            q,
            k,
            v,
            position,
            key_mask=key_mask,
            query_chunk=query_chunk,
            windows=windows,
            overwrite=overwrite,
        )
        return self.out(out.transpose(1, 2).flatten(2))

    def compute_weights(
        self,
        x: Float[Tensor, "batch token dim"],
        position: Prepared | None,
        queries: slice,
        *,
        key_mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch head query token"]:
        """Compute how much some tokens attend to every token: rows of the softmax that `forward` never writes down."""
        q, k, _ = self._project(x, queries)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        return compute_attention_weights(q, k, position, queries, key_mask=key_mask)

    def _project(self, x: Tensor, queries: slice) -> tuple[Tensor, Tensor, Tensor]:
        if queries == EVERYTHING:
            q, k, v = self._split_heads(self.qkv(x), 3)
            return q, k, v
        dim, bias = x.shape[-1], self.qkv.bias
        query_bias, key_value_bias = (None, None) if bias is None else (bias[:dim], bias[dim:])
        (q,) = self._split_heads(F.linear(x[:, queries], self.qkv.weight[:dim], query_bias), 1)
        k, v = self._split_heads(F.linear(x, self.qkv.weight[dim:], key_value_bias), 2)
        return q, k, v

    def _split_heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Reshape to [batch token head dim], once for each part."""
        return x.unflatten(-1, (parts, -1, self.head_dim)).unbind(2)


# A transformer layer as vision transformers have it: pre-norm, biases, layer scale, any encoding passed in.


class LayerScale(nn.Module):
    """x + γ ⊙ y with a learned γ per channel, in one pass."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), start))

    def forward(
        self, x: Float[Tensor, "batch token dim"], y: Float[Tensor, "batch token dim"]
    ) -> Float[Tensor, "batch token dim"]:
        return torch.addcmul(x, self.gamma.to(x.dtype), y.to(x.dtype))


class MLP(nn.Module):
    """W₂ GELU(W₁ x)."""

    def __init__(self, dim: int, hidden: int, out: int | None = None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim if out is None else out)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token out"]:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """x + γ₁ Attention(LN x), then x + γ₂ MLP(LN x).

    Parameters are named as in DINOv2's and VGGT's checkpoints, but for `attn.out`, their `attn.proj`.
    """

    def __init__(
        self,
        dim: int,
        encoding: Encoding,
        *,
        layer_scale: float = 1.0,
        qk_norm: bool = False,
        eps: float = 1e-6,
        mlp_ratio: int = 4,
        mlp: nn.Module | None = None,
    ) -> None:
        """Build the layer; `mlp` replaces the usual MLP with GELU."""
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = MultiHeadAttention(dim, encoding, qk_norm=qk_norm, norm=nn.LayerNorm)
        self.ls1 = LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLP(dim, mlp_ratio * dim) if mlp is None else mlp
        self.ls2 = LayerScale(dim, layer_scale)

    def forward(
        self,
        x: Float[Tensor, "batch token dim"],
        position: Prepared | None = None,
        *,
        key_mask: Bool[Tensor, "batch token"] | None = None,
        query_chunk: int | None = None,
        windows: Sequence[slice] | None = None,
    ) -> Float[Tensor, "batch token dim"]:
        """Apply the layer; options are those of `g_ray.nn.attention.attention`."""
        attended = self.attn(
            self.norm1(x), position, key_mask=key_mask, query_chunk=query_chunk, windows=windows
        )
        x = self.ls1(x, attended)
        return self.ls2(x, self.mlp(self.norm2(x)))


# Activation recomputation: backward keeps the inputs of a part of the network and computes the rest again.


def run_part(part: Callable[..., Tensor], *inputs: Any, recompute: bool, **options: Any) -> Tensor:
    """Compute `part(*inputs, **options)`; with `recompute`, backward keeps the inputs alone. Gradients are the same."""
    if not (recompute and torch.is_grad_enabled()):
        return part(*inputs, **options)
    # Nothing here is random, and saving a generator's state would wait for the GPU.
    out = checkpoint(part, *inputs, use_reentrant=False, preserve_rng_state=False, **options)
    assert isinstance(out, Tensor)
    return out
