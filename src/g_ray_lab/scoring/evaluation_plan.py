"""Which sets a run scores: the view index of the protocol, limited by options and divided between processes."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.evaluation_scene import EvaluationScene
from g_ray_lab.scoring.averages import name_some
from g_ray_lab.scoring.protocol import Protocol, ViewSet
from g_ray_lab.scoring.view_index import (
    COVISIBILITY,
    INDICES,
    ViewIndex,
    freeze_views,
    read_view_index,
    write_view_index,
)

Report = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """Options that make a run partial, which the table then states."""

    scenes: tuple[str, ...] = ()
    """Only these scenes."""
    views: tuple[int, ...] = ()
    """Only sets with these numbers of views."""
    sets: int | None = None
    """Only the first sets of each scene and number of views."""
    width: int | None = None
    """Width of images instead of the protocol's."""

    def describe(self) -> list[str]:
        """Say what is left out or changed, a phrase each."""
        phrases = []
        if self.scenes:
            phrases.append(f"scenes {', '.join(self.scenes)} only")
        if self.views:
            phrases.append(f"sets of {', '.join(map(str, self.views))} views only")
        if self.sets is not None:
            phrases.append(f"the first {self.sets} sets of each scene and number of views only")
        if self.width is not None:
            phrases.append(f"images {self.width} px wide instead of the protocol's size")
        return phrases


@dataclass(frozen=True)
class PlannedSet:
    """A set that is to be scored."""

    scene: str
    count: int
    """Views as the protocol counts them; 0: as many as there are."""
    number: int
    views: ViewSet

    @property
    def name(self) -> str:
        """Unique in its protocol, and a file name."""
        return f"{self.scene.replace('/', '--')}--{self.count:04d}--{self.number:02d}"


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """All sets of a run, in the order in which they are scored."""

    name: str
    protocol: Protocol
    """At the size that is scored."""
    root: Path
    index: ViewIndex
    limits: Limits
    sets: tuple[PlannedSet, ...]

    @property
    def partial(self) -> list[str]:
        """What is left out of the protocol by choice, a phrase each."""
        return self.limits.describe()

    @property
    def missing(self) -> tuple[str, ...]:
        """Selected scenes that are not in the index."""
        return tuple(
            scene for scene in self.index.missing if not self.limits.scenes or scene in self.limits.scenes
        )

    def list_unreadable(self) -> list[str]:
        """List the missing scenes whose files are there: they could not be read when views were drawn."""
        return [scene for scene in self.missing if not _is_absent(self.protocol, self.root, scene)]

    def open_scene(self, name: str) -> EvaluationScene:
        """Read a scene; ValueError or OSError if it cannot be read or is not the one of the index."""
        dataset = DATASETS[self.protocol.dataset]
        scene = dataset.read(dataset.find_root(self.root), name)
        self.index.check_scene(scene)
        return scene

    def hash_views(self, planned: PlannedSet) -> str:
        """Hash the protocol, the frames and the dataset's version."""
        version = self.index.scenes[planned.scene].fingerprint
        views = [planned.views.views, planned.views.zooms, version, self.protocol.digest()]
        return hashlib.sha256(json.dumps(views).encode()).hexdigest()[:16]


def make_plan(
    name: str,
    protocol: Protocol,
    root: Path,
    indices: Path,
    limits: Limits,
    report: Report = lambda text: None,
) -> EvaluationPlan:
    """Read the view index of the dataset, or freeze one into `indices`, and choose the sets."""
    if not root.is_dir():
        download = DATASETS[protocol.dataset].download
        raise ValueError(f"{root}: no such folder; g-ray data prepare {download} makes it")
    _check_scenes(name, protocol, root, limits)
    index = load_index(name, protocol, root, indices, limits, report)
    counts = [count for scene in index.scenes.values() for count in scene.sets]
    if limits.views and not set(limits.views) <= set(counts):
        raise ValueError(f"--views: {name} has sets of {', '.join(map(str, dict.fromkeys(counts)))} views")
    sets = tuple(
        PlannedSet(scene_name, count, number, views)
        for scene_name, scene in index.scenes.items()
        if not limits.scenes or scene_name in limits.scenes
        for count, drawn in scene.sets.items()
        if not limits.views or count in limits.views
        for number, views in enumerate(drawn[: limits.sets])
    )
    if not sets:
        raise ValueError(f"no set of {name} is left to score: none of its scenes in {root} can be read")
    resized = protocol if limits.width is None else replace(protocol, size=protocol.size.resize(limits.width))
    return EvaluationPlan(name, resized, root, index, limits, sets)


def _check_scenes(name: str, protocol: Protocol, root: Path, limits: Limits) -> None:
    """Raise ValueError for a scene that is not one of the protocol's."""
    dataset = DATASETS[protocol.dataset]
    known = protocol.scenes or tuple(dataset.list_scenes(dataset.find_root(root)))
    for scene in limits.scenes:
        if scene not in known:
            raise ValueError(f"--scenes {scene}: no scene of {name}; it has {name_some(known)}")


def load_index(
    name: str, protocol: Protocol, root: Path, indices: Path, limits: Limits, report: Report
) -> ViewIndex:
    """Return the index that was frozen with the dataset or by an earlier run, or freeze it now into `indices`."""
    # An index decides which frames are scored: once frozen it is only read, or two runs could not be compared.
    shipped, own = root / INDICES / f"{name}.json", indices / f"{name}.json"
    if shipped.is_file():
        return read_view_index(shipped, protocol)
    if own.is_file():
        index = read_view_index(own, protocol)
        # An earlier run may have been limited to other scenes.
        wanted = limits.scenes or index.missing
        if all(scene in index.scenes or _is_absent(protocol, root, scene) for scene in wanted):
            return index
    report(f"{name}: no view index in {root / INDICES}, so that it is frozen into {own}")
    scenes: Sequence[str] | None = limits.scenes or None
    index = freeze_views(name, protocol, root, indices / COVISIBILITY, scenes, report)
    if own.is_file():
        index = _merge(read_view_index(own, protocol), index)
    write_view_index(own, index)
    return index


def _is_absent(protocol: Protocol, root: Path, scene: str) -> bool:
    dataset = DATASETS[protocol.dataset]
    return scene not in dataset.list_scenes(dataset.find_root(root))


def _merge(old: ViewIndex, new: ViewIndex) -> ViewIndex:
    """Return the index with the scenes of both."""
    # Old draws win: sets that have been scored keep their views.
    scenes = {**new.scenes, **old.scenes}
    missing = tuple(scene for scene in new.missing if scene not in scenes)
    return replace(new, scenes=scenes, missing=missing)
