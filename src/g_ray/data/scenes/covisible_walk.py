"""Which views of a scene make a set: a walk from view to view, each step to one that sees much of the same."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

RESTARTS = 4
"""Further walks, elsewhere, if one does not get far enough."""


def compute_overlap(covisibility: Float[np.ndarray, "view view"], view: int) -> Float[np.ndarray, "view"]:
    """Of one view with every other: the mean of both directions over what it sees of itself, its share of pixels with
    depth; 0 with itself. As MapAnything samples its sets: c_ij = (C_ij + C_ji) / 2 C_ii."""
    both = (covisibility[view] + covisibility[:, view]) / 2
    shared = both / (covisibility[view, view] + 1e-8)
    shared[view] = 0
    return shared


def draw_covisible_views(
    random: np.random.Generator,
    covisibility: Float[np.ndarray, "view view"],
    count: int,
    threshold: float,
    allowed: Sequence[int],
) -> list[int]:
    """`count` of the allowed views, the first any of them; every further one overlaps with an earlier one by more than
    `threshold`.

    A walk that is stuck goes on from the view before. If no walk finds so many views, views of the longest one come
    more than once.
    """
    free = np.zeros(len(covisibility), dtype=bool)
    free[list(allowed)] = True
    unvisited, longest = free.copy(), list[int]()
    for _ in range(1 + RESTARTS):
        if not unvisited.any():
            break
        start = int(random.choice(np.flatnonzero(unvisited)))
        visited = _walk(random, covisibility, count, threshold, start, free.copy())
        unvisited[visited] = False
        if len(visited) > len(longest):
            longest = visited
        if len(longest) == count:
            return longest
    again = random.choice(len(longest), count - len(longest))
    return [*longest, *(longest[int(index)] for index in again)]


def _walk(
    random: np.random.Generator,
    covisibility: np.ndarray,
    count: int,
    threshold: float,
    start: int,
    free: np.ndarray,
) -> list[int]:
    """Takes what it visits out of `free`."""
    visited, path = [start], [start]
    free[start] = False
    while path and len(visited) < count:
        near = np.flatnonzero((compute_overlap(covisibility, path[-1]) > threshold) & free)
        if not len(near):
            path.pop()
            continue
        step = int(random.choice(near))
        free[step] = False
        visited.append(step)
        path.append(step)
    return visited
