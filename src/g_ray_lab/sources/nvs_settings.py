"""Settings of the data that novel-view synthesis trains on: one dataclass per source, without torch.

A recipe contains one of these as `data`, and the command line shows its fields as `--data.…`. Each builds its source,
which keeps it as `settings`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from g_ray_lab.sources.batches import NVSSource

PoseFrame = Literal["first_context", "room"]

OBJECTS = Path("out/objects")
"""Where `g-ray data objects` writes in the examples of the docs."""

SCANNED = Path("gso_mini")
"""Scanned objects in the folder of shared data."""

CAMERA_PATHS = Path("re10k_cameras") / "re10k_test_600.npz"
"""Camera paths in the folder of shared data."""


def _find_shared(given: Path | None, shared: Path, missing: str, exists: Callable[[Path], bool]) -> Path:
    """Return a given path, or one in the folder of shared data; ValueError if it is not there."""
    from g_ray.runtime.files import find_shared_data

    path = find_shared_data() / shared if given is None else given
    if not exists(path):
        raise ValueError(
            f"no {missing.format(path)}, or set G_RAY_SHARED_DATA to the folder that holds {shared}"
        )
    return path


@dataclass(frozen=True)
class NVSData(ABC):
    """Size of the images and of a batch; subclasses are the sources of scenes."""

    KIND: ClassVar[str]
    """Name of the class in stored recipes, see NVS_DATA."""

    width: int
    """Pixels."""
    height: int
    """Pixels."""
    batch: int = 4
    """Scenes per process and step."""

    @abstractmethod
    def build_source(self, seed: int) -> "NVSSource":
        """Build the stream of scenes; raise the errors of the data, before a model is built."""

    def check_patch(self, patch: int) -> None:
        """Raise ValueError if images cannot be divided into patches of this size."""
        if self.width % patch or self.height % patch:
            raise ValueError(
                f"images of {self.width}×{self.height} px cannot be cut into patches of {patch} px: "
                "change --data.width, --data.height or --model.patch"
            )


@dataclass(frozen=True)
class ZoomedData(NVSData):
    """Contexts and targets of one scene per sample, zoomed as in the paper's protocol."""

    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views to be synthesized."""
    zoom_max: float = 1.0
    """All views but the first context are zoomed by z ~ U[1, zoom_max]."""


@dataclass(frozen=True)
class ClipData(ZoomedData):
    """Views from a range of a clip: contexts at both ends, targets between them."""

    gap: tuple[int, int] = (25, 100)
    """Frames between the first and the last context, drawn between these."""


@dataclass(frozen=True)
class ArcData(ZoomedData):
    """Scenes that are rendered on the fly from an arc around their middle."""

    fov_deg: tuple[float, float] = (60.0, 80.0)
    """Horizontal field of view of a scene's cameras, drawn between these."""
    arc_deg: tuple[float, float] = (10.0, 35.0)
    """Angle around the room between the first and the last context, drawn between these."""
    antialias: int = 1
    """Rays per pixel and axis."""
    distinct: int | None = None
    """Different scenes of a training run, a multiple of the batch; further steps repeat them. If not given, every step
    has new ones."""
    pose_frame: PoseFrame = "first_context"
    """World frame of the poses: that of the first context, or of the room."""
    cache: Path | None = None
    """Keep rendered pictures in this folder: further runs over the same rooms read them (12 kB a scene)."""


@dataclass(frozen=True)
class RoomsData(ArcData):
    """Procedural rooms."""

    KIND = "rooms"

    solids: int = 5
    """Pieces of furniture."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.sources.arc_views import RoomsNVS

        return RoomsNVS(self, seed)


@dataclass(frozen=True)
class ObjectArcsData(ArcData):
    """Scanned objects, seen from where cameras stand in rooms."""

    KIND = "object_arcs"

    antialias: int = 2
    meshes: Path | None = None
    """Folder of meshes; if not given, the one in the folder of shared data."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.sources.objects_nvs import ObjectArcsNVS

        return ObjectArcsNVS(self, seed)

    def find_meshes(self) -> Path:
        """Return the folder of meshes: the given one, or the one in the folder of shared data."""
        return _find_shared(
            self.meshes, SCANNED, "meshes at {}: give a folder with --data.meshes", Path.is_dir
        )


@dataclass(frozen=True)
class PathsData(ClipData):
    """Procedural rooms, seen along the paths and through the lenses of real cameras."""

    KIND = "paths"

    paths: Path | None = None
    """File of camera paths (.npz); if not given, the one in the folder of shared data."""
    solids: int = 5
    """Pieces of furniture."""
    antialias: int = 1
    """Rays per pixel and axis."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes that poses are read with after rendering. They are OpenCV's; blender is the mistake of released
    loaders of RealEstate10K, to see what it costs."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.sources.re10k_nvs import PathRoomsNVS

        return PathRoomsNVS(self, seed)

    def find_file(self) -> Path:
        """Return the file of camera paths: the given one, or the one in the folder of shared data."""
        missing = "camera paths at {}: give a file with --data.paths"
        return _find_shared(self.paths, CAMERA_PATHS, missing, Path.is_file)


@dataclass(frozen=True)
class ObjectsData(NVSData):
    """Rendered objects on disk: two native views are given, one other view is the target."""

    KIND = "objects"

    root: Path = OBJECTS
    """Folder of rendered objects, as `g-ray data objects` writes them."""
    targets: Literal["all", "fov", "novel", "novel_fov", "fov_dolly", "novel_fov_dolly", "mixed"] = "all"
    """Targets: every view but the two that are given, or those of a protocol."""
    index: Path | None = None
    """Folder of an index whose objects are for testing, as `g-ray data objects-index` writes it; without, one product
    in ten is, by its name."""
    cache_mb: int = 256
    """Decoded images that each process keeps in memory."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.sources.objects_nvs import ObjectsNVS

        return ObjectsNVS(self, seed)


@dataclass(frozen=True)
class RE10KData(ClipData):
    """RealEstate10K clips."""

    KIND = "re10k"

    root: Path = Path("data/re10k")
    """Folder with train/ and test/, in pixelSplat's chunks or in LVSM's layout; the layout is detected."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes of the poses in the files; pixelSplat and LVSM use OpenCV's."""
    check: int = 4
    """Clips whose poses are compared with their pictures before training; 0 trusts `axes`."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.datasets.re10k import open_clips
        from g_ray_lab.sources.axes_check import validate_axes
        from g_ray_lab.sources.re10k_nvs import RE10KNVS, match_clips

        clips = open_clips(self.root, "train", self.axes)
        if self.check:
            validate_axes(match_clips(clips, self.check), f"{self.root} with --data.axes {self.axes}")
        return RE10KNVS(clips, self, seed)


@dataclass(frozen=True)
class SceneData(NVSData):
    """Photographs of scene folders: any training view is the target, its contexts are near it."""

    KIND = "scene"

    folder: tuple[Path, ...] = ()
    """One or more folders with transforms.json, or with images/ and a COLMAP model in sparse/."""
    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views to be synthesized."""
    near: int = 8
    """Contexts are drawn from this many views around the target."""
    hold_out: int = 8
    """One of this many views is kept for validation."""
    baseline: float = 0.7
    """Distance from the first context to the farthest other one, after scaling the poses; about 0.7 m in rooms."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray_lab.sources.scenes_nvs import SceneNVS

        return SceneNVS(self, seed)


NVS_DATA: dict[str, type[NVSData]] = {
    kind.KIND: kind for kind in (RoomsData, ObjectArcsData, PathsData, ObjectsData, RE10KData, SceneData)
}
"""Classes by their names in stored recipes."""
