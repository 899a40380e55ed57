"""Settings of the data that reconstruction trains on: one dataclass per source, without torch.

A recipe contains one of these as `data`, and the command line shows its fields as `--data.…`. Each builds its source,
which keeps it as `settings`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from g_ray.data.reconstruction import ReconstructionSource


@dataclass(frozen=True)
class ReconstructionData(ABC):
    """Shape of a batch; subclasses say where sets of views come from.

    The paper's first stage is 224×224 px, 120 sets, 2 to 24 views, aspect 0.33 to 1 and at most 240 images: two views
    come in 120 sets, 24 views in ten.
    """

    KIND: ClassVar[str]
    """Name of the class in stored recipes, see RECONSTRUCTION_DATA."""

    width: int
    """Pixels of the long side."""
    height: int
    """Pixels of the tallest images."""
    batch: int = 4
    """Sets per process and step, at most."""
    views: tuple[int, int] = (4, 4)
    """Views of a set, drawn between these for every step, both included."""
    aspect: tuple[float, float] = (1.0, 1.0)
    """Height over `height`, drawn between these in hundredths for every step."""
    images_max: int | None = None
    """Images per process and step, at most: batches of many views have fewer sets, but at least one."""

    @abstractmethod
    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        """Build the stream of sets; raise the errors of the data, before a model is built.

        Heights are multiples of `patch`, the pixels per side of the network's patches.
        """

    def get_shape(self) -> dict[str, Any]:
        """Return the settings that all sources share, to make those of another source."""
        return {field.name: getattr(self, field.name) for field in fields(ReconstructionData)}


@dataclass(frozen=True)
class RoomsViews(ReconstructionData):
    """Procedural rooms, rendered on the fly with exact depth, through pinholes of varied field of view."""

    KIND = "rooms-views"

    fov_deg: tuple[float, float] = (50.0, 90.0)
    """Horizontal field of view, drawn for every view."""
    off_center: float = 0.1
    """The principal point is up to this far from the middle, in image sizes."""
    yaw_deg: float = 18.0
    """From one view to the next the camera turns by up to this much."""
    step_m: float = 1.0
    """From one view to the next it moves up to this far along each horizontal axis."""
    solids: int = 5
    """Pieces of furniture."""
    coarse: bool = True
    """Textures for images of a few dozen pixels."""
    color: bool = False
    """Color augmentation."""

    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        from g_ray.data.rooms.reconstruction import RoomsReconstruction

        return RoomsReconstruction(self, seed, patch)


@dataclass(frozen=True)
class ScenesViews(ReconstructionData):
    """Photographs with depth and poses: WAI, nerfstudio, COLMAP or 7-Scenes folders. See `g-ray data check`."""

    KIND = "scenes-views"

    folders: tuple[Path, ...] = ()
    """Scene folders, or folders of them."""
    weights: tuple[float, ...] = ()
    """How often each folder is drawn from, one number per folder; without any, all scenes are equally frequent."""
    rooms: float = 0.0
    """Share of the steps that see procedural rooms instead."""
    overlap: float = 0.25
    """Each view of a set overlaps with one before it by more than this."""
    zoom_max: float = 1.5
    """Zoom of each view, drawn between 1 and this."""
    off_center: float = 1.0
    """Where crops lie: 0 in the middle of the photograph, 1 anywhere."""
    hold_out: float = 0.1
    """Share of the scenes that validation keeps."""
    frames: tuple[float, float] = (0.0, 1.0)
    """The part of each scene's frames that is used, in their order, as shares from first to last."""
    depth_max: float | None = None
    """Depth beyond this, in the files' unit, is not trained on."""
    masks: Path | None = None
    """Folder of masks inside every scene folder, named as its photographs; else those that transforms.json names."""
    color: bool = True
    """Color augmentation."""
    stored_shape: bool = False
    """Keep the shape of photographs, upright or not, with a long side of `width`; each step has one shape. Where that
    is the size at which they are stored, pixels are taken as they are. Needs zoom_max 1, off_center 0, aspect 1."""

    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        from g_ray.data.reconstruction import MixtureReconstruction
        from g_ray.data.scenes.reconstruction import ScenesReconstruction

        self._check_mixture()
        groups = [(folder,) for folder in self.folders] if self.weights else [self.folders]
        parts: list[ReconstructionSource] = [
            ScenesReconstruction(replace(self, folders=group, weights=(), rooms=0.0), seed, patch)
            for group in groups
        ]
        weights = [weight / sum(self.weights) for weight in self.weights] or [1.0]
        if self.rooms:
            rooms = RoomsViews(**self.get_shape(), coarse=self.width < 100, color=self.color)
            parts.append(rooms.build_source(seed, patch))
            weights = [(1 - self.rooms) * weight for weight in weights] + [self.rooms]
        return parts[0] if len(parts) == 1 else MixtureReconstruction(tuple(parts), tuple(weights), seed)

    def _check_mixture(self) -> None:
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


RECONSTRUCTION_DATA: dict[str, type[ReconstructionData]] = {
    kind.KIND: kind for kind in (RoomsViews, ScenesViews)
}
"""Classes by their names in stored recipes."""
