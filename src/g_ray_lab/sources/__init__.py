"""Scenes that carry their own ground truth.

Names are imported when first used: the settings in this package are read by the command line, which does not import
torch.
"""

from typing import TYPE_CHECKING

from g_ray.runtime.lazy_names import make_getattr

if TYPE_CHECKING:
    from g_ray.demo.room import Rendering as Rendering
    from g_ray.demo.room import Room as Room
    from g_ray.demo.room import make_random_room as make_random_room
    from g_ray.rays.resample import resample as resample
    from g_ray_lab.sources.mixture import MixtureReconstruction as MixtureReconstruction
    from g_ray_lab.sources.nvs_batch import NVSBatch as NVSBatch
    from g_ray_lab.sources.nvs_batch import NVSSource as NVSSource
    from g_ray_lab.sources.nvs_settings import RoomsData as RoomsData
    from g_ray_lab.sources.reconstruction_batch import ReconstructionBatch as ReconstructionBatch
    from g_ray_lab.sources.reconstruction_batch import ReconstructionSource as ReconstructionSource
    from g_ray_lab.sources.reconstruction_settings import RoomsViews as RoomsViews
    from g_ray_lab.sources.reconstruction_settings import ScenesViews as ScenesViews
    from g_ray_lab.sources.rooms.rooms_nvs import RoomsNVS as RoomsNVS
    from g_ray_lab.sources.rooms.rooms_reconstruction import RoomsReconstruction as RoomsReconstruction
    from g_ray_lab.sources.scenes.scenes_reconstruction import ScenesReconstruction as ScenesReconstruction

_HOME = {
    "MixtureReconstruction": "g_ray_lab.sources.mixture",
    "NVSBatch": "g_ray_lab.sources.nvs_batch",
    "NVSSource": "g_ray_lab.sources.nvs_batch",
    "ReconstructionBatch": "g_ray_lab.sources.reconstruction_batch",
    "ReconstructionSource": "g_ray_lab.sources.reconstruction_batch",
    "Rendering": "g_ray.demo.room",
    "Room": "g_ray.demo.room",
    "RoomsData": "g_ray_lab.sources.nvs_settings",
    "RoomsNVS": "g_ray_lab.sources.rooms.rooms_nvs",
    "RoomsReconstruction": "g_ray_lab.sources.rooms.rooms_reconstruction",
    "RoomsViews": "g_ray_lab.sources.reconstruction_settings",
    "ScenesReconstruction": "g_ray_lab.sources.scenes.scenes_reconstruction",
    "ScenesViews": "g_ray_lab.sources.reconstruction_settings",
    "make_random_room": "g_ray.demo.room",
    "resample": "g_ray.rays.resample",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, _HOME)
