"""Scenes that carry their own ground truth."""

from g_ray.data.rooms import Rendering, Room, random_room

__all__ = ["Rendering", "Room", "random_room"]
