"""The naive operator: every score written out, every rotation differentiated. Slow on purpose."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.encodings.encoding_base import Prepared, Tokenwise
from g_ray.encodings.expected_rotation import PerCamera


def naive_attention(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    v: Float[Tensor, "batch head key dim"],
    position: Prepared | None = None,
    *,
    key_mask: Bool[Tensor, "batch key"] | None = None,
    overwrite: bool = False,
) -> Float[Tensor, "batch head query dim"]:
    """Compute what `attention` must, for any encoding."""
    if isinstance(position, PerCamera):
        return _attend_per_camera(q, k, v, position, key_mask)
    if isinstance(position, Tokenwise):
        q, k, v = position.query.apply_plain(q), position.key.apply_plain(k), position.value.apply_plain(v)
    out = _attend_softmax(q, k, v, key_mask)
    return position.output.apply_plain(out) if isinstance(position, Tokenwise) else out


def _attend_per_camera(
    q: Tensor, k: Tensor, v: Tensor, position: PerCamera, key_mask: Tensor | None
) -> Tensor:
    """Attend one query at a time, as its own camera sees all keys."""
    query_ends, key_ends = position.get_depth_ends()
    turn = position.compute_query_rotation(query_ends)
    q = turn.apply_plain(q)
    outputs = []
    for token, view in enumerate(position.queries.get_view_of_token().tolist()):
        keys, values = k, v
        if view >= 0:
            key_rotation = position.compute_key_rotation(view, key_ends)
            keys, values = (
                key_rotation.apply_plain(k),
                key_rotation.apply_plain(v) if position.rotate_values else v,
            )
        outputs.append(_attend_softmax(q[..., token : token + 1, :], keys, values, key_mask))
    out = torch.cat(outputs, -2)
    return turn.adjoint().apply_plain(out) if position.rotate_values else out


def _attend_softmax(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None], float("-inf"))
    return scores.softmax(-1) @ v
