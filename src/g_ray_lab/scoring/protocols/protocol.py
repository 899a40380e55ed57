"""What is evaluated and how: a protocol is a frozen description; its view index says which frames, by name."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from g_ray.cameras.camera import Camera
from g_ray.media.depth import Convention
from g_ray.runtime.parts import hash_key
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.scoring.protocols.sampling import Sampling

Alignment = Literal["mean distance", "sim3", "scale", "umeyama+icp", "ransac sim3+tsdf"]
"""mean distance: truth and prediction are moved to their first view and divided by their mean distance.
sim3: trajectories are aligned by a similarity. scale: one factor per sequence; a factor and an offset are reported too.
umeyama+icp: points are aligned by a similarity, then by ICP. ransac sim3+tsdf: poses are aligned by a similarity with
RANSAC, and depth is fused in a volume."""
Part = Literal[
    "main table",
    "ablation",
    "zoom figure",
    "resolution figure",
    "homogeneous",
    "second opinion",
    "real photographs",
]


@dataclass(frozen=True)
class ImageSize:
    """Images of one fixed size, cut from the middle; the camera's own shape is not kept."""

    width: int
    height: int

    def frame(self, camera: Camera, zoom: float | int = 1.0) -> Framing:
        """Choose the part of an image, and its size."""
        return Framing.fit(camera, self.width, self.height, zoom)

    def resize(self, width: int) -> "ImageSize":
        """Return the same shape at another width."""
        return ImageSize(width, max(1, round(self.height * width / self.width)))


@dataclass(frozen=True)
class AlignedSize:
    """Whole images of one width; the height is that of the image's shape, rounded to a multiple."""

    width: int
    multiple: int = 14

    def frame(self, camera: Camera, zoom: float | int = 1.0) -> Framing:
        """Choose the part of an image, and its size."""
        width = self.width // self.multiple * self.multiple
        rows = round(camera.height * self.width / camera.width / self.multiple)
        height = max(1, rows) * self.multiple
        if zoom != 1:
            return Framing.fit(camera, width, height, zoom)
        return Framing.whole(camera, width, height)

    def resize(self, width: int) -> "AlignedSize":
        """Return another width; at least one multiple."""
        return AlignedSize(max(width, self.multiple), self.multiple)


@dataclass(frozen=True)
class Protocol:
    """One column, or group of columns, of a table."""

    title: str
    part: Part
    """Where the paper uses it."""
    dataset: str
    """Key of `DATASETS`."""
    scenes: tuple[str, ...]
    """The published list; empty: all scenes that are there."""
    sampling: Sampling
    size: ImageSize | AlignedSize
    metrics: tuple[str, ...]
    alignment: Alignment
    view_counts: tuple[int, ...] = (0,)
    """Views per set; 0: as many as the sampling gives."""
    depth: Convention = "z"
    """What is compared as depth."""
    zoom_max: float = 1.0
    zoom_seed: int = 0
    depth_range: tuple[float, float] = (0.0, float("inf"))
    """True depths that are scored, in the unit of the dataset."""
    reference: dict[str, dict[str, float]] = field(default_factory=dict)
    """Published values by model and metric, to print beside ours."""
    notes: tuple[str, ...] = ()
    """What the publications leave open and was decided here."""

    def describe(self) -> dict[str, Any]:
        """Return the settings that decide which views are scored and how, as plain values."""
        settings = asdict(self)
        for name in ("title", "part", "reference", "notes"):
            del settings[name]
        settings["sampling"] = {"kind": type(self.sampling).__name__, **asdict(self.sampling)}  # type: ignore[call-overload]
        settings["size"] = {"kind": type(self.size).__name__, **asdict(self.size)}
        settings["depth_range"] = [str(value) for value in self.depth_range]
        return settings

    def digest(self) -> str:
        """Hash the settings."""
        return hash_key(self.describe(), default=list)
