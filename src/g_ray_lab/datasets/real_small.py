"""Read a small collection of real photographs with truth of three kinds.

ROOT/7scenes_redkitchen100/frame-….{color.jpg,depth.png,pose.txt}     Kinect depth, moved to the color camera
ROOT/sceaux/{images,sparse}                                           a castle; points of structure from motion
ROOT/stereo_disparity/datasets.xml, NAME/{im2,im6,disp2,disp6}.png    rectified pairs with disparity
ROOT/middlebury_motorcycle/motorcycle_{left,right}.png, _disp.npz     the same

OpenCV's copy of Middlebury has datasets.xml with scales, and NAME/im2.png (left), im6.png (right), disp2.png and
disp6.png. Archives have NAME_left.png, NAME_right.png and NAME_disp.npz (disparity of the left image in pixels; not
finite: unknown). Middlebury's pairs come without a focal length. Any one is consistent with the disparities: it
stretches depth, for the truth as for the prediction. A focal length of one image width and a baseline of 1 are taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.formats.colmap.colmap_model import ColmapModel, read_model
from g_ray.formats.colmap.colmap_scene import find_model, read_colmap
from g_ray.formats.seven_scenes import is_seven_scenes, read_seven_scenes
from g_ray.geometry.pose import Pose
from g_ray.media.depth import resize_depth
from g_ray.media.images import FORMATS, read_header
from g_ray.media.view import check_depth_size
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    DepthSource,
    Download,
    EvaluationFrame,
    EvaluationScene,
    Framing,
)
from g_ray_lab.datasets.seven_scenes_sequences import LIMITS_M
from g_ray_lab.datasets.stored_frames import StoredImage, convert_scene, make_pinhole, splat_depth

DOWNLOAD = Download(
    "real-small",
    "real photographs: red kitchen, Sceaux castle, rectified pairs",
    "https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes",
    "7-Scenes: Microsoft Research license, non-commercial; Sceaux: copyright P. Moulon; pairs: Middlebury",
    (
        "100 frames of 7-Scenes' redkitchen as 7scenes_redkitchen100/frame-….{color.jpg,depth.png,pose.txt}",
        "openMVG's ImageDataset_SceauxCastle with a COLMAP model as sceaux/{images,sparse}",
        "opencv_extra's cv/stereomatching/datasets as stereo_disparity, and Middlebury's Motorcycle",
    ),
    (
        "7scenes_redkitchen100/frame-000000.color.jpg",
        "sceaux/sparse/cameras.bin or cameras.txt",
        "stereo_disparity/datasets.xml",
        "middlebury_motorcycle/motorcycle_disp.npz",
    ),
)
DATASET = "real-small"
KITCHEN, SCEAUX = "7scenes_redkitchen100", "sceaux"
PAIR_FOLDERS = ("stereo_disparity", "middlebury_motorcycle")
PAIRS = ("barn2", "bull", "cones", "poster", "sawtooth", "teddy", "tsukuba", "venus", "motorcycle")
INDEX = "datasets.xml"
SCENES = (KITCHEN, SCEAUX, *PAIRS)


@dataclass(frozen=True)
class DisparityFile:
    """Disparities of an image: an array, or a gray image that holds them times a scale."""

    path: Path
    scale: float = 1.0

    def read(self) -> Float[Tensor, "h w"]:
        """Return pixels by which the other image is displaced; 0 is unknown. OSError for a file that is none."""
        try:
            if self.path.suffix == ".npz":
                with np.load(self.path, allow_pickle=False) as file:
                    stored = np.nan_to_num(file[file.files[0]], posinf=0.0).astype(np.float32)
            else:
                stored = np.asarray(Image.open(self.path, formats=FORMATS).convert("L"), dtype=np.float32)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, EOFError, IndexError) as error:
            raise OSError(f"{self.path}: no disparities can be read ({error})") from None
        return torch.from_numpy(stored / np.float32(self.scale))


@dataclass(frozen=True)
class PairFiles:
    """The files of a pair."""

    name: str
    left: Path
    right: Path
    disparity: DisparityFile
    """Disparity of the left image."""
    right_disparity: DisparityFile | None = None


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

    path: Path
    points: Float[Tensor, "point 3"]
    """In the world, float64."""

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        return splat_depth(framing.apply(frame.camera), frame.get_pose().inverse().apply(self.points))


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


def find_pairs(folder: Path) -> list[PairFiles]:
    """List the pairs of a folder, none if it has neither layout."""
    return list(_find_scaled(folder) if (folder / INDEX).is_file() else _find_archives(folder))


def _find_scaled(folder: Path) -> Iterator[PairFiles]:
    words = (ElementTree.parse(folder / INDEX).getroot()[0].text or "").split()
    for name, scale, _ in zip(words[::3], words[1::3], words[2::3], strict=True):
        place, factor = folder / name, float(scale.strip('"'))
        right = place / "disp6.png"
        yield PairFiles(
            name,
            place / "im2.png",
            place / "im6.png",
            DisparityFile(place / "disp2.png", factor),
            DisparityFile(right, factor) if right.is_file() else None,
        )


def _find_archives(folder: Path) -> Iterator[PairFiles]:
    for path in sorted(folder.glob("*_disp.npz")):
        name = path.name.removesuffix("_disp.npz")
        left, right = (folder / f"{name}_{side}.png" for side in ("left", "right"))
        yield PairFiles(name, left, right, DisparityFile(path))


@dataclass(frozen=True)
class DisparityDepth(DepthSource):
    """z-depth f · baseline / disparity, with a focal length of one image width and a baseline of 1."""

    file: DisparityFile

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.file.path

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        disparity = self.file.read()
        check_depth_size(self.file.path, disparity, frame.camera)
        size = (frame.camera.width, frame.camera.height)
        near = resize_depth(disparity, size, framing.width, framing.height, framing.box)
        return torch.where(near > 0, frame.camera.width / near.clamp(min=1e-6), 0)


def _read_pair(pair: PairFiles) -> EvaluationScene:
    frames = []
    sides = (("left", pair.left, pair.disparity), ("right", pair.right, pair.right_disparity))
    for place, (side, path, disparity) in enumerate(sides):
        header = read_header(path)
        width, height = header.width, header.height
        camera = make_pinhole((width, height), float(width), float(width), width / 2, height / 2)
        pose = Pose.from_parts(torch.eye(3).double(), torch.tensor([float(place), 0.0, 0.0]).double())
        depth = None if disparity is None else DisparityDepth(disparity)
        frames.append(EvaluationFrame(side, StoredImage(path), camera, pose, depth))
    return EvaluationScene(pair.name, DATASET, tuple(frames), unit="none")


DATASETS = {
    DATASET: Dataset(
        "red kitchen, Sceaux castle, rectified pairs", DOWNLOAD, list_real_small, read_real_small
    )
}
