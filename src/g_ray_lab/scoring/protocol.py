"""Evaluation protocols: which frames of which dataset form sets, at which size, aligned and scored how.

A protocol is a frozen description; its view index lists the frames by name. Samplings are the published ways to choose
them, each a small frozen dataclass.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from g_ray.cameras.camera import Camera
from g_ray.media.depth import Convention
from g_ray.predictors.model_settings import ModelSettings
from g_ray_lab.datasets.evaluation_scene import EvaluationScene, Framing
from g_ray_lab.scoring.store import hash_key
from g_ray_lab.sources.covisibility import draw_covisible_views
from g_ray_lab.sources.draws import hash_to_unit

Matrix = Float[np.ndarray, "view view"]


@dataclass(frozen=True)
class ViewSet:
    """Frames that a model is given together, by name; the first is the reference."""

    views: tuple[str, ...]
    zooms: tuple[float, ...] = ()
    """Zoom of each view; empty if none is zoomed."""

    @property
    def repeated(self) -> int:
        """How many views are repetitions of others."""
        return len(self.views) - len(set(self.views))

    def get_zoom(self, position: int) -> float:
        """Return the zoom of a view by its place in the set: a repeated frame may have two."""
        return self.zooms[position] if self.zooms else 1.0


@dataclass(frozen=True)
class SamplingInput:
    """What sampling may ask for."""

    scene: EvaluationScene
    number: int
    """Position of the scene in its protocol, which seeds depend on."""
    root: Path
    compute_covisibility: Callable[[], Matrix]


class Sampling(ABC):
    """A way to choose sets of frames."""

    needs_covisibility: bool = False

    @abstractmethod
    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        """Return the sets of a scene with `count` views (0: as many as there are), as indices of frames."""


@dataclass(frozen=True)
class CovisibilityWalk(Sampling):
    """MapAnything's random walk: each view overlaps with an earlier one by more than a threshold.

    Set k of scene s is drawn with numpy's default_rng(seed + k + s). A scene with as many frames as views gives a
    permutation, a smaller one gives frames with replacement. `balanced` gives every device an equal share; the
    published walk knows no devices.
    """

    threshold: float
    sets: int = 10
    seed: int = 777
    balanced: bool = False
    needs_covisibility = True

    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        return [self._draw_set(given, count, number) for number in range(self.sets)]

    def _draw_set(self, given: SamplingInput, count: int, number: int) -> tuple[int, ...]:
        generator, frames = np.random.default_rng(self.seed + number + given.number), len(given.scene)
        groups = given.scene.devices if self.balanced else None
        if groups is None and count >= frames:
            # As published: all of them in any order, or frames that come more than once.
            chosen = generator.permutation(frames) if count == frames else generator.choice(frames, count)
            return tuple(int(index) for index in chosen)
        return tuple(
            draw_covisible_views(
                generator, given.compute_covisibility(), count, self.threshold, range(frames), groups
            )
        )


@dataclass(frozen=True)
class Strided(Sampling):
    """Every n-th frame; with `most`, no more than that many. One set per scene."""

    step: int
    most: int | None = None

    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        return [tuple(range(0, len(given.scene), self.step))[: self.most]]


@dataclass(frozen=True)
class Spread(Sampling):
    """Frames spread evenly over stretches of a recording; a scene too short for two stretches is one set."""

    most: int
    """Views of a set."""
    sets: int

    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        frames = len(given.scene)
        stretches = max(1, min(self.sets, frames // (2 * self.most)))
        bounds = [round(frames * k / stretches) for k in range(stretches + 1)]
        return [self._spread(bounds[k], bounds[k + 1]) for k in range(stretches)]

    def _spread(self, start: int, stop: int) -> tuple[int, ...]:
        views = min(self.most, stop - start)
        return tuple(round(place) for place in np.linspace(start, stop - 1, views).tolist())


@dataclass(frozen=True)
class Shuffled(Sampling):
    """DA3-BENCH's choice: all frames, or the first `most` of a shuffle by Python's generator, in their order."""

    most: int = 100
    seed: int = 42

    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        indices = list(range(len(given.scene)))
        if len(indices) > self.most:
            random.Random(self.seed).shuffle(indices)
            indices = sorted(indices[: self.most])
        return [tuple(indices)]


@dataclass(frozen=True)
class Listed(Sampling):
    """Frames that a published file lists: {scene: [[path, …], …]}, of which the last part of a path names a frame."""

    file: str
    """In the root of the dataset."""
    source: str
    """Where to download it, for messages."""

    def draw(self, given: SamplingInput, count: int) -> list[tuple[int, ...]]:
        path = given.root / self.file
        if not path.is_file():
            raise ValueError(f"{path}: no such list of frames; download it from {self.source}")
        try:
            sets = json.loads(path.read_text(encoding="utf-8"))[given.scene.name]
            return [tuple(self._find(given.scene, path, name) for name in names) for names in sets]
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, ValueError) and str(error).startswith(str(path)):
                raise
            raise ValueError(f"{path}: no list of frames for {given.scene.name} ({error!r})") from None

    def _find(self, scene: EvaluationScene, path: Path, name: str) -> int:
        wanted = PurePosixPath(name).name
        indices = [i for i, frame in enumerate(scene.frames) if PurePosixPath(frame.name).name == wanted]
        if len(indices) != 1:
            raise ValueError(f"{path}: scene {scene.name} has {len(indices)} frames named {wanted}")
        return indices[0]


def draw_zooms(scene: str, count: int, number: int, zoom_max: float, seed: int) -> tuple[float, ...]:
    """Draw z ~ U[1, zoom_max] for each place in a set; the reference, at place 0, keeps its native field of view.

    Zooms depend on the place, so that a frame that is repeated is zoomed twice, and on nothing but the arguments.
    """
    drawn = [hash_to_unit(f"{seed} {scene} {count} {number} {place}") for place in range(1, count)]
    return (1.0, *(round(1 + unit * (zoom_max - 1), 6) for unit in drawn))


Alignment = Literal["mean distance", "sim3", "scale", "umeyama+icp", "ransac sim3+tsdf"]
"""mean distance: truth and prediction are moved to their first view and divided by their mean distance.
sim3: trajectories are aligned by a similarity. scale: one factor per sequence, at the size of the true depth; a factor
and an offset are reported too.
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
    """Published values by model and metric, to print next to ours."""
    notes: tuple[str, ...] = ()
    """What the publications leave open and was decided here."""
    windows: dict[str, int] = field(default_factory=dict)
    """Models that see at most so many views at a time, as published; the windows are joined by shared views."""

    def limit_windows(self, model: str | None, settings: ModelSettings) -> ModelSettings:
        """Return settings with the published window of a model, unless they say how many views it sees at once."""
        if model not in self.windows or settings.at_once is not None or settings.max_memory is not None:
            return settings
        return replace(settings, at_once=self.windows[model])

    def describe(self) -> dict[str, Any]:
        """Return the settings that decide which views are scored and how, as plain values."""
        settings = asdict(self)
        for name in ("title", "part", "reference", "notes", "windows"):
            del settings[name]
        settings["sampling"] = {"kind": type(self.sampling).__name__, **asdict(self.sampling)}  # type: ignore[call-overload]
        settings["size"] = {"kind": type(self.size).__name__, **asdict(self.size)}
        settings["depth_range"] = [str(value) for value in self.depth_range]
        return settings

    def digest(self) -> str:
        """Hash the settings."""
        return hash_key(self.describe(), default=list)
