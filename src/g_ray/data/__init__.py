"""Scenes that carry their own ground truth.

Names are imported when first used: the settings in this package are read by the command line, which does not import
torch.
"""

from typing import TYPE_CHECKING

from g_ray.runtime.lazy_names import make_getattr

if TYPE_CHECKING:
    from g_ray.data.nvs import NVSBatch as NVSBatch
    from g_ray.data.nvs import NVSSource as NVSSource
    from g_ray.data.nvs_settings import RoomsData as RoomsData
    from g_ray.data.reconstruction import ReconstructionBatch as ReconstructionBatch
    from g_ray.data.reconstruction import ReconstructionSource as ReconstructionSource
    from g_ray.data.reconstruction_mixture import MixtureReconstruction as MixtureReconstruction
    from g_ray.data.reconstruction_settings import RoomsViews as RoomsViews
    from g_ray.data.reconstruction_settings import ScenesViews as ScenesViews
    from g_ray.data.rooms.nvs import RoomsNVS as RoomsNVS
    from g_ray.data.rooms.random_room import make_random_room as make_random_room
    from g_ray.data.rooms.reconstruction import RoomsReconstruction as RoomsReconstruction
    from g_ray.data.rooms.room import Rendering as Rendering
    from g_ray.data.rooms.room import Room as Room
    from g_ray.data.scenes.reconstruction import ScenesReconstruction as ScenesReconstruction
    from g_ray.rays.resample import resample as resample

_HOME = {
    "MixtureReconstruction": "g_ray.data.reconstruction_mixture",
    "NVSBatch": "g_ray.data.nvs",
    "NVSSource": "g_ray.data.nvs",
    "ReconstructionBatch": "g_ray.data.reconstruction",
    "ReconstructionSource": "g_ray.data.reconstruction",
    "Rendering": "g_ray.data.rooms.room",
    "Room": "g_ray.data.rooms.room",
    "RoomsData": "g_ray.data.nvs_settings",
    "RoomsNVS": "g_ray.data.rooms.nvs",
    "RoomsReconstruction": "g_ray.data.rooms.reconstruction",
    "RoomsViews": "g_ray.data.reconstruction_settings",
    "ScenesReconstruction": "g_ray.data.scenes.reconstruction",
    "ScenesViews": "g_ray.data.reconstruction_settings",
    "make_random_room": "g_ray.data.rooms.random_room",
    "resample": "g_ray.rays.resample",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, _HOME)
