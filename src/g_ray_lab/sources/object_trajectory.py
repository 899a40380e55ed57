"""Short camera paths around objects whose field of view changes on the way, rendered: the paper's qualitative figure.

The paper shows "changing FoV along short viewpoint trajectories" and gives no numbers. Here a path begins at the first
given view, circles the object by ARC_DEG at its height and distance, and its focal length grows by a constant factor
from frame to frame, from FOCAL[0] to FOCAL[1] of the given view's.
"""

import json
from dataclasses import fields
from math import log, radians
from pathlib import Path

import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray_lab.datasets.objaverse import NAMES, ObjectCameras, read_cameras
from g_ray_lab.meshes.mesh_files import find_meshes
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.sources.dataset_folder import DATASET
from g_ray_lab.sources.objects_nvs import FARTHEST, RenderedObjects, ViewRequest
from g_ray_lab.sources.render_objects import PROCEDURAL, ObjectJob, ObjectSettings, load_mesh

ARC_DEG = 30.0
FOCAL = (0.7, 1.5)


def read_settings(root: Path) -> ObjectSettings:
    """Read what the objects of a folder were rendered with."""
    path = root / DATASET
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(ObjectSettings)}
        return ObjectSettings(**{name: value for name, value in document.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not hold the settings of rendered objects: {error}") from None


def make_path_cameras(first: ObjectCameras, frames: int) -> ObjectCameras:
    """Return the cameras of a path that begins at a view (cameras and poses [1])."""
    if frames < 2:
        raise ValueError(f"{frames} frames: a path has at least 2")
    along = torch.linspace(0.0, 1.0, frames, dtype=torch.float64)
    angle = radians(ARC_DEG) * along
    turn = torch.eye(4, dtype=torch.float64).repeat(frames, 1, 1)
    turn[:, 0, 0], turn[:, 0, 1] = angle.cos(), -angle.sin()  # around z, which is up in an object's frame
    turn[:, 1, 0], turn[:, 1, 1] = angle.sin(), angle.cos()
    factor = torch.exp(log(FOCAL[0]) + along * (log(FOCAL[1]) - log(FOCAL[0])))
    camera = first.cameras
    fx, fy, cx, cy = (camera.parameter(name).double().expand(frames) for name in ("fx", "fy", "cx", "cy"))
    lenses = Pinhole.make(camera.width, camera.height, fx=fx * factor, fy=fy * factor, cx=cx, cy=cy)
    return ObjectCameras(lenses, Pose(turn @ first.poses.world_from_cam.double()))


class TrajectoryObjects:
    """Objects below `root` with rendered paths; `meshes` is the folder that they were rendered from."""

    def __init__(self, root: Path, meshes: Path | None, size: int) -> None:
        self.root, self.size = root, size
        self.settings = read_settings(root)
        if self.settings.meshes != PROCEDURAL and meshes is None:
            raise ValueError(
                f"{root} was rendered from {self.settings.meshes}: give that folder with --meshes, paths are rendered"
            )
        self.files = {} if self.settings.meshes == PROCEDURAL or meshes is None else find_meshes(meshes)
        self.objects = RenderedObjects(root, size, size, cache_mb=0)

    def make_batch(self, uid: str, contexts: tuple[str, str], frames: int) -> NVSBatch:
        """Return the given views of an object, and the frames of a path from the first of them as targets."""
        native = read_cameras(self.root / uid)
        place = NAMES.index(contexts[0])
        first = ObjectCameras(
            native.cameras[place : place + 1].resize(self.size, self.size), native.poses[place : place + 1]
        )
        path = make_path_cameras(first, frames)
        images = self._render(uid, path)
        # The unit of the given views: the object's farthest camera is at FARTHEST.
        poses = path.poses.scale_translation(
            (FARTHEST / native.poses.translation.norm(dim=-1).max()).expand(frames)
        )
        given = self.objects.make_batch([ViewRequest(uid, contexts, contexts)])
        lenses = path.cameras.to(torch.float32)
        targets = Views(
            [lenses[frame : frame + 1] for frame in range(frames)], Pose(poses.world_from_cam[None].float())
        )
        return NVSBatch(given.context_images, given.contexts, images[None], targets, (uid,))

    def _render(self, uid: str, path: ObjectCameras) -> torch.Tensor:
        if self.settings.meshes != PROCEDURAL and uid not in self.files:
            raise ValueError(f"no mesh of {uid} among those of --meshes: give the folder of {self.root}")
        scene = MeshScene(load_mesh(ObjectJob(uid, self.files.get(uid)), self.settings), self.settings.light)
        return scene.render_color(path.cameras, path.poses, self.settings.antialias).float() / 255
