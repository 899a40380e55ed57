"""The positional prior: what attention would see if all features were the same."""

from jaxtyping import Float
from torch import Tensor

from g_ray.encodings.rotation import Rotation


def position_score(
    queries: Float[Tensor, "*query axis"], keys: Float[Tensor, "*key axis"], frequencies: Float[Tensor, "n"]
) -> Float[Tensor, "..."]:
    """Compute s(i, j) = Σ_a Σ_k 2 cos(ω_k (ξ_i − ξ_j)) for all pairs (paper, eq:app_score): [*query, *key]."""
    flat_queries, flat_keys = queries.flatten(0, -2), keys.flatten(0, -2)
    difference = flat_queries[:, None] - flat_keys[None]
    score = 2 * (difference[..., None] * frequencies.to(difference)).cos().sum((-1, -2))
    return score.reshape(*queries.shape[:-1], *keys.shape[:-1])


def probe_score(query: Rotation, key: Rotation) -> Float[Tensor, "... query key"]:
    """Compute the same by the probe q = k = 1 through the rotations themselves (eq:app_planarro, eq:app_cos)."""
    ones = query.cos.new_ones(())
    rotated_query = query.apply_plain(ones.expand(*query.cos.shape[:-2], query.channels))
    rotated_key = key.apply_plain(ones.expand(*key.cos.shape[:-2], key.channels))
    return rotated_query @ rotated_key.mT
