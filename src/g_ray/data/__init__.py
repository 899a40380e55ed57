"""Scenes that carry their own ground truth."""

from g_ray.data.nvs import NVSBatch, NVSSource
from g_ray.data.resample import resample
from g_ray.data.rooms import Rendering, Room, random_room
from g_ray.data.rooms_nvs import RoomsNVS

__all__ = ["NVSBatch", "NVSSource", "Rendering", "Room", "RoomsNVS", "random_room", "resample"]
