"""Which views of a scene to compare: near each other, with some motion between them, spread over the scene."""

from collections.abc import Sequence

import torch

from g_ray.data.scenes.nvs import compute_view_distances
from g_ray.geometry.pose import Pose

ALONG = (1, 4)
"""Frames between two views that follow each other in a video; poses that are read wrongly cannot spoil this choice."""
NEAR = (0.05, 0.15)
"""Ranks, as shares of all views, of views that are near by place and direction."""


def pick_evenly(items: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly."""
    if count <= 0 or len(items) <= count:
        return list(items)
    return [items[int(place)] for place in torch.linspace(0, len(items) - 1, count)]


def choose_view_pairs(poses: Pose, views: Sequence[int], count: int) -> list[tuple[int, int]]:
    """At most about `count` pairs of these views, no pair twice."""
    among = torch.tensor(list(views))
    local = Pose(poses.world_from_cam[among])
    pairs = []
    for place in pick_evenly(range(len(among)), max(1, count // (len(ALONG) + len(NEAR)))):
        order = compute_view_distances(local, place).argsort(stable=True).tolist()
        partners = [place + step for step in ALONG if place + step < len(among)]
        partners += [order[max(1, round(rank * len(order)))] for rank in NEAR if len(order) > 1]
        pairs += [(min(place, other), max(place, other)) for other in partners if other != place]
    return [(int(among[a]), int(among[b])) for a, b in dict.fromkeys(pairs)]
