"""RayRoPE's depth predictor: one linear layer that starts as 'anything between e⁻³ and e³'."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from g_ray.encodings._pairs import compute_adjacent_order, make_pairs_adjacent
from g_ray.encodings.base import Encoding, Prepared, Tokenwise
from g_ray.encodings.per_camera import PerCamera
from g_ray.encodings.rotation import Rotation
from g_ray.nn.attention import attention, compute_attention_weights


class DepthPredictor(nn.Module):
    """raw (ℓ, σ) = W x + b per token, shared by all heads; W starts at zero, b at (0, 3)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 2)
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.bias.copy_(torch.tensor([0.0, 3.0]))

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token 2"]:
        return self.linear(x)


# Multi-head self-attention with any encoding passed in.


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
        """Every token attends to every token; with `queries` only those tokens ask, and only they are returned.

        The position must then be prepared for them: `encoding.prepare(tokens.select(views), tokens)`.
        With `windows` (see `attention`) tokens attend inside their own.
        """
        order = (
            None
            if torch.is_grad_enabled() or torch.compiler.is_compiling()
            else compute_adjacent_order(position)
        )
        if order is not None:
            # Split halves take seven to fifteen times as long to rotate as adjacent pairs, more than moving weights.
            assert isinstance(position, Tokenwise)
            parameters = self._reorder_parameters(order, values=isinstance(position.value, Rotation))
            options = {
                "key_mask": key_mask,
                "query_chunk": query_chunk,
                "queries": queries,
                "windows": windows,
            }
            return functional_call(self, parameters, (x, make_pairs_adjacent(position)), options)
        q, k, v = self._project(x, queries)
        if self.depth is not None and isinstance(position, PerCamera):
            raw = self.depth(x)
            position = position.with_depth(raw[:, queries], raw)
        # Tokens before heads until here: equal windows then fold into the batch without a copy.
        q, k, v = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)
        options = {"key_mask": key_mask, "query_chunk": query_chunk, "windows": windows}
        out = attention(q, k, v, position, consume=True, **options)
        return self.out(out.transpose(1, 2).flatten(2))

    def compute_weights(
        self,
        x: Float[Tensor, "batch token dim"],
        position: Prepared | None,
        query: int,
        *,
        key_mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch head token"]:
        """How much token `query` attends to every token: the softmax that `forward` never writes down."""
        q, k, _ = self._project(x, slice(query, query + 1))
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        return compute_attention_weights(q, k, position, query, key_mask=key_mask)

    def _reorder_parameters(self, order: Int[Tensor, "dim"], values: bool) -> dict[str, Tensor]:
        """Parameters of the same layer with other places for the channels of a head, those of values too if asked."""
        as_before = torch.arange(self.out.in_features, device=order.device)
        moved = (as_before[:: self.head_dim, None] + order).flatten()
        places = torch.stack([moved, moved, moved if values else as_before])
        rows = (places + len(moved) * torch.arange(3, device=order.device)[:, None]).flatten()
        parameters = {
            f"qkv.{name}": value.index_select(0, rows) for name, value in self.qkv.named_parameters()
        }
        for norm in ("q_norm", "k_norm"):
            named = self.get_submodule(norm).named_parameters()
            parameters |= {f"{norm}.{name}": value.index_select(0, order) for name, value in named}
        return {**parameters, "out.weight": self.out.weight.index_select(1, places[2])}

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
        """[batch token head dim], once for each part."""
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

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token dim"]:
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
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = MultiHeadAttention(dim, encoding, qk_norm=qk_norm, norm=nn.LayerNorm)
        self.ls1 = LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLP(dim, mlp_ratio * dim)
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
        """Options as of `g_ray.nn.attention.attention`."""
        attended = self.attn(
            self.norm1(x), position, key_mask=key_mask, query_chunk=query_chunk, windows=windows
        )
        x = self.ls1(x, attended)
        return self.ls2(x, self.mlp(self.norm2(x)))
