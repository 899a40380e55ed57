"""Scenes that carry their own ground truth."""

from g_ray.data.nvs import NVSBatch, NVSSource
from g_ray.data.reconstruction import ReconstructionBatch, ReconstructionSource
from g_ray.data.resample import resample
from g_ray.data.rooms import Rendering, Room, random_room
from g_ray.data.rooms_nvs import RoomsNVS
from g_ray.data.rooms_reconstruction import RoomsReconstruction

__all__ = [
    "NVSBatch",
    "NVSSource",
    "ReconstructionBatch",
    "ReconstructionSource",
    "Rendering",
    "Room",
    "RoomsNVS",
    "RoomsReconstruction",
    "random_room",
    "resample",
]
