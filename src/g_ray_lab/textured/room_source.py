"""Textured rooms as scenes for walks: a room of its own for each walk."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.textured.assets import ROOM_SPLITS, AssetFolders, RoomAssets, open_assets
from g_ray_lab.textured.textured_room import TexturedRoom, make_textured_room
from g_ray_lab.textured.walk import CLEARANCE_M, FreeSpace, ViewLimits

PLACES, FEWEST = 64, 16
"""Free places from which walks start, and how many a room must have."""
HEIGHTS_M = (0.8, 1.8)
REDRAWS = 8
LIMITS = ViewLimits(
    near_m=0.3, median_m=(0.9, 50.0), spread=1.4, back=0.15, contrast=0.25, pitch_deg=(-38.0, 8.0)
)
"""Rooms are smaller than levels, what is in them is below the eye, and thin things (leaves) show their backs."""


@dataclass(frozen=True)
class RoomSource:
    """The room of a number, made in the process that renders it."""

    number: int
    seed: int
    split: str
    folders: AssetFolders

    @property
    def name(self) -> str:
        return f"room-{self.split}-{self.seed}-{self.number:05d}"

    def open(self) -> FreeSpace:
        """Make the room; one that is too full to walk in is drawn again."""
        assets = _open_assets(self.folders, self.split)
        for attempt in range(REDRAWS):
            room = make_textured_room(self.compute_room_seed(attempt), assets)
            places = draw_places(room, np.random.default_rng((self.seed, self.number)))
            if len(places) >= FEWEST:
                scene = MeshScene(room.meshes, light=False, prefilter=True)
                return FreeSpace(scene, places, LIMITS, room.space.contains)
        raise ValueError(f"{self.name}: {REDRAWS} rooms were too full to walk in")

    def compute_room_seed(self, attempt: int = 0) -> int:
        """Compute a number that no other room has, of either split."""
        draw = (self.seed << 40) + (self.number << 8) + attempt
        return len(ROOM_SPLITS) * draw + ROOM_SPLITS.index(self.split)


def draw_places(room: TexturedRoom, random: np.random.Generator) -> np.ndarray:
    """Draw places around which a camera has room."""
    high = min(HEIGHTS_M[1], room.space.plan.height - CLEARANCE_M)
    return room.space.draw_places(random, PLACES, CLEARANCE_M, (HEIGHTS_M[0], high))


@lru_cache(maxsize=1)
def _open_assets(folders: AssetFolders, split: str) -> RoomAssets:
    return open_assets(folders, split)
