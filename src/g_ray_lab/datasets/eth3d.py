"""Read ETH3D's high-resolution multi-view scenes: distorted images with their lens, or undistorted ones.

ROOT/courtyard/images/dslr_images/DSC_0286.JPG                 and dslr_images_undistorted/DSC_0286.JPG
ROOT/courtyard/dslr_calibration_jpg/{cameras,images}.txt       COLMAP, THIN_PRISM_FISHEYE; also ..._undistorted
ROOT/courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG     float32 numbers, of the distorted image
ROOT/courtyard/dslr_scan_eval/…                                laser scans, not read; DA3-BENCH: combined_mesh.ply

Depth of undistorted images is looked up along their rays in the map of the distorted ones. Frames that are stored
sideways are turned upright, with camera and pose.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.formats.calibration_source import View
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.eth3d_calibration import ETH3DDepthFile
from g_ray.formats.posed_scene import resolve_inside
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    DepthSource,
    Download,
    EvaluationFrame,
    EvaluationScene,
    Framing,
)
from g_ray_lab.datasets.stored_frames import StoredDepth, StoredImage, read_model_views
from g_ray_lab.datasets.undistortion import locate_pixels, pick_pixels

DOWNLOAD = Download(
    "eth3d",
    "ETH3D, high-resolution multi-view",
    "https://www.eth3d.net/datasets",
    "CC BY-NC-SA 4.0",
    (
        "of the 13 training scenes SCENE_dslr_jpg.7z, SCENE_dslr_undistorted.7z and SCENE_dslr_depth.7z, from "
        "https://www.eth3d.net/data/",
    ),
    (
        "courtyard/images/dslr_images/DSC_0286.JPG",
        "courtyard/images/dslr_images_undistorted/DSC_0286.JPG",
        "courtyard/dslr_calibration_jpg/cameras.txt",
        "courtyard/dslr_calibration_undistorted/cameras.txt",
        "courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG",
    ),
    archives=("*_dslr_jpg.7z", "*_dslr_undistorted.7z", "*_dslr_depth.7z"),
)

Images = Literal["raw", "undistorted"]
CALIBRATIONS: dict[Images, str] = {
    "raw": "dslr_calibration_jpg",
    "undistorted": "dslr_calibration_undistorted",
}
DEPTH = "ground_truth_depth/dslr_images"
MESH = "combined_mesh.ply"

SCENES = (
    *("courtyard", "delivery_area", "electro", "facade", "kicker", "meadow", "office", "pipes", "playground"),
    *("relief", "relief_2", "terrace", "terrains"),
)
SIDEWAYS: dict[str, range] = {
    "delivery_area": range(711, 715),
    "playground": range(587, 593),
    "relief": range(427, 440),
    "relief_2": range(458, 469),
}
"""Numbers of the photographs that are stored a quarter turn counter-clockwise of upright."""


def list_eth3d(root: Path) -> list[str]:
    """List the scenes that have the calibration of their distorted images."""
    return sorted(path.name for path in root.iterdir() if is_model(path / CALIBRATIONS["raw"]))


def list_eth3d_undistorted(root: Path) -> list[str]:
    """List the scenes that have undistorted images too."""
    return [name for name in list_eth3d(root) if is_model(root / name / CALIBRATIONS["undistorted"])]


def read_eth3d(
    root: Path, name: str, images: Images, dataset: str, leave_out: Collection[int] = ()
) -> EvaluationScene:
    """Read a scene without the photographs whose numbers are in `leave_out`.

    "raw" images are as taken, through a THIN_PRISM_FISHEYE lens; "undistorted" ones are pinholes of different sizes.
    """
    folder = root / name
    originals = {PurePosixPath(view.name).name: view for view in _read_views(folder, "raw")}
    views = list(originals.values()) if images == "raw" else _read_views(folder, images)
    kept = [view for view in views if _get_number(view.name) not in leave_out]
    frames = tuple(_make_frame(folder, view, originals) for view in kept)
    turned = sum(_count_turns(name, frame.name) > 0 for frame in frames)
    notes = (f"{turned} frames that are stored sideways are turned upright",) if turned else ()
    mesh = folder / MESH
    return EvaluationScene(name, dataset, frames, surface=mesh if mesh.is_file() else None, notes=notes)


def _read_views(folder: Path, images: Images) -> list[View]:
    archive = {"raw": "dslr_jpg", "undistorted": "dslr_undistorted"}[images]
    return read_model_views(folder / CALIBRATIONS[images], f"unpack {folder.name}_{archive}.7z of ETH3D")


def _make_frame(folder: Path, view: View, originals: dict[str, View]) -> EvaluationFrame:
    name = PurePosixPath(view.name).name
    turns = _count_turns(folder.name, name)
    if name not in originals or view.pose is None:
        raise ValueError(f"{folder}: {name} is not in {CALIBRATIONS['raw']}; unpack the scene again")
    return EvaluationFrame(
        name=name,
        image=StoredImage(resolve_inside(folder / "images", view.name), turns),
        camera=turn_camera(view.camera, turns),
        pose=turn_pose(view.pose, turns),
        depth=_find_depth(folder, name, view.camera, originals[name].camera, turns),
        device="dslr",
    )


def _find_depth(folder: Path, name: str, camera: Camera, raw: Camera, turns: int) -> DepthSource | None:
    path = folder / DEPTH / name
    if not (folder / DEPTH).is_dir():
        return None
    file = ETH3DDepthFile(path, width=raw.width, height=raw.height)
    is_raw = camera.NAME == raw.NAME and (camera.width, camera.height) == (raw.width, raw.height)
    return StoredDepth(file, turns) if is_raw else WarpedDepth(file, raw, turns)


def _count_turns(scene: str, name: str) -> int:
    return 1 if _get_number(name) in SIDEWAYS.get(scene, ()) else 0


def _get_number(name: str) -> int:
    """Return the number of a photograph: 711 of DSC_0711.JPG."""
    digits = "".join(letter for letter in PurePosixPath(name).stem if letter.isdigit())
    return int(digits or -1)


# Depth of another lens


@dataclass(frozen=True, eq=False)
class WarpedDepth(DepthSource):
    """A map of z-depth through another lens in the same place: each ray takes the nearest stored pixel on it.

    Both cameras have one frame of reference, so that z is the same for both.
    """

    file: DepthFile
    source_camera: Camera
    turns: int = 0
    """Quarter turns, clockwise, of the frame's camera against the one of the map."""

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.file.path

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        depth = self.file.read()
        size = (self.source_camera.height, self.source_camera.width)
        if tuple(depth.shape) != size:
            raise OSError(
                f"{self.file.path} is {depth.shape[1]}×{depth.shape[0]} px, but its camera takes {size[1]}×{size[0]}"
            )
        rays = RayMap.from_camera(framing.apply(frame.camera))
        turned = RayMap(turn_back(rays.directions, self.turns), rays.valid)
        pixels, inside = locate_pixels(self.source_camera, turned)
        return torch.where(inside, pick_pixels(depth, pixels), 0)


