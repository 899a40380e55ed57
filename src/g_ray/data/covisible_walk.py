"""Which views of a scene make a set: a walk from view to view, each step to one that sees much of the same."""

import numpy as np
from jaxtyping import Float

RESTARTS = 4
"""Further walks, elsewhere, if one does not get far enough."""


def overlaps(covisibility: Float[np.ndarray, "view view"]) -> Float[np.ndarray, "view view"]:
    """Mean of both directions over what view i sees of itself (its share of pixels with depth); 0 on the diagonal.

    As MapAnything samples its sets: c_ij = (C_ij + C_ji) / 2 C_ii.
    """
    both = (covisibility + covisibility.T) / 2
    overlap = both / (np.diag(covisibility)[:, None] + 1e-8)
    np.fill_diagonal(overlap, 0)
    return overlap


def covisible_views(
    random: np.random.Generator, overlap: Float[np.ndarray, "view view"], count: int, threshold: float
) -> list[int]:
    """`count` views, the first anywhere; every further one overlaps with an earlier one by more than `threshold`.

    A walk that is stuck goes on from the view before. If no walk finds so many views, views of the longest one come
    more than once.
    """
    free = np.ones(len(overlap), dtype=bool)
    longest: list[int] = []
    for _ in range(1 + RESTARTS):
        if not free.any():
            break
        found = _walk(random, overlap, count, threshold, int(random.choice(np.flatnonzero(free))))
        free[found] = False
        if len(found) > len(longest):
            longest = found
        if len(longest) == count:
            return longest
    again = random.choice(len(longest), count - len(longest))
    return [*longest, *(longest[int(index)] for index in again)]


def _walk(
    random: np.random.Generator, overlap: np.ndarray, count: int, threshold: float, start: int
) -> list[int]:
    found, path = [start], [start]
    seen = np.zeros(len(overlap), dtype=bool)
    seen[start] = True
    while path and len(found) < count:
        near = np.flatnonzero((overlap[path[-1]] > threshold) & ~seen)
        if not len(near):
            path.pop()
            continue
        step = int(random.choice(near))
        seen[step] = True
        found.append(step)
        path.append(step)
    return found
