"""Read ETH3D's high-resolution multi-view scenes: distorted images with their lens, or undistorted ones.

ROOT/courtyard/images/dslr_images/DSC_0286.JPG                 and dslr_images_undistorted/DSC_0286.JPG
ROOT/courtyard/dslr_calibration_jpg/{cameras,images}.txt       COLMAP, THIN_PRISM_FISHEYE; also ..._undistorted
ROOT/courtyard/ground_truth_depth/dslr_images/DSC_0286.JPG     float32 numbers, of the distorted image
ROOT/courtyard/dslr_scan_eval/…                                laser scans, not read; DA3-BENCH: combined_mesh.ply

Depth of undistorted images is looked up along their rays in the map of the distorted ones. Frames that are stored
sideways are turned upright, with camera and pose.
"""

from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Literal

from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.eth3d_calibration import ETH3DDepthFile
from g_ray.formats.posed_scene import resolve_inside
from g_ray.media.view import View
from g_ray_lab.datasets.colmap_views import read_model_views
from g_ray_lab.datasets.evaluation_scene import DepthSource, EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.true_depth import StoredDepth, WarpedDepth
from g_ray_lab.datasets.turning import turn_camera, turn_pose

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


def read_eth3d_raw(root: Path, name: str) -> EvaluationScene:
    """Read a scene with its images as taken, through a THIN_PRISM_FISHEYE lens."""
    return read_eth3d(root, name, "raw", "eth3d-raw")


def read_eth3d_undistorted(root: Path, name: str) -> EvaluationScene:
    """Read a scene with its undistorted images, which are pinholes of different sizes."""
    return read_eth3d(root, name, "undistorted", "eth3d")


def read_eth3d(
    root: Path, name: str, images: Images, dataset: str, leave_out: Collection[int] = ()
) -> EvaluationScene:
    """Read a scene without the photographs whose numbers are in `leave_out`."""
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