def turn_back(directions: Float[Tensor, "*shape 3"], turns: int) -> Float[Tensor, "*shape 3"]:
    """Express rays of a camera that was turned clockwise by quarter turns in the frame before: x = y′, y = −x′."""
    for _ in range(turns % 4):
        x, y, z = directions.unbind(-1)
        directions = torch.stack([y, -x, z], -1)
    return directions


# Photographs that are stored sideways

# A quarter turn clockwise maps pixel (u, v) of a W×H image to (H − v, u), and the camera's axes to x′ = −y, y′ = x.
# Radial terms stay; tangential and thin-prism terms go with the axes: p1′ = p2, p2′ = −p1, s_x′ = −s_y, s_y′ = s_x.
_DISTORTION: dict[type[Camera], dict[str, str]] = {
    Pinhole: {},
    OpenCV: {"p1": "p2", "p2": "-p1", "s1": "-s3", "s2": "-s4", "s3": "s1", "s4": "s2"},
    ThinPrismFisheye: {"p1": "p2", "p2": "-p1", "sx1": "-sy1", "sy1": "sx1"},
}


def turn_camera(camera: Camera, turns: int) -> Camera:
    """Return the camera of an image that is turned clockwise by quarter turns; ValueError for an unknown lens."""
    if type(camera) not in _DISTORTION:
        raise ValueError(
            f"camera model {camera.NAME} cannot be turned; known are pinhole, opencv, thin_prism_fisheye"
        )
    if isinstance(camera, Pinhole) and turns % 2 and bool((camera.parameter("skew") != 0).any()):
        raise ValueError("a pinhole with skew has none that is turned by a quarter")
    for _ in range(turns % 4):
        old = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        affine = {"fx": old["fy"], "fy": old["fx"], "cx": camera.height - old["cy"], "cy": old["cx"]}
        signed = {**old, **{f"-{name}": -value for name, value in old.items()}}
        terms = {name: signed[source] for name, source in _DISTORTION[type(camera)].items()}
        camera = type(camera).make(
            camera.height, camera.width, dtype=camera.dtype, **{**old, **affine, **terms}
        )
    return camera


def turn_pose(pose: Pose, turns: int) -> Pose:
    """Return the pose of a camera that is turned clockwise by quarter turns about its optical axis."""
    old_from_new = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=pose.dtype)
    turn = torch.linalg.matrix_power(old_from_new, turns % 4)
    return Pose.from_parts(pose.rotation @ turn, pose.translation)


DATASETS = {
    "eth3d": Dataset(
        "ETH3D, undistorted",
        DOWNLOAD,
        list_eth3d_undistorted,
        partial(read_eth3d, images="undistorted", dataset="eth3d"),
    ),
    "eth3d-raw": Dataset(
        "ETH3D, with its lens", DOWNLOAD, list_eth3d, partial(read_eth3d, images="raw", dataset="eth3d-raw")
    ),
}
