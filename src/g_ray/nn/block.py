"""A transformer layer as vision transformers have it: pre-norm, biases, layer scale, any encoding passed in."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings.base import Encoding, Prepared
from g_ray.nn.multi_head import MultiHeadAttention


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
