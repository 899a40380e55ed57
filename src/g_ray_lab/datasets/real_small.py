"""Read a small collection of real photographs with truth of three kinds.

ROOT/7scenes_redkitchen100/frame-….{color.jpg,depth.png,pose.txt}     Kinect depth, moved to the color camera
ROOT/sceaux/{images,sparse}                                           a castle; points of structure from motion
ROOT/stereo_disparity/datasets.xml, NAME/{im2,im6,disp2,disp6}.png    rectified pairs with disparity
ROOT/middlebury_motorcycle/motorcycle_{left,right}.png, _disp.npz     the same

Middlebury's pairs come without a focal length. Any one is consistent with the disparities: it stretches depth, for the
truth as for the prediction. A focal length of one image width and a baseline of 1 are taken.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.colmap.colmap_model import ColmapModel, read_model
from g_ray.formats.colmap.colmap_scene import find_model, read_colmap
from g_ray.formats.seven_scenes import is_seven_scenes, read_seven_scenes
from g_ray.geometry.pose import Pose
from g_ray.media.depth import Convention, resize_depth
from g_ray.media.images import read_header
from g_ray.media.view import check_depth_size
from g_ray_lab.datasets.evaluation_scene import DepthSource, EvaluationFrame, EvaluationScene, Framing
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.posed_folders import convert_scene
from g_ray_lab.datasets.rectified_pairs import DisparityFile, PairFiles, find_pairs
from g_ray_lab.datasets.seven_scenes_sequences import LIMITS_M
from g_ray_lab.datasets.true_depth import splat_depth

DATASET = "real-small"
KITCHEN, SCEAUX = "7scenes_redkitchen100", "sceaux"
PAIR_FOLDERS = ("stereo_disparity", "middlebury_motorcycle")
PAIRS = ("barn2", "bull", "cones", "poster", "sawtooth", "teddy", "tsukuba", "venus", "motorcycle")
SCENES = (KITCHEN, SCEAUX, *PAIRS)


def list_real_small(root: Path) -> list[str]:
    """List the scenes that are there."""
    recordings = [KITCHEN] if (root / KITCHEN).is_dir() and is_seven_scenes(root / KITCHEN) else []
    castle = [SCEAUX] if (root / SCEAUX).is_dir() and find_model(root / SCEAUX) is not None else []
    return [*recordings, *castle, *_find_all_pairs(root)]


def _find_all_pairs(root: Path) -> dict[str, PairFiles]:
    return {
        pair.name: pair
        for folder in PAIR_FOLDERS
        if (root / folder).is_dir()
        for pair in find_pairs(root / folder)
    }


def read_real_small(root: Path, name: str) -> EvaluationScene:
    """Read a scene by its name."""
    if name == KITCHEN:
        return convert_scene(read_seven_scenes(root / KITCHEN, check=False), name, DATASET, LIMITS_M)
    if name == SCEAUX:
        return _read_castle(root / SCEAUX)
    return _read_pair(_find_all_pairs(root)[name])


# Sceaux


@dataclass(frozen=True, eq=False)
class TrackedPoints(DepthSource):
    """z-depth of the points of structure from motion that were tracked in a photograph; sparse."""

    file: Path
    points: Float[Tensor, "point 3"]
    """In the world, float64."""
    convention: Convention = field(default="z", init=False)

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        return splat_depth(framing.apply(frame.camera), frame.get_pose().inverse().apply(self.points))

    def list_files(self) -> tuple[Path, ...]:
        return (self.file,)


def _read_castle(folder: Path) -> EvaluationScene:
    scene, place = read_colmap(folder, check=False), find_model(folder)
    assert place is not None
    model = read_model(place, points=True)
    files = next(iter(sorted(place.glob("points3D.*"))), place)
    frames = tuple(
        EvaluationFrame(
            name,
            StoredImage(scene.images[i]),
            scene.cameras[i],
            scene.poses[i],
            TrackedPoints(files, _list_tracked(model, name)),
        )
        for i, name in enumerate(scene.names)
    )
    return EvaluationScene(SCEAUX, DATASET, frames, unit="none", notes=scene.notes)


def _list_tracked(model: ColmapModel, name: str) -> Float[Tensor, "point 3"]:
    assert model.points is not None
    image = next(image for image in model.images if image.name == name)
    tracked = [model.points[i].position for i in image.point_ids.tolist() if i in model.points]
    return torch.tensor(tracked, dtype=torch.float64).reshape(-1, 3)


# Pairs


@dataclass(frozen=True)
class DisparityDepth(DepthSource):
    """z-depth f · baseline / disparity, with a focal length of one image width and a baseline of 1."""

    file: DisparityFile
    convention: Convention = field(default="z", init=False)

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        disparity = self.file.read()
        check_depth_size(self.file.path, disparity, frame.camera)
        size = (frame.camera.width, frame.camera.height)
        near = resize_depth(disparity, size, framing.width, framing.height, framing.box)
        return torch.where(near > 0, frame.camera.width / near.clamp(min=1e-6), 0)

    def list_files(self) -> tuple[Path, ...]:
        return (self.file.path,)


def _read_pair(pair: PairFiles) -> EvaluationScene:
    frames = []
    sides = (("left", pair.left, pair.disparity), ("right", pair.right, pair.right_disparity))
    for place, (side, path, disparity) in enumerate(sides):
        header = read_header(path)
        size = header.width, header.height
        focal = {"fx": float(size[0]), "fy": float(size[0]), "cx": size[0] / 2, "cy": size[1] / 2}
        camera = Pinhole.make(*size, **focal, dtype=torch.float64)
        pose = Pose.from_parts(torch.eye(3).double(), torch.tensor([float(place), 0.0, 0.0]).double())
        depth = None if disparity is None else DisparityDepth(disparity)
        frames.append(EvaluationFrame(side, StoredImage(path), camera, pose, depth))
    return EvaluationScene(pair.name, DATASET, tuple(frames), unit="none")
