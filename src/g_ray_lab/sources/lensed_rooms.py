"""Rooms seen through lenses of any field of view: pinholes, circular fisheyes and panoramas beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray_lab.sources.random_lenses import draw_fisheye_coefficients, make_fisheyes, make_pinholes
from g_ray_lab.sources.reconstruction_batch import ReconstructionBatch, ShapedSets, Size
from g_ray_lab.sources.reconstruction_settings import RoomsLenses
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction, SetDraws, interpolate_rad

LensKind = Literal["pinhole", "fisheye", "panorama"]

LENS_STREAM = 0x1E45
"""Keeps the draws of lens kinds independent of those of rooms and shapes."""


@dataclass(frozen=True)
class Lens:
    """A kind of lens and the range that its horizontal field of view is drawn from; a panorama has all directions."""

    kind: LensKind
    fov_deg: tuple[float, float] = (360.0, 360.0)

    def make_cameras(self, unit: Float[Tensor, "set 9"], off_center: float, size: Size) -> Camera:
        """Make one camera per set from numbers in [0, 1): those that `RoomsReconstruction` draws for a view."""
        if self.kind == "panorama":
            full = Equirectangular.panorama(*size)
            return Equirectangular(full.params.expand(len(unit), -1), *size)
        fov = interpolate_rad(self.fov_deg, unit[:, 0])
        frame = (off_center * (2 * unit[:, 1:3] - 1), torch.ones_like(fov), *size)
        if self.kind == "pinhole":
            return make_pinholes(fov, *frame)
        # The circle makes the field of view exact: without it the corners would see up to √2 times as much.
        return make_fisheyes(fov, draw_fisheye_coefficients(unit[:, 4:]), *frame).limit_to_circle(size[0] / 2)


@dataclass(frozen=True)
class LensedRooms(ShapedSets):
    """The rooms and walks of `RoomsReconstruction`, each view of a batch through a lens of its own kind.

    Kinds are drawn for each view of a batch, because a batch has one camera model per view; parameters are drawn for
    each set. With `lenses`, views take those in turn instead.
    """

    settings: RoomsLenses
    seed: int = 0
    patch: int = 14
    split: str = "train"
    lenses: tuple[Lens, ...] = ()

    def __post_init__(self) -> None:
        low, high = self.settings.fisheye_deg
        if not 0 < low <= high <= 240:
            raise ValueError(f"fisheye_deg {(low, high)} must be a range between 0° and 240°")
        self._get_rooms()

    def make_sets(
        self, numbers: Sequence[int], rank: int = 0, *, views: int | None = None, size: Size | None = None
    ) -> ReconstructionBatch:
        settings, rooms = self.settings, self._get_rooms()
        views, size = views or settings.views[1], size or (settings.width, settings.height)
        unit = torch.stack([SetDraws(rooms, number, rank, views).lenses for number in numbers])
        lenses = self._choose_lenses(numbers[0] // settings.batch, rank, views)
        cameras = [
            lens.make_cameras(unit[:, view], settings.off_center, size) for view, lens in enumerate(lenses)
        ]
        return rooms.make_sets(numbers, rank, views=views, size=size, cameras=cameras)

    def with_lenses(self, *lenses: Lens) -> "LensedRooms":
        """Return the same rooms and walks through other lenses."""
        return replace(self, lenses=lenses)

    def _choose_lenses(self, step: int, rank: int, views: int) -> list[Lens]:
        if self.lenses:
            return list(islice(cycle(self.lenses), views))
        kinds = (
            Lens("pinhole", self.settings.fov_deg),
            Lens("fisheye", self.settings.fisheye_deg),
            Lens("panorama"),
        )
        random = np.random.default_rng((self.seed, LENS_STREAM, rank, step))
        return [kinds[index] for index in random.integers(len(kinds), size=views)]

    def _get_rooms(self) -> RoomsReconstruction:
        return RoomsReconstruction(self.settings, self.seed, self.patch, self.split)
