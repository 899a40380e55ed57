"""Novel-view synthesis from scanned objects that stand where the furniture of a room would, before white.

Cameras, lenses and zooms are drawn as in rooms (`ArcNVS`), so that tables can tell what the scenes change. Rendered
objects (`ObjectsNVS`) have other cameras: their fields of view differ within a scene in training too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import UInt8

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray_lab.meshes.mesh_files import find_meshes
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.arc_views import ArcDraws, ArcNVS
from g_ray_lab.sources.clip_sampling import hash_to_unit
from g_ray_lab.sources.draws import HELD_OUT
from g_ray_lab.sources.nvs_settings import ObjectArcsData
from g_ray_lab.sources.object_index import TEST_SHARE, get_product
from g_ray_lab.sources.objects_nvs import HELD_OUT_SHARE
from g_ray_lab.sources.render_objects import ObjectJob, ObjectSettings, load_mesh

EXTENT_M = 1.2
"""Longest side of an object. Its corners are within √3/2 · 1.2 = 1.04 m of the middle, cameras at 1.1 m or more."""

SHARES = {
    "test": (0.0, TEST_SHARE),
    "held_out": (TEST_SHARE, TEST_SHARE + HELD_OUT_SHARE),
    "train": (TEST_SHARE + HELD_OUT_SHARE, 1.0),
}
"""Range of every split in [0, 1), by product: color variants of an object are in one split."""

OBJECT_FROM_SCENE = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))
"""Meshes have z up, scenes y down."""


@dataclass(frozen=True)
class ObjectArcsNVS(ArcNVS):
    """Views around scanned objects. Products of the test split are never trained on."""

    NAME, AIM_M, LEVEL_M = "object", None, 0.0

    settings: ObjectArcsData

    @cached_property
    def jobs(self) -> dict[str, list[ObjectJob]]:
        """The objects of each split, by the number in [0, 1) that belongs to their product."""
        folder = self.settings.find_meshes()
        files = find_meshes(folder)
        jobs = {
            split: [
                ObjectJob(uid, files[uid]) for uid in files if low <= hash_to_unit(get_product(uid)) < high
            ]
            for split, (low, high) in SHARES.items()
        }
        missing = [split for split, listed in jobs.items() if not listed]
        if missing:
            raise ValueError(
                f"{folder} has {len(files)} meshes, and by their names none is for {missing[0]}: give a folder with "
                "more of them"
            )
        return jobs

    def render(
        self, draws: Sequence[ArcDraws], camera: Pinhole, poses: Pose
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        turn = torch.tensor(OBJECT_FROM_SCENE, dtype=poses.dtype)
        # Meshes have unit size: dividing positions by the extent makes the object that large.
        inside = Pose.from_parts(
            turn @ poses.rotation, (turn @ poses.translation[..., None])[..., 0] / EXTENT_M
        )
        images = [
            MeshScene(load_mesh(self._get_object(draw), ObjectSettings()), light=True).render_color(
                camera[scene], inside[scene], self.settings.antialias
            )
            for scene, draw in enumerate(draws)
        ]
        return torch.stack(images).numpy()

    def _get_object(self, draw: ArcDraws) -> ObjectJob:
        jobs = self.jobs["held_out" if draw.rank == HELD_OUT else self.split]
        return jobs[draw.content % len(jobs)]
