"""Scenes for walks: levels of an installed game with baked light made even, and a room of its own for each walk.

A source is small and picklable; the process that renders it opens it. Sources also fix which scenes are for testing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh, linear_to_srgb_bytes
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.draws import hash_to_unit
from g_ray_lab.textured.assets import ROOM_SPLITS, AssetFolders, RoomAssets, open_assets
from g_ray_lab.textured.quake3 import LevelPackage
from g_ray_lab.textured.textured_room import TexturedRoom, make_textured_room
from g_ray_lab.textured.walk import CLEARANCE_M, FreeSpace, ViewLimits

TEST_SHARE = 0.2
"""Share of the families of levels."""
AMBIENT = 0.35
"""Light that is added everywhere, as a share of the mean baked light: games leave shadows black."""


@dataclass(frozen=True)
class LevelSource:
    """A level of a package."""

    name: str
    folder: Path

    def open(self) -> FreeSpace:
        level = _open_package(self.folder).read_level(self.name)
        if not len(level.places):
            raise ValueError(f"{self.folder}: level {self.name} has no places where players or things stand")
        scene = MeshScene(lift_shadows(level.parts), light=False, prefilter=True)
        return FreeSpace(scene, level.places)


@lru_cache(maxsize=1)
def _open_package(folder: Path) -> LevelPackage:
    return LevelPackage(folder)


def list_levels(folder: Path, split: str) -> list[LevelSource]:
    """List the levels of a split. Levels of one family (`oa_dm1`, `oa_dm2`, …) share rooms and are never parted."""
    with LevelPackage(folder) as package:
        names = [name for name in package.names if is_test_level(name) == (split == "test")]
    if not names:
        raise ValueError(f"{folder}: no levels for the split {split}")
    return [LevelSource(name, folder) for name in names]


def is_test_level(name: str) -> bool:
    """Whether a level is held out, by its family: its name up to the first digit."""
    family = re.split(r"\d", name, maxsplit=1)[0] or name
    return hash_to_unit(f"level {family}") < TEST_SHARE


def lift_shadows(parts: Sequence[Mesh]) -> tuple[Mesh, ...]:
    """Add ambient light to baked light, and scale light maps to their full range of values."""
    maps = {id(part.light_map): part.light_map for part in parts if part.light_map is not None}
    if not maps:
        return tuple(parts)
    linear = {key: LINEAR_OF_BYTE[image] for key, image in maps.items()}
    ambient = AMBIENT * float(np.mean([light.mean() for light in linear.values()]))
    scale = 1 / (ambient + max(float(np.quantile(light, 0.999)) for light in linear.values()))
    lifted = {key: linear_to_srgb_bytes((light + ambient) * scale) for key, light in linear.items()}

    def lift(part: Mesh) -> Mesh:
        if part.light_map is not None:
            return replace(part, light_map=lifted[id(part.light_map)])
        tint: Float[np.ndarray, "vertex 3"] = (part.tint + (0 if part.sky else ambient)) * scale
        return replace(part, tint=tint.astype(np.float32))

    return tuple(lift(part) for part in parts)


# Rooms


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
    """The room of a number."""

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
