"""`g-ray reproduce nvs-objects`: view synthesis around objects."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.synthesis_table import PAIRS, NVSTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.indexed_protocols import ObjectsProtocol
    from g_ray_lab.scoring.study import Study

MADE = 600  # procedural objects, where no scanned ones are found
RENDER = "g-ray data objects --meshes MESHES --out FOLDER"


@dataclass(frozen=True)
class NVSObjects(NVSTable):
    """The six methods of LVSM, on objects whose views differ in their fields of view."""

    data: Path | None = None
    """Folder of rendered objects; at small scale they are rendered into OUT/data if none is given."""
    index: Path | None = None
    """Folder of an index, as `g-ray data objects-index` writes it, e.g. of a released one: its objects are for testing,
    all others for training. If not given, one product in ten is for testing, and OUT/index lists them."""

    def build_study(self) -> "Study":
        from g_ray.models.lvsm_config import METHODS
        from g_ray_lab.recipes import nvs_recipes as nvs
        from g_ray_lab.scoring.study import Study

        if self.scale == "paper" and self.data is None:
            raise ValueError(
                f"--scale paper needs --data FOLDER with rendered objects; make it with {RENDER}"
            )
        make = {"small": nvs.objects_tiny, "paper": nvs.objects_paper}[self.scale]
        size = make("gta").data.width
        root = self.data or render_small_objects(self.out / "data", size)
        recipes = {
            name: replace(recipe, data=replace(recipe.data, index=self.index))
            for name, recipe in ((method, make(method, root)) for method in METHODS)
        }
        protocol = (
            freeze_protocol(root, self.out / "index", size)
            if self.index is None
            else read_protocol(root, self.index, size)
        )
        return Study("nvs-objects", self.scale, recipes, self.build_scorer(protocol), PAIRS)


def render_small_objects(root: Path, size: int) -> Path:
    """Render all scanned objects if they are among the shared data, else procedural ones; skip what is rendered."""
    import shutil

    from g_ray.runtime.files import find_shared_data
    from g_ray.runtime.out_folder import lock_folder
    from g_ray.runtime.progress import CountBar, follow_outcomes
    from g_ray_lab.datasets.objaverse import PARTIAL
    from g_ray_lab.sources import render_objects as rendering
    from g_ray_lab.sources.nvs_settings import SCANNED
    from g_ray_lab.sources.render_objects import claim_folder

    scanned = find_shared_data() / SCANNED
    meshes = scanned if scanned.is_dir() else None
    jobs = rendering.list_object_jobs(meshes, MADE if meshes is None else None, seed=0)
    name = rendering.PROCEDURAL if meshes is None else meshes.resolve().name
    settings = rendering.ObjectSettings(name, size=size, antialias=2 if size >= 128 else 4)
    with lock_folder(root):
        claim_folder(root, settings)
        shutil.rmtree(root / PARTIAL, ignore_errors=True)  # what a killed run left behind
        before = len(jobs) - len(rendering.find_unfinished(root, jobs))
        outcomes: Any = rendering.render_objects(root, jobs, settings, os.cpu_count() or 1)
        refused = follow_outcomes(outcomes, CountBar(len(jobs), before, "objects"))
        shutil.rmtree(root / PARTIAL, ignore_errors=True)
    if refused:
        raise ValueError(
            f"{len(refused)} of {len(jobs)} meshes could not be read, e.g. {next(iter(refused))}"
        )
    return root


def freeze_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Write the index of test views if there is none, and check it against the objects before anything is trained."""
    from g_ray_lab.sources.object_index import SUMS, assign_split, draw_contexts, read_tested, write_indices

    if not (index / SUMS).is_file():
        write_indices(root, index, draw_contexts(root, 0))
    trained = sorted(uid for uid in read_tested(index) if assign_split(uid) == "train")
    if trained:
        raise ValueError(
            f"{index} tests {len(trained)} objects that are trained on, e.g. {trained[0]}: it is of an earlier version "
            "that split objects by name; choose another --out"
        )
    return read_protocol(root, index, size)


def read_protocol(root: Path, index: Path, size: int) -> "ObjectsProtocol":
    """Return the protocol of an index, checked against the objects."""
    from g_ray_lab.scoring.indexed_protocols import ObjectsProtocol

    protocol = ObjectsProtocol(root, index, size, size)
    protocol.check()
    return protocol
