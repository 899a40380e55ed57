"""Scenes that carry their own ground truth."""

from g_ray.data.nvs import NVSBatch, NVSSource
from g_ray.data.reconstruction import MixtureReconstruction, ReconstructionBatch, ReconstructionSource
from g_ray.data.rooms import Rendering, Room, make_random_room
from g_ray.data.rooms.nvs import RoomsNVS
from g_ray.data.rooms.reconstruction import RoomsReconstruction
from g_ray.data.scenes.reconstruction import ScenesReconstruction
from g_ray.rays.resample import resample

__all__ = [
    "MixtureReconstruction",
    "NVSBatch",
    "NVSSource",
    "ReconstructionBatch",
    "ReconstructionSource",
    "Rendering",
    "Room",
    "RoomsNVS",
    "RoomsReconstruction",
    "ScenesReconstruction",
    "make_random_room",
    "resample",
]
