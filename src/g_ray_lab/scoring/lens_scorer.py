"""Score reconstruction as the field of view of the test lenses grows from 60° to the whole sphere."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from g_ray.runtime.parts import hash_key
from g_ray_lab.scoring.reconstruction_scorer import SetsScorer, make_test_views
from g_ray_lab.scoring.shard import split_range
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.rooms_reconstruction import Lens, LensedRooms
from g_ray_lab.training.recipe import to_plain

LENS_TESTS: dict[str, tuple[Lens, ...]] = {
    "pinhole_60": (Lens("pinhole", (60.0, 60.0)),),
    "pinhole_90": (Lens("pinhole", (90.0, 90.0)),),
    "fisheye_120": (Lens("fisheye", (120.0, 120.0)),),
    "fisheye_180": (Lens("fisheye", (180.0, 180.0)),),
    "fisheye_220": (Lens("fisheye", (220.0, 220.0)),),
    "panorama": (Lens("panorama"),),
    "mixed": (
        Lens("pinhole", (60.0, 90.0)),
        Lens("fisheye", (180.0, 220.0)),
        Lens("panorama"),
        Lens("fisheye", (120.0, 180.0)),
    ),
}
"""Columns: lenses of the views, in turn. Rooms and camera paths are the same in all of them."""
BEHIND = {"fisheye_220_behind": "fisheye_220", "panorama_behind": "panorama"}
"""Columns that score only pixels more than 90° from the optical axis, where the paper's pair of angles jumps."""


@dataclass(frozen=True)
class LensScorer(SetsScorer):
    """Score the first `sets` rooms of the test split; depth is along the ray."""

    rooms: LensedRooms
    sets: int = 64
    at_once: int = 16

    @staticmethod
    def from_training(rooms: LensedRooms, sets: int) -> "LensScorer":
        """Make test rooms with the settings of a training source."""
        return LensScorer(replace(rooms, settings=make_test_views(rooms.settings), split="test"), sets)

    @property
    def settings(self) -> tuple[str, ...]:
        return (*LENS_TESTS, *BEHIND)

    @property
    def key(self) -> dict[str, str]:
        return {"protocol": hash_key([to_plain(asdict(self)), self._list_tests()])}

    def describe(self) -> dict[str, Any]:
        return {
            "protocol": to_plain(asdict(self)),
            "protocol_digest": self.key["protocol"],
            "tests": self._list_tests(),
            "behind": BEHIND,
            "depth": "ray",
        }

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        rooms = self.rooms.with_lenses(*LENS_TESTS[BEHIND.get(setting, setting)])
        yield from map(rooms.make_sets, split_range(self.sets, self.at_once))

    def select_pixels(self, batch: ReconstructionBatch, setting: str) -> Bool[Tensor, "set view h w"] | None:
        return batch.rays().directions[..., 2] < 0 if setting in BEHIND else None

    def _list_tests(self) -> dict[str, Any]:
        return {name: [to_plain(asdict(lens)) for lens in lenses] for name, lenses in LENS_TESTS.items()}
