"""Scenes that carry their own ground truth."""

from g_ray.data.mixture import MixtureReconstruction
from g_ray.data.nvs import NVSBatch, NVSSource
from g_ray.data.reconstruction import ReconstructionBatch, ReconstructionSource
from g_ray.data.resample import resample
from g_ray.data.rooms import Rendering, Room, make_random_room
from g_ray.data.rooms.nvs import RoomsNVS
from g_ray.data.rooms.reconstruction import RoomsReconstruction
from g_ray.data.scenes.reconstruction import ScenesReconstruction

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
