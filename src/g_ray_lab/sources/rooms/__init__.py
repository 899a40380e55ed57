"""Procedural rooms, ray cast exactly for any camera, and what is learned from them."""

from g_ray.demo.room import Rendering, Room, make_random_room

__all__ = ["Rendering", "Room", "make_random_room"]
