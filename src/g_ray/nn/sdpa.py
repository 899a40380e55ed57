"""Scaled dot-product attention: in chunks of queries, inside windows, and with an explicit backward pass for operators
that recompute their inputs."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def mask_to_bias(key_mask: Bool[Tensor, "batch key"] | None, like: Tensor) -> Tensor | None:
    """Turn a mask of keys to attend to into what is added to the scores: [batch 1 1 key]."""
    if key_mask is None:
        return None
    # Added to the scores: e^−∞ = 0. The fused kernels below take it in the tokens' dtype.
    return torch.zeros_like(key_mask, dtype=like.dtype).masked_fill(~key_mask, float("-inf"))[:, None, None]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, query_chunk: int | None = None) -> Tensor:
    """Compute softmax(qkᵀ/√D + bias) v, by stretches of `query_chunk` queries where memory must stay bounded."""
    if query_chunk is None or q.shape[-2] <= query_chunk:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    parts = [F.scaled_dot_product_attention(part, k, v, attn_mask=bias) for part in q.split(query_chunk, -2)]
    return torch.cat(parts, -2)


def attend_within(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    windows: Sequence[slice],
    query_chunk: int | None = None,
) -> Tensor:
    """Attend inside each of some consecutive windows that fill the sequence; equal ones are one call."""
    count, length = len(windows), windows[0].stop
    # One call with a larger batch beats a call per window: views of one size are the usual case.
    if q.shape[-2] == count * length and all(window.stop - window.start == length for window in windows):
        folded = [_fold_windows(part, count, -2) for part in (q, k, v)]
        spread = None if bias is None else _fold_windows(bias.expand(len(q), -1, -1, -1), count, -1)
        out = attend(folded[0], folded[1], folded[2], spread, query_chunk)
        return out.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)
    parts = []
    for window in windows:
        mask = None if bias is None else bias[..., window]
        inside = [part[..., window, :] for part in (q, k, v)]
        parts.append(attend(inside[0], inside[1], inside[2], mask, query_chunk))
    return torch.cat(parts, -2)


def _fold_windows(x: Tensor, count: int, axis: int) -> Tensor:
    """Fold equal windows along an axis as further samples of the batch: [batch head (window token) …]."""
    return x.unflatten(axis, (count, -1)).movedim(axis - 1, 1).flatten(0, 1)


def has_kernel(q: Float[Tensor, "batch head query dim"]) -> bool:
    """Whether this device has a fused kernel whose log-sum-exp we can keep."""
    return q.device.type == "cpu" and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute the output, and the log-sum-exp of the scores (empty where no kernel gives it)."""
    if not has_kernel(q):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), q.new_empty(0)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=_expand_bias(bias, q, k)
    )


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients in q, k, v; recompute the forward pass where its log-sum-exp is not at hand."""
    if logsumexp.numel():
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return kernel(grad, q, k, v, out, logsumexp, 0.0, False, attn_mask=_expand_bias(bias, q, k))
    with torch.enable_grad():
        inputs = [part.detach().requires_grad_() for part in (q, k, v)]
        again = F.scaled_dot_product_attention(*inputs, attn_mask=bias)
    q_grad, k_grad, v_grad = torch.autograd.grad(again, inputs, grad)
    return q_grad, k_grad, v_grad


def _expand_bias(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    return None if bias is None else bias.expand(q.shape[0], 1, q.shape[-2], k.shape[-2])
