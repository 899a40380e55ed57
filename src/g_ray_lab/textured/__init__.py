"""Render walks through furnished rooms and game levels as scene folders, and rooms for stereo, with exact depth.

This is the whole interface: code outside this package imports from here, not from the modules below.
"""

from g_ray_lab.textured.assets import AssetFolders, open_assets
from g_ray_lab.textured.quake3 import OPENARENA
from g_ray_lab.textured.scene_sources import LevelSource, RoomSource, is_test_level, list_levels
from g_ray_lab.textured.stereo_rooms import (
    SOLIDS,
    TEXTURE_PX,
    TEXTURES,
    StereoRoom,
    Surfaces,
    look_at,
    measure_distances,
    scatter_solids,
)
from g_ray_lab.textured.stereo_views import StereoBatch, StereoSet, StereoViews
from g_ray_lab.textured.textured_room import make_textured_room
from g_ray_lab.textured.walk import LensKind, draw_cameras, draw_walk
from g_ray_lab.textured.walk_writer import (
    PARTIAL,
    WalkJob,
    WalkSettings,
    find_unfinished_walks,
    list_walks,
    write_walks,
)

__all__ = [
    "OPENARENA",
    "PARTIAL",
    "SOLIDS",
    "TEXTURES",
    "TEXTURE_PX",
    "AssetFolders",
    "LensKind",
    "LevelSource",
    "RoomSource",
    "StereoBatch",
    "StereoRoom",
    "StereoSet",
    "StereoViews",
    "Surfaces",
    "WalkJob",
    "WalkSettings",
    "draw_cameras",
    "draw_walk",
    "find_unfinished_walks",
    "is_test_level",
    "list_levels",
    "list_walks",
    "look_at",
    "make_textured_room",
    "measure_distances",
    "open_assets",
    "scatter_solids",
    "write_walks",
]
