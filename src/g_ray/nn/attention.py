"""One attention for every encoding: self or cross, with special tokens, masks and bounded memory."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.encodings.encoding_base import Prepared, Tokenwise
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.nn import sdpa
from g_ray.nn.per_camera_attention import PerCameraAttention, attend_per_camera


def attention(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    v: Float[Tensor, "batch head key dim"],
    position: Prepared | None = None,
    *,
    key_mask: Bool[Tensor, "batch key"] | None = None,
    query_chunk: int | None = None,
    windows: Sequence[slice] | None = None,
    overwrite: bool = False,
) -> Float[Tensor, "batch head query dim"]:
    """Compute softmax(qkᵀ/√D) v with the encoding's transforms around it (paper, eq:qkv to eq:output).

    Replaces `F.scaled_dot_product_attention(q, k, v)`. `key_mask` is True for keys that count; `query_chunk` is
    the number of queries evaluated at a time, exactly, where the backend would otherwise hold all scores. With
    `windows`, consecutive stretches that fill the sequence (one per view, say), tokens attend inside their own. With
    `overwrite` q, k and v, which share no memory, may be lost, which saves memory where no gradient is needed.
    """
    _check(q, k, v, key_mask, query_chunk)
    if position is not None:
        _check_position(q, k, position)
    # Before the encoding, which rotates in float32 but returns the tokens' dtype: the kernel then gets bf16.
    q, k, v = _cast_for_autocast(q), _cast_for_autocast(k), _cast_for_autocast(v)
    bias = sdpa.mask_to_bias(key_mask, q)
    if position is None:
        return _attend(q, k, v, bias, query_chunk, windows)
    if isinstance(position, Tokenwise):
        maps = zip((position.query, position.key, position.value), (q, k, v), strict=True)
        q, k, v = (part.apply(x, overwrite=overwrite) for part, x in maps)
        return position.output.apply(_attend(q, k, v, bias, query_chunk, windows), overwrite=True)
    assert isinstance(position, PerCamera)
    if windows is not None:
        raise ValueError(
            "windows: keys that look different from every camera (RayRoPE) attend everywhere only"
        )
    # The operator that saves memory has no gradient for cameras, and Inductor cannot trace it.
    if torch.compiler.is_compiling() or any(part.requires_grad for part in position.get_camera_tensors()):
        return attend_per_camera(q, k, v, position, bias, query_chunk)
    return PerCameraAttention.apply(q, k, v, *position.get_depth_ends(), position, bias, query_chunk)  # pyright: ignore


def is_private(projections: Sequence[nn.Module], norms: Sequence[nn.Module] = ()) -> bool:
    """Whether nobody else sees what these modules return, so that `attention` may overwrite it."""
    is_known = all(type(module) is nn.Linear for module in projections)
    return is_known and not any(module._forward_hooks for module in (*projections, *norms))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, chunk: int | None, windows: Sequence[slice] | None
) -> Tensor:
    if windows is None:
        return sdpa.attend(q, k, v, bias, chunk)
    _check_windows(q, k, windows)
    return sdpa.attend_within(q, k, v, bias, windows, chunk)


def _check_windows(q: Tensor, k: Tensor, windows: Sequence[slice]) -> None:
    ends = [0, *(window.stop for window in windows)]
    if [window.start for window in windows] != ends[:-1] or not q.shape[2] == k.shape[2] == ends[-1]:
        raise ValueError(
            f"windows {[(window.start, window.stop) for window in windows]} do not fill {q.shape[2]} queries and "
            f"{k.shape[2]} keys one after the other: give e.g. the slices of layout.runs()"
        )


def _cast_for_autocast(x: Tensor) -> Tensor:
    """Cast as F.scaled_dot_product_attention casts its inputs under autocast."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def _check(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, query_chunk: int | None) -> None:
    if k.shape != v.shape or q.shape[:2] != k.shape[:2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit: "
            "expected [batch, head, token, dim] with equal batch, head and dim"
        )
    if key_mask is not None and key_mask.shape != (k.shape[0], k.shape[2]):
        raise ValueError(
            f"key_mask {tuple(key_mask.shape)} must be [batch, key] = {(k.shape[0], k.shape[2])}"
        )
    if query_chunk is not None and query_chunk < 1:
        raise ValueError(f"query_chunk {query_chunk} must be positive")


def _check_position(q: Tensor, k: Tensor, position: Prepared) -> None:
    if q.shape[-1] != position.head_dim:
        raise ValueError(
            f"q has head dimension {q.shape[-1]}, but the encoding was made for head dimension {position.head_dim}"
        )
    if position.batch not in (1, q.shape[0]):
        raise ValueError(
            f"q has batch size {q.shape[0]}, but the encoding was prepared for views of batch {position.batch}"
        )
    for name, tokens, layout in (("query", q, position.queries), ("key", k, position.keys)):
        if tokens.shape[2] != len(layout):
            raise ValueError(
                f"{tokens.shape[2]} {name} tokens, but the encoding was prepared for {len(layout)}: "
                "count special tokens in views.tokens(special=…)"
            )


# What tokens attend to: rows of the softmax, for those who want to look at them.


def compute_attention_weights(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    position: Prepared | None,
    queries: slice,
    *,
    key_mask: Bool[Tensor, "batch key"] | None = None,
) -> Float[Tensor, "batch head query key"]:
    """Compute softmax((E q)ᵀ(E k)/√D) of the tokens `queries`, whose q are given before the encoding (eq:qkv).

    In float32 or better: it is meant to be read, not to be fast.
    """
    if position is not None and not isinstance(position, Tokenwise):
        raise ValueError(
            "attention weights: keys that look different from every camera (RayRoPE) have no single row"
        )
    q, k = (part.float() if part.element_size() < 4 else part for part in (q, k))
    if position is not None:
        # The map belongs to a whole sequence: the queries are put where they stand in it.
        spread = q.new_zeros(*q.shape[:2], len(position.queries), q.shape[-1])
        spread[:, :, queries] = q
        q = position.query.apply(spread)[:, :, queries]
        k = position.key.apply(k)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    bias = sdpa.mask_to_bias(key_mask, scores)
    return (scores if bias is None else scores + bias).softmax(-1)
