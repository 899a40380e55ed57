"""Transformer layers with any encoding passed in: multi-head self-attention, and a block as in vision transformers.

Networks are trained and stored with the channels of a head in split halves. `prepare_for_inference` reorders the
weights of a loaded network once, so that pairs stand side by side, which is faster (see `g_ray.encodings.rotation`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from g_ray.encodings.encoding_base import Encoding, Prepared, Tokenwise
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.encodings.rotation import compute_adjacent_order, has_adjacent_form, make_pairs_adjacent
from g_ray.nn.attention import attention, compute_attention_weights
from g_ray.nn.per_camera_attention import DepthPredictor

Network = TypeVar("Network", bound=nn.Module)

EVERYTHING = slice(None)


class MultiHeadAttention(nn.Module):
    """qkv projection, optional norm of q and k (per head, before the encoding), attention, output projection.

    Holds parameters only: positions come with every call, prepared once per forward pass by the encoding.

    `pair_channels` permutes the channels of every head in place, `restore_channels` undoes it. The function computed
    and the state dict stay the same: only speed differs.
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
        self.pair_blocks = encoding.pair_blocks
        self.is_paired = False
        self.register_state_dict_post_hook(_store_split_halves)
        self.register_load_state_dict_pre_hook(_load_split_halves)

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
        """Let every token attend to every token; with `queries` only those tokens ask, and only they are returned.

        The position must then be prepared for them: `encoding.prepare(tokens.select(views), tokens)`.
        With `windows` (see `attention`) tokens attend inside their own.
        """
        q, k, v = self._project(x, queries)
        if self.depth is not None and isinstance(position, PerCamera):
            raw = self.depth(x)
            position = position.with_depth(raw[:, queries], raw)
        q, k = self.q_norm(q), self.k_norm(k)
        is_foreign = self._is_foreign(position)
        if is_foreign:
            q, k, v = (part[..., self._compute_order().argsort()] for part in (q, k, v))
        # Tokens before heads until here: equal windows then fold into the batch without a copy.
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        options = {"key_mask": key_mask, "query_chunk": query_chunk, "windows": windows}
        out = attention(q, k, v, self._adapt_position(position), consume=True, **options).transpose(1, 2)
        return self.out((out[..., self._compute_order()] if is_foreign else out).flatten(2))

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
        if self._is_foreign(position):
            q, k = (part[..., self._compute_order().argsort()] for part in (q, k))
        return compute_attention_weights(
            q.transpose(1, 2), k.transpose(1, 2), self._adapt_position(position), queries, key_mask=key_mask
        )

    def pair_channels(self) -> None:
        """Put the channels of rotated pairs side by side, in place, if the encoding is nothing but rotations."""
        if self.pair_blocks is not None and not self.is_paired:
            self._permute_parameters(self._compute_order())
            self.is_paired = True

    def restore_channels(self) -> None:
        """Put the channels back into split halves, in place."""
        if self.is_paired:
            self._permute_parameters(self._compute_order().argsort())
            self.is_paired = False

    def train(self, mode: bool = True) -> "MultiHeadAttention":
        """Set training or evaluation mode. Training sees the stored order: optimizers keep state per channel."""
        if mode:
            self.restore_channels()
        super().train(mode)
        return self

    def _is_foreign(self, position: Prepared | None) -> bool:
        """Whether channels are paired but the position is another encoding's, which knows split halves alone."""
        return self.is_paired and not has_adjacent_form(position, self.pair_blocks or 0)

    def _adapt_position(self, position: Prepared | None) -> Prepared | None:
        if self.is_paired and isinstance(position, Tokenwise) and not self._is_foreign(position):
            return make_pairs_adjacent(position)
        return position

    def _compute_order(self) -> Int[Tensor, "dim"]:
        assert self.pair_blocks is not None
        return compute_adjacent_order(self.head_dim, self.pair_blocks, self.out.weight.device)

    @torch.no_grad()
    def _permute_parameters(self, order: Int[Tensor, "dim"]) -> None:
        for name, permute in self._iterate_permutations(order):
            parameter = self.get_parameter(name)
            parameter.data = permute(parameter.data)  # new memory: other modules may share the old

    def _iterate_permutations(
        self, order: Int[Tensor, "dim"]
    ) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        """Yield every parameter with a channel axis, and how it is permuted when the channels of each head are."""
        for name, _ in self.qkv.named_parameters():  # rows: q, k, v, each with its heads
            yield f"qkv.{name}", lambda value: self._permute_heads(value, order, 0)
        for norm in ("q_norm", "k_norm"):
            for name, _ in self.get_submodule(norm).named_parameters():
                yield f"{norm}.{name}", lambda value: value[order.to(value.device)]
        yield "out.weight", lambda value: self._permute_heads(value, order, 1)

    def _permute_heads(self, value: Tensor, order: Int[Tensor, "dim"], axis: int) -> Tensor:
        heads = value.unflatten(axis, (-1, self.head_dim))
        return heads.index_select(axis + 1, order.to(value.device)).flatten(axis, axis + 1)

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


def _store_split_halves(
    layer: MultiHeadAttention, state: dict[str, Any], prefix: str, metadata: dict[str, Any]
) -> None:
    """State-dict hook: whatever order the channels have in memory, they are stored in split halves."""
    if layer.is_paired:
        for name, permute in layer._iterate_permutations(layer._compute_order().argsort()):
            state[prefix + name] = permute(state[prefix + name])


def _load_split_halves(layer: MultiHeadAttention, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """State-dict hook: undo `_store_split_halves`."""
    if layer.is_paired:
        for name, permute in layer._iterate_permutations(layer._compute_order()):
            if prefix + name in state:
                state[prefix + name] = permute(state[prefix + name])


def prepare_for_inference(model: Network) -> Network:
    """Switch a network to evaluation mode and pair the channels of its attention layers, once and in place.

    Outputs agree to rounding, the state dict exactly; `model.train()` undoes it. Do not mix its `parameters()` with
    those of an unprepared copy (as averages of weights do): use state dicts.
    """
    model.eval()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.pair_channels()
    return model


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
