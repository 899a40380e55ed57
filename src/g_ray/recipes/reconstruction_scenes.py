"""Reconstruction on data of one's own: scene folders with depth, alone or mixed with rooms."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g_ray.recipes import reconstruction
from g_ray.recipes.reconstruction import ReconstructionData, ReconstructionRecipe, RoomsViews

if TYPE_CHECKING:
    from g_ray.data.reconstruction import ReconstructionSource


@dataclass(frozen=True)
class ScenesViews(ReconstructionData):
    """Photographs with depth and poses: WAI, nerfstudio, COLMAP or 7-Scenes folders. See `g-ray data check`."""

    KIND = "scenes-views"

    folders: tuple[Path, ...] = ()
    """Scene folders, or folders of them."""
    weights: tuple[float, ...] = ()
    """How often each folder is drawn from, one number per folder; without any, every scene as often as any other."""
    rooms: float = 0.0
    """Share of the steps that see procedural rooms instead."""
    overlap: float = 0.25
    """Each view of a set overlaps with one before it by more than this."""
    zoom_max: float = 1.5
    """Zoom of each view, drawn between 1 and this."""
    off_centre: float = 1.0
    """Where crops lie: 0 in the middle of the photograph, 1 anywhere."""
    hold_out: float = 0.1
    """Share of the scenes that validation keeps."""
    frames: tuple[float, float] = (0.0, 1.0)
    """The stretch of each scene's frames that is used, in their order."""
    depth_max: float | None = None
    """Depth beyond this, in the files' unit, is not trained on."""
    colour: bool = True
    """Colour augmentation."""

    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        from g_ray.data.reconstruction import MixtureReconstruction

        if not self.folders:
            raise ValueError("no data: give --data.folders DIR …, with scenes that have depth")
        if self.weights and len(self.weights) != len(self.folders):
            raise ValueError(
                f"{len(self.folders)} folders but {len(self.weights)} weights: "
                "give --data.weights one number per folder"
            )
        if not 0 <= self.rooms < 1:
            raise ValueError(
                f"--data.rooms {self.rooms} is a share of the steps: give a number from 0 to below 1"
            )
        groups = [(folder,) for folder in self.folders] if self.weights else [self.folders]
        parts = [self._build_scenes_source(group, seed, patch) for group in groups]
        weights = [weight / sum(self.weights) for weight in self.weights] or [1.0]
        if self.rooms:
            parts.append(self._make_rooms().build_source(seed, patch))
            weights = [(1 - self.rooms) * weight for weight in weights] + [self.rooms]
        return parts[0] if len(parts) == 1 else MixtureReconstruction(tuple(parts), tuple(weights), seed)

    def _build_scenes_source(
        self, folders: tuple[Path, ...], seed: int, patch: int
    ) -> "ReconstructionSource":
        from g_ray.data.color import ColorJitter
        from g_ray.data.scenes.reconstruction import ScenesReconstruction

        own = ("folders", "weights", "rooms", "batch", "colour")
        settings = {name: value for name, value in vars(self).items() if name not in own}
        color = ColorJitter() if self.colour else None
        return ScenesReconstruction(
            folders, seed=seed, batch_size=self.batch, patch=patch, colour=color, **settings
        )

    def _make_rooms(self) -> RoomsViews:
        shape = (self.width, self.height, self.batch, self.views, self.aspect, self.images_max)
        return RoomsViews(*shape, coarse=self.width < 100, colour=self.colour)


def mixed(folder: Path, frames: tuple[float, float]) -> ReconstructionRecipe:
    """Rooms and a part of a scene's photographs, half of the steps each."""
    recipe = tiny()
    data = ScenesViews(24, 24, 4, (4, 4), folders=(folder,), rooms=0.5, frames=frames)
    return replace(recipe, data=data)


def tiny() -> ReconstructionRecipe:
    """G-ray on your own scenes with depth (--data.folders DIR), 24×24 px, for a CPU."""
    return _replace_rooms_by_scenes(reconstruction.tiny("gray"))


def rooms() -> ReconstructionRecipe:
    """The shipped network on your own scenes with depth (--data.folders DIR), 48×48 px; --init g-ray-rooms helps."""
    return _replace_rooms_by_scenes(reconstruction.rooms())


def stage1() -> ReconstructionRecipe:
    """The appendix's first stage with G-ray on your own scenes with depth (--data.folders DIR), 224 px."""
    return _replace_rooms_by_scenes(reconstruction.stage1("gray"))


def _replace_rooms_by_scenes(recipe: ReconstructionRecipe) -> ReconstructionRecipe:
    """The same with photographs instead of rooms."""
    shape = ("width", "height", "batch", "views", "aspect", "images_max")
    return replace(recipe, data=ScenesViews(**{name: getattr(recipe.data, name) for name in shape}))
