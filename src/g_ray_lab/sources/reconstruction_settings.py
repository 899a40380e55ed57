"""Settings of the data that reconstruction trains on: one dataclass per source, without torch.

A recipe contains one of these as `data`, and the command line shows its fields as `--data.…`. Each builds its source,
which keeps it as `settings`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from g_ray_lab.sources.batches import ReconstructionSource
    from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction
    from g_ray_lab.sources.shaped_sets import ShapedSets


@dataclass(frozen=True)
class ReconstructionData(ABC):
    """Shape of a batch; subclasses are the sources of sets of views.

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
        from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

        return RoomsReconstruction(self, seed, patch)


@dataclass(frozen=True)
class RoomsLenses(RoomsViews):
    """Procedural rooms through pinholes, circular fisheyes and full panoramas, equally often among the views."""

    KIND = "rooms-lenses"

    fisheye_deg: tuple[float, float] = (100.0, 230.0)
    """Field of view of fisheyes across their image circle; that of pinholes is `fov_deg`."""

    def build_source(self, seed: int, patch: int) -> "ReconstructionSource":
        from g_ray_lab.sources.rooms_reconstruction import LensedRooms

        return LensedRooms(self, seed, patch)


@dataclass(frozen=True)
class FolderSettings:
    """What one data set needs otherwise than the others; None keeps what is set for all of them.

    On the command line OVERLAP=…,ZOOM_MAX=… in lower case, see `FolderSettings.parse`.
    """

    overlap: float | None = None
    zoom_max: float | None = None
    depth_max: float | None = None
    depth_unit: float | None = None
    """Length per stored number, instead of that of the format: 0.001 for millimeters."""
    depth_convention: Literal["z", "ray"] | None = None
    depth_modality: str | None = None
    """Of WAI folders: which depth, e.g. pred_depth/mvsanywhere."""

    def __post_init__(self) -> None:
        if self.depth_convention not in (None, "z", "ray"):
            raise ValueError(f"depth_convention {self.depth_convention!r}: it can be z or ray")

    @staticmethod
    def parse(text: str) -> "FolderSettings":
        """Parse overlap=0.3,depth_max=80; "same" changes nothing. ValueError names what cannot be used."""
        kinds = {field.name: float for field in fields(FolderSettings)}
        kinds |= {"depth_convention": str, "depth_modality": str}
        values: dict[str, Any] = {}
        for pair in () if text == "same" else text.split(","):
            name, _, value = pair.partition("=")
            name = name.replace("-", "_")
            try:
                values[name] = kinds[name](value)
            except (KeyError, ValueError):
                raise ValueError(
                    f"--data.per-folder {pair!r}: write SETTING=VALUE,… with some of {', '.join(kinds)}, or same"
                ) from None
        return FolderSettings(**values)

    def format(self) -> str:
        """Return the text that `parse` reads."""
        pairs = [f"{field.name}={getattr(self, field.name)}" for field in fields(self)]
        return ",".join(pair for pair in pairs if not pair.endswith("=None")) or "same"


@dataclass(frozen=True)
class ScenesViews(ReconstructionData):
    """Photographs with depth and poses: WAI, nerfstudio, COLMAP or 7-Scenes folders. See `g-ray data check`."""

    KIND = "scenes-views"

    folders: tuple[Path, ...] = ()
    """Scene folders, or folders of them."""
    weights: tuple[float, ...] = ()
    """How often each folder is drawn from, one number per folder; without any, all scenes are equally frequent."""
    per_folder: tuple[FolderSettings, ...] = ()
    """What differs from folder to folder, once per folder: overlap=0.3,depth_max=80 or same. Settings are overlap,
    zoom_max, depth_max, depth_unit, depth_convention and depth_modality."""
    rooms: float = 0.0
    """Share of the sets that are procedural rooms instead."""
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
        from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
        from g_ray_lab.sources.shaped_sets import MixtureReconstruction

        self._check_mixture()
        is_mixed = bool(self.weights or self.per_folder)
        groups = [(folder,) for folder in self.folders] if is_mixed else [self.folders]
        parts = [
            self._build_part(group, own, seed, patch)
            for group, own in zip(groups, self.per_folder or [FolderSettings()] * len(groups), strict=True)
        ]
        # Without weights every scene is equally frequent, in whichever folder it is.
        weights = self.weights or tuple(len(part.store.training) or 1.0 for part in parts)
        shares = [weight / sum(weights) for weight in weights]
        sources: list[ShapedSets] = [*parts]
        if self.rooms:
            rooms = RoomsViews(**self.get_shape(), coarse=self.width < 100, color=self.color)
            sources.append(RoomsReconstruction(rooms, seed, patch))
            shares = [(1 - self.rooms) * share for share in shares] + [self.rooms]
        return sources[0] if len(sources) == 1 else MixtureReconstruction(tuple(sources), tuple(shares), seed)

    def _build_part(
        self, folders: tuple[Path, ...], own: FolderSettings, seed: int, patch: int
    ) -> "ScenesReconstruction":
        """Build the stream of some folders with the settings that are their own."""
        from g_ray_lab.sources.scene_store import DepthReading
        from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction

        names = ("overlap", "zoom_max", "depth_max")
        changes = {name: value for name in names if (value := getattr(own, name)) is not None}
        settings = replace(self, folders=folders, weights=(), per_folder=(), rooms=0.0, **changes)
        reading = DepthReading(own.depth_convention, own.depth_unit, own.depth_modality)
        return ScenesReconstruction(settings, seed, patch, reading, trains=True)

    def _check_mixture(self) -> None:
        if not self.folders:
            raise ValueError("no data: give --data.folders DIR …, with scenes that have depth")
        if self.weights and len(self.weights) != len(self.folders):
            raise ValueError(
                f"{len(self.folders)} folders but {len(self.weights)} weights: "
                "give --data.weights one number per folder"
            )
        if self.per_folder and len(self.per_folder) != len(self.folders):
            raise ValueError(
                f"{len(self.folders)} folders but settings for {len(self.per_folder)}: "
                "give --data.per-folder once per folder, same where nothing differs"
            )
        if not 0 <= self.rooms < 1:
            raise ValueError(
                f"--data.rooms {self.rooms} is a share of the sets: give a number from 0 to below 1"
            )


RECONSTRUCTION_DATA: dict[str, type[ReconstructionData]] = {
    kind.KIND: kind for kind in (RoomsViews, RoomsLenses, ScenesViews)
}
"""Classes by their names in stored recipes."""
