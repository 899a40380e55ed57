"""What one token attends to: a row of the softmax, for those who want to look at it."""

from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.encodings.base import Prepared, Tokenwise
from g_ray.nn import sdpa


def compute_attention_weights(
    q: Float[Tensor, "batch head 1 dim"],
    k: Float[Tensor, "batch head key dim"],
    position: Prepared | None,
    query: int,
    *,
    key_mask: Bool[Tensor, "batch key"] | None = None,
) -> Float[Tensor, "batch head key"]:
    """softmax((E q)ᵀ(E k)/√D) of the token number `query`, whose q is given before the encoding (eq:qkv).

    In float32 or better: it is meant to be read, not to be fast.
    """
    if position is not None and not isinstance(position, Tokenwise):
        raise ValueError(
            "attention weights: keys that look different from every camera (RayRoPE) have no single row"
        )
    q, k = (part.float() if part.element_size() < 4 else part for part in (q, k))
    if position is not None:
        # The map belongs to a whole sequence: the query is put where it stands in it.
        spread = q.new_zeros(*q.shape[:2], len(position.queries), q.shape[-1])
        spread[:, :, query] = q[:, :, 0]
        q = position.query.apply(spread)[:, :, query : query + 1]
        k = position.key.apply(k)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    bias = sdpa.mask_to_bias(key_mask, scores)
    return (scores if bias is None else scores + bias).softmax(-1)[:, :, 0]
