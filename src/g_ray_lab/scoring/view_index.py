"""View indices: which frames form the sets of a protocol, frozen in a file of names with a hash.

{"protocol": "eth3d-fov", "settings": HASH, "scenes": {SCENE: {"dataset": HASH, "sets": {"2": [{"views": […], …}]}}},
 "missing": [SCENE, …], "sha256": HASH of all the rest}

`settings` is the hash of the protocol and `dataset` that of a scene's names, cameras and poses: a dataset that is not
the one that the index was made for is named, and not scored. Walks over overlapping views need covisibility, which is
computed once per scene, across devices and camera models, and stored.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path, write_atomically
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene, EvaluationView, Framing
from g_ray_lab.scoring.averages import name_some
from g_ray_lab.scoring.protocol import Protocol, SamplingInput, ViewSet, draw_zooms
from g_ray_lab.sources.covisibility import CoarseView, compute_pairwise, read_covisibility

INDICES, COVISIBILITY = "indices", "covisibility"
"""Folders of view indices and of stored covisibility, in a dataset or in the results of a run."""


@dataclass(frozen=True)
class IndexedScene:
    """The sets of one scene, by their number of views."""

    fingerprint: str
    sets: dict[int, tuple[ViewSet, ...]]


@dataclass(frozen=True)
class ViewIndex:
    """The sets of a protocol for the scenes that were there."""

    protocol: str
    settings: str
    scenes: dict[str, IndexedScene]
    missing: tuple[str, ...] = ()
    """Scenes of the protocol that were not there."""

    def to_document(self) -> dict[str, Any]:
        """Return the content of the file without its hash."""
        scenes = {
            name: {
                "dataset": scene.fingerprint,
                "sets": {
                    str(count): [_set_to_document(one) for one in sets] for count, sets in scene.sets.items()
                },
            }
            for name, scene in self.scenes.items()
        }
        head = {"protocol": self.protocol, "settings": self.settings}
        return {**head, "scenes": scenes, "missing": list(self.missing)}

    @property
    def digest(self) -> str:
        """Hash of the canonical text: sorted keys, no spaces."""
        text = json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def repeated(self) -> int:
        """How many sets have a frame more than once, because their scene is too small."""
        return sum(
            one.repeated > 0 for scene in self.scenes.values() for sets in scene.sets.values() for one in sets
        )

    def check_scene(self, scene: EvaluationScene) -> IndexedScene:
        """Return the sets of a scene; ValueError if it is not in the index or not the version it was made for."""
        known = self.scenes.get(scene.name)
        if known is None:
            raise ValueError(
                f"scene {scene.name} is not in the view index of {self.protocol}; freeze it again"
            )
        if known.fingerprint != scene.fingerprint():
            raise ValueError(
                f"scene {scene.name} of {scene.dataset} is not the one of the view index of {self.protocol}: "
                "names, cameras or poses have changed; restore the dataset, or freeze another index"
            )
        return known


def _set_to_document(one: ViewSet) -> dict[str, Any]:
    return {"views": list(one.views), **({"zooms": list(one.zooms)} if one.zooms else {})}


def load_views(protocol: Protocol, scene: EvaluationScene, views: ViewSet) -> list[EvaluationView]:
    """Load the views of a set at the protocol's size and zoom, with their truth; a repeated frame comes again.

    Depths outside the protocol's range are unknown.
    """
    loaded = []
    for position, name in enumerate(views.views):
        frame = scene[name]
        view = frame.load_view(protocol.size.frame(frame.camera, views.get_zoom(position)))
        loaded.append(_limit_depth(view, protocol))
    return loaded


def _limit_depth(view: EvaluationView, protocol: Protocol) -> EvaluationView:
    low, high = protocol.depth_range
    depth = view.ray_depth
    if protocol.depth == "z":
        depth = depth * RayMap.from_camera(view.camera).directions[..., 2]
    valid = view.valid & (depth > low) & (depth < high)
    return replace(view, valid=valid, ray_depth=torch.where(valid, view.ray_depth, 0))


# Making an index


def freeze_views(
    name: str,
    protocol: Protocol,
    root: Path,
    cache: Path,
    scenes: Sequence[str] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> ViewIndex:
    """Draw the sets of all scenes that are there; those that cannot be read are listed as missing.

    `scenes` limits the protocol to some of its scenes, the others are missing; `cache` is a folder for covisibility;
    `report` gets a line per scene that cannot be read.
    """
    dataset = DATASETS[protocol.dataset]
    root = dataset.find_root(root)
    there = dataset.list_scenes(root)
    wanted = protocol.scenes or tuple(there)
    indexed, missing = dict[str, IndexedScene](), list[str]()
    absent = [scene for scene in wanted if scene not in there and (scenes is None or scene in scenes)]
    if absent:
        report(f"{name}: {len(absent)} of {len(wanted)} scenes are not in {root}: {name_some(absent)}")
    for place, scene_name in enumerate(wanted):
        # Without a published list, the number in a name does not depend on which other scenes are there.
        number = place if protocol.scenes or not scene_name.isdigit() else int(scene_name)
        if scene_name not in there or (scenes is not None and scene_name not in scenes):
            missing.append(scene_name)
            continue
        try:
            if protocol.sampling.needs_covisibility:
                report(f"{name}: scene {scene_name}, {place + 1} of {len(wanted)}")
            indexed[scene_name] = _draw_scene(protocol, dataset.read(root, scene_name), number, root, cache)
        except (ValueError, OSError) as error:
            missing.append(scene_name)
            report(f"{name}: scene {scene_name} is left out: {error}")
    if not indexed:
        raise ValueError(
            f"{root}: none of the {len(wanted)} scenes of {name} can be read, e.g. {', '.join(wanted[:3])}; "
            "give the folder that holds them"
        )
    return ViewIndex(name, protocol.digest(), indexed, tuple(missing))


def _draw_scene(
    protocol: Protocol, scene: EvaluationScene, number: int, root: Path, cache: Path
) -> IndexedScene:
    sparse = DATASETS[protocol.dataset].depth == "sparse"
    given = SamplingInput(scene, number, root, lambda: load_or_compute(cache, scene, sparse=sparse))
    drawn: dict[int, tuple[ViewSet, ...]] = {}
    for count in protocol.view_counts:
        sets = protocol.sampling.draw(given, count)
        drawn[count] = tuple(
            _make_set(protocol, scene, indices, number) for number, indices in enumerate(sets)
        )
    return IndexedScene(scene.fingerprint(), drawn)


def _make_set(protocol: Protocol, scene: EvaluationScene, indices: tuple[int, ...], number: int) -> ViewSet:
    if protocol.zoom_max == 1:
        zooms: tuple[float, ...] = ()
    else:
        zooms = draw_zooms(scene.name, len(indices), number, protocol.zoom_max, protocol.zoom_seed)
    return ViewSet(tuple(scene.frames[index].name for index in indices), zooms)


# Files


def write_view_index(path: Path, index: ViewIndex) -> None:
    """Write an index; one that is there may only grow: what models were scored on does not change.

    ValueError if it has other views, other settings, or scenes that the new one has not.
    """
    if path.exists():
        old = _parse_index(path)
        unchanged = all(index.scenes.get(name) == scene for name, scene in old.scenes.items())
        if not unchanged or (old.protocol, old.settings) != (index.protocol, index.settings):
            raise ValueError(
                f"{path} is there with other views: keep it, or give another folder for the index of this dataset"
            )
    write_atomically(path, json.dumps({**index.to_document(), "sha256": index.digest}, indent=1) + "\n")


def read_view_index(path: Path, protocol: Protocol) -> ViewIndex:
    """Read an index; ValueError if it was changed by hand or is for other settings of the protocol."""
    index = _parse_index(path)
    if index.settings != protocol.digest():
        raise ValueError(f"{path} is for other settings of {index.protocol}; freeze it again")
    return index


def _parse_index(path: Path) -> ViewIndex:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        scenes = {name: _parse_scene(scene) for name, scene in document["scenes"].items()}
        index = ViewIndex(document["protocol"], document["settings"], scenes, tuple(document["missing"]))
        stored = document["sha256"]
    except FileNotFoundError:
        raise ValueError(f"{path}: no such view index; g-ray data prepare freezes it") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a view index ({error!r})") from None
    if index.digest != stored:
        raise ValueError(f"{path}: its hash does not fit: it was changed; freeze it again")
    return index


def _parse_scene(document: dict[str, Any]) -> IndexedScene:
    sets = {
        int(count): tuple(ViewSet(tuple(one["views"]), tuple(one.get("zooms", ()))) for one in many)
        for count, many in document["sets"].items()
    }
    return IndexedScene(document["dataset"], sets)


POINTS_PX = 40
"""Side of the grid of points that is looked for in other views."""
LOOKUP_PX = 224
"""Long side of the maps that it is looked for in, as published for ETH3D."""
SPARSE_LOOKUP_PX = 96
"""The same for LiDAR: at this size its points are dense."""
DECIMALS = 4


def compute_scene_covisibility(
    scene: EvaluationScene, *, sparse: bool = False
) -> Float[np.ndarray, "view view"]:
    """Return the share of frame i's pixels whose points frame j sees, at [i, j].

    Points agree within 0.17 m and half a per cent of their distance (as published), which is measured along the ray, so
    that any lens will do.
    """
    views = [_make_coarse_view(frame, SPARSE_LOOKUP_PX if sparse else LOOKUP_PX) for frame in scene.frames]
    # Rounding keeps the walks of two machines together where their last digits differ.
    return compute_pairwise(views, scene.poses).round(DECIMALS)


def _make_coarse_view(frame: EvaluationFrame, lookup_px: int) -> CoarseView:
    grid = Framing.whole(frame.camera, POINTS_PX, POINTS_PX)
    depth, valid = frame.load_depth(grid)
    points = depth[..., None] * RayMap.from_camera(grid.apply(frame.camera).to(torch.float32)).directions
    scale = lookup_px / max(frame.camera.width, frame.camera.height)
    size = [max(2, round(scale * side)) for side in (frame.camera.width, frame.camera.height)]
    lookup = Framing.whole(frame.camera, *size)
    return CoarseView(
        points, valid, lookup.apply(frame.camera).to(torch.float32), frame.load_depth(lookup)[0]
    )


def load_or_compute(
    folder: Path, scene: EvaluationScene, *, sparse: bool = False
) -> Float[np.ndarray, "view view"]:
    """Return the matrix that is stored for this version of a scene; compute and store it if there is none."""
    name = f"{scene.dataset}--{scene.name.replace('/', '--')}--{scene.fingerprint()}.npy"
    path = folder / name
    if not path.is_file():
        matrix = compute_scene_covisibility(scene, sparse=sparse)
        with atomic_path(path) as scratch, scratch.open("wb") as file:
            np.save(file, matrix)
    return np.asarray(read_covisibility(path, len(scene)))
