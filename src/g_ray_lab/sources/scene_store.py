"""The scene folders of a training: their list, which are held out, and a cache of scenes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from g_ray.formats import find_scenes, read_scene
from g_ray.formats.masks import add_masks
from g_ray.formats.posed_scene import PosedScene
from g_ray.media.depth import Convention, DepthFile
from g_ray_lab.datasets.scannetpp import VALIDATION_SCENES
from g_ray_lab.sources.batches import RecentCache
from g_ray_lab.sources.covisibility import get_scene_covisibility
from g_ray_lab.sources.draws import hash_to_unit

KEPT = 256
"""Scenes in memory: cameras, poses and overlaps, no pictures."""


@dataclass(frozen=True)
class DepthReading:
    """How to read depth files where it differs from their format; None keeps the format's."""

    convention: Convention | None = None
    unit: float | int | None = None
    modality: str | None = None
    """Of WAI folders, see `read_wai`."""

    def __post_init__(self) -> None:
        if self.unit is not None and not self.unit > 0:
            raise ValueError(f"the unit of depth files, {self.unit}, must be a positive number")

    def apply_to(self, scene: PosedScene) -> PosedScene:
        changes = {
            name: value
            for name, value in (("convention", self.convention), ("unit", self.unit))
            if value is not None
        }
        views = [
            replace(view, depth=replace(view.depth, **changes)) if isinstance(view.depth, DepthFile) else view
            for view in scene.views
        ]
        return replace(scene, views=tuple(views))


class LoadedScene:
    """A scene that has depth; its covisibility is computed on first use."""

    def __init__(self, scene: PosedScene) -> None:
        if not scene.depth:
            raise ValueError(f"{scene.folder}: no depth; reconstruction learns from views with depth maps")
        self.scene = scene
        self.with_depth = [view for view, file in enumerate(scene.depth) if file is not None]

    @cached_property
    def covisibility(self) -> Float[np.ndarray, "view view"]:
        return get_scene_covisibility(self.scene)


class SceneStore:
    """Scenes of one or more folders, each a scene or a folder of scenes.

    Whether a scene is held out depends on its name alone, not on what else is there; of two scenes or more at least
    one is, and at least one is not. A single scene is split by its frames instead: see `ScenesReconstruction`.
    `masks` is a folder inside every scene folder; `trains` leaves out what `select_trainable` does.
    """

    def __init__(
        self,
        folders: Sequence[Path | str],
        hold_out: float,
        reading: DepthReading,
        masks: Path | None = None,
        trains: bool = False,
    ) -> None:
        if isinstance(folders, str | Path) or not folders:
            raise ValueError("no scenes: give one or more folders, each a scene or a folder of scenes")
        found = {Path(root): find_scenes(Path(root)) for root in folders}
        if trains:
            found = {root: select_trainable(root, scenes) for root, scenes in found.items()}
        scenes = [(root, scene) for root in found for scene in found[root]]
        self.folders = [scene for _, scene in scenes]
        self.names = [_format_name(root, scene) for root, scene in scenes]
        self.reading, self.masks = reading, masks
        order = sorted(range(len(self.names)), key=lambda i: (hash_to_unit(self.names[i]), self.names[i]))
        count = sum(hash_to_unit(name) < hold_out for name in self.names)
        count = min(max(1, count), len(order) - 1)
        self.held_out, self.training = sorted(order[:count]), sorted(order[count:])
        self.recent: RecentCache[LoadedScene] = RecentCache(KEPT)

    def __getitem__(self, index: int) -> LoadedScene:
        return self.recent(index, partial(self._load, index))

    def _load(self, index: int) -> LoadedScene:
        scene = read_scene(self.folders[index], check=False, modality=self.reading.modality)
        return LoadedScene(
            self.reading.apply_to(scene if self.masks is None else add_masks(scene, self.masks))
        )


TRAINING_LIST = "nvs_sem_train.txt"


def select_trainable(root: Path, scenes: list[Path]) -> list[Path]:
    """Leave out ScanNet++'s 50 validation scenes and, where its official list is there, all that it does not name.

    The list is ROOT/nvs_sem_train.txt or ROOT/splits/nvs_sem_train.txt. ValueError if no scene is left.
    """
    lists = [path for path in (root / TRAINING_LIST, root / "splits" / TRAINING_LIST) if path.is_file()]
    official = set(lists[0].read_text(encoding="utf-8").split()) if lists else None
    kept = [
        scene
        for scene in scenes
        if scene.name not in VALIDATION_SCENES and (official is None or scene.name in official)
    ]
    left = len(scenes) - len(kept)
    if left:
        reason = f"{left} of {len(scenes)} scenes are not in ScanNet++'s training split"
        if not kept:
            raise ValueError(f"{root}: {reason}: give scenes of {TRAINING_LIST}")
        warnings.warn(f"{root}: {reason} and are not trained on", stacklevel=2)
    return kept


def _format_name(root: Path, scene: Path) -> str:
    """Return a name that does not depend on where the data is stored."""
    return (Path(root.resolve().name) / scene.relative_to(root)).as_posix()
