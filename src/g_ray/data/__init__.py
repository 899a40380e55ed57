"""Scenes that carry their own ground truth."""

from g_ray.data.nvs import NVSBatch, RoomsNVS
from g_ray.data.resample import resample
from g_ray.data.rooms import Rendering, Room, random_room

__all__ = ["NVSBatch", "Rendering", "Room", "RoomsNVS", "random_room", "resample"]
