"""The naive operator: every score written out, every rotation differentiated. Slow on purpose."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.encodings.base import Prepared, Tokenwise
from g_ray.encodings.per_camera import PerCamera


def naive_attention(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    v: Float[Tensor, "batch head key dim"],
    position: Prepared | None = None,
    *,
    key_mask: Bool[Tensor, "batch key"] | None = None,
) -> Float[Tensor, "batch head query dim"]:
    """What `attention` must compute, for any encoding."""
    if isinstance(position, PerCamera):
        return _per_camera(q, k, v, position, key_mask)
    if isinstance(position, Tokenwise):
        q, k, v = position.query.plain(q), position.key.plain(k), position.value.plain(v)
    out = _softmax_attention(q, k, v, key_mask)
    return position.output.plain(out) if isinstance(position, Tokenwise) else out


def _per_camera(q: Tensor, k: Tensor, v: Tensor, position: PerCamera, key_mask: Tensor | None) -> Tensor:
    """One query at a time, as its own camera sees all keys."""
    query_ends, key_ends = position.depth_ends()
    turn = position.query_rotation(query_ends)
    q = turn.plain(q)
    outputs = []
    for token, view in enumerate(position.queries.view_of_token().tolist()):
        keys, values = k, v
        if view >= 0:
            seen = position.key_rotation(view, key_ends)
            keys, values = seen.plain(k), seen.plain(v) if position.rotate_values else v
        outputs.append(_softmax_attention(q[..., token : token + 1, :], keys, values, key_mask))
    out = torch.cat(outputs, -2)
    return turn.adjoint().plain(out) if position.rotate_values else out


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None], float("-inf"))
    return scores.softmax(-1) @ v
