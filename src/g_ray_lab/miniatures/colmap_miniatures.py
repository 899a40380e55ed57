"""Miniatures of datasets with COLMAP models: ETH3D, ScanNet++, and DA3-BENCH's joint model of ScanNet++."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.demo.room import Room
from g_ray.formats.colmap.colmap_scene import make_raw_camera, make_raw_image
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import write_atomically, write_json
from g_ray_lab.datasets.eth3d import SIDEWAYS, turn_camera, turn_pose
from g_ray_lab.datasets.scannetpp import JOINT, JOINT_MODEL, MESH
from g_ray_lab.datasets.stored_frames import make_pinhole
from g_ray_lab.miniatures.miniature_room import (
    MiniatureSize,
    make_path,
    take_shot,
    write_image,
    write_mesh_ply,
)

Images = Sequence[tuple[str, Camera, Pose]]
NO_POINTS = np.zeros((0, 2)), np.zeros(0, dtype=np.int64)


def write_colmap_text(place: Path, images: Images) -> None:
    """Write cameras.txt, images.txt (with empty lines of features) and points3D.txt; equal objects share a camera.

    The files begin with the three or four lines of comments that published datasets have.
    """
    numbers = {id(camera): number for number, camera in enumerate({id(c): c for _, c, _ in images}.values())}
    known = {numbers[id(camera)]: make_raw_camera(camera) for _, camera, _ in images}
    lines = [
        "# Camera list with one line of data per camera:",
        "#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]",
        f"# Number of cameras: {len(known)}",
    ]
    lines += [
        f"{number} {raw.model} {raw.width} {raw.height} {' '.join(map(repr, raw.parameters))}"
        for number, raw in known.items()
    ]
    write_atomically(place / "cameras.txt", "\n".join(lines) + "\n")
    lines = [
        "# Image list with two lines of data per image:",
        "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME",
        "#   POINTS2D[] as (X, Y, POINT3D_ID)",
        f"# Number of images: {len(images)}, mean observations per image: 0",
    ]
    for number, (name, camera, pose) in enumerate(images, 1):
        raw = make_raw_image(name, numbers[id(camera)], pose, *NO_POINTS)
        place_text = " ".join(map(repr, (*raw.quaternion, *raw.translation)))
        lines += [f"{number} {place_text} {raw.camera} {name}", ""]
    write_atomically(place / "images.txt", "\n".join(lines) + "\n")
    write_atomically(place / "points3D.txt", "# 3D point list with one line of data per point:\n")


# ETH3D: thin-prism fisheyes and undistorted pinholes, depth dumps, photographs that are stored sideways


ETH3D_SCENES = ("delivery_area", "courtyard", "office", "relief")
"""The first has frames that are stored sideways."""
ETH3D_WIDTH = 6211
LENS = {"fx": 3411.42, "fy": 3410.02, "cx": 3116.72, "cy": 2062.52}
LENS |= {"k1": 0.21047, "k2": 0.21102, "p1": -5.36231e-06, "p2": 0.00051541}
LENS |= {"k3": -0.158023, "k4": 0.406856, "sx1": -8.46499e-05, "sy1": 0.000861313}
"""A lens of ETH3D's kind at 6211×4137."""


def write_eth3d(root: Path, size: MiniatureSize) -> None:
    """Write scenes in ETH3D's layout, distorted and undistorted, with the mesh of DA3-BENCH."""
    lens, pinhole = make_lenses(size.width)
    for number, scene in enumerate(ETH3D_SCENES[: size.scenes]):
        room, folder, poses = size.make_room(number), root / scene, make_path(size.frames)
        # Numbers begin before the sideways ones, so that both kinds are there.
        first = SIDEWAYS[scene].start - (size.frames + 1) // 2 if scene in SIDEWAYS else 286
        raw, undistorted = [], []
        for index in range(size.frames):
            name = f"DSC_{first + index:04d}.JPG"
            back = -1 if first + index in SIDEWAYS.get(scene, ()) else 0
            pose = turn_pose(poses[index], back)
            for camera, place, images in (
                (lens[back], "dslr_images", raw),
                (pinhole[back], "dslr_images_undistorted", undistorted),
            ):
                shot = take_shot(room, camera, pose)
                write_image(folder / "images" / place / name, shot.pixels)
                images.append((f"{place}/{name}", camera, pose))
                if place == "dslr_images":
                    numbers = np.where(shot.z_depth > 0, shot.z_depth, np.inf).astype("<f4")
                    write_atomically(folder / "ground_truth_depth" / place / name, numbers.tobytes())
        write_colmap_text(folder / "dslr_calibration_jpg", raw)
        write_colmap_text(folder / "dslr_calibration_undistorted", undistorted)
        write_mesh_ply(folder / "combined_mesh.ply", room)


def make_lenses(width: int) -> tuple[dict[int, Camera], dict[int, Camera]]:
    """Make the distorted and the undistorted camera, each upright (0) and as stored sideways (−1)."""
    values = _scale_lens(width / ETH3D_WIDTH, LENS)
    height = round(4137 * width / ETH3D_WIDTH)
    lens = ThinPrismFisheye.make(width, height, dtype=torch.float64, **values)
    # Undistorted images have sizes of their own.
    numbers = (values["fx"], values["fy"], values["cx"] - 0.8, values["cy"] - 0.6)
    pinhole = make_pinhole((width - 2, height - 1), *numbers)
    stored = [{turns: turn_camera(camera, turns) for turns in (0, -1)} for camera in (lens, pinhole)]
    return stored[0], stored[1]


def _scale_lens(scale: float, values: dict[str, float]) -> dict[str, float]:
    """Scale focal lengths and principal point; distortion has no unit."""
    return {key: value * scale if key in ("fx", "fy", "cx", "cy") else value for key, value in values.items()}


# ScanNet++: DSLR fisheye and iPhone in one world, with the mesh


SCANNETPP_SCENES = ("cc5237fd77", "acd95847c5", "fb5a96b1a2", "1ada7a0617")
"""Scenes of the validation split and of DA3-BENCH."""
LISTED = "scannetpp_mv-recon_seq-id-map.json"
VIDEO_STEP = 10
"""About every tenth frame of the video is registered."""


def write_scannetpp(root: Path, size: MiniatureSize) -> None:
    """Write scenes in the official layout, with the frames of the video extracted as the official tool does."""
    scenes = SCANNETPP_SCENES[: size.scenes]
    write_atomically(root / "splits" / "nvs_sem_val.txt", "\n".join(scenes) + "\n")
    listed: dict[str, list[list[str]]] = {}
    for number, scene in enumerate(scenes):
        room, folder = size.make_room(number), root / "data" / scene
        dslr, iphone = _list_images(size)
        doubled = [
            (name, camera.resize(2 * camera.width, 2 * camera.height), pose) for name, camera, pose in dslr
        ]
        _photograph(room, folder / "dslr" / "resized_images", dslr)
        _photograph(room, folder / "iphone" / "rgb", iphone)
        _photograph(room, folder / "dslr" / "original_images", doubled)
        for name, camera, _ in dslr:
            mask = np.full((camera.height, camera.width), 255, np.uint8)
            mask[: camera.height // 8, : camera.width // 8] = 0  # a small patch is hidden, as faces are
            write_image(folder / "dslr" / "resized_anon_masks" / f"{Path(name).stem}.png", mask)
        write_colmap_text(folder / "dslr" / "colmap", dslr)
        write_colmap_text(folder / "iphone" / "colmap", [(f"video/{n}", c, p) for n, c, p in iphone])
        write_json(folder / "dslr" / "nerfstudio" / "transforms.json", _make_transforms(dslr))
        write_mesh_ply(folder / MESH, room)
        listed[scene] = [[f"data/{scene}/dslr/resized_images/{name}" for name, _, _ in reversed(dslr)]]
    write_json(root / LISTED, listed)  # Wid3R's list of frames


def write_scannetpp_joint(root: Path, size: MiniatureSize) -> None:
    """Write scenes in DA3-BENCH's layout: one model with the images of both devices."""
    for number, scene in enumerate(SCANNETPP_SCENES[: size.scenes]):
        room, folder = size.make_room(number), root / scene
        devices = zip(("dslr", "iphone"), _list_images(size), strict=True)
        images = [(f"{device}/{n}", c, p) for device, shots in devices for n, c, p in shots]
        _photograph(room, folder / JOINT / "images", images)
        write_colmap_text(folder / JOINT_MODEL, images)
        write_mesh_ply(folder / MESH, room)


def make_fisheye(width: int) -> OpenCVFisheye:
    """Make a lens like the DSLR's, 127° wide, at a smaller size than 1752×1168."""
    values = {"fx": 790.2, "fy": 792.4, "cx": 879.6, "cy": 581.3}
    values |= {"k1": -0.0297, "k2": -0.0060, "k3": 0.0011, "k4": -0.0007}
    scale = width / 1752
    return OpenCVFisheye.make(width, round(1168 * scale), **_scale_lens(scale, values), dtype=torch.float64)


def make_phone(width: int) -> OpenCV:
    """Make a lens like the iPhone's at a smaller size than 1920×1440."""
    values = {"fx": 1431.7, "fy": 1432.9, "cx": 957.1, "cy": 722.8}
    values |= {"k1": 0.0812, "k2": -0.1537, "p1": 0.0006, "p2": -0.0004}
    scale = width / 1920
    return OpenCV.make(width, round(1440 * scale), **_scale_lens(scale, values), dtype=torch.float64)


def _list_images(size: MiniatureSize) -> tuple[Images, Images]:
    """List the photographs of the DSLR and of the iPhone, whose path begins a little later."""
    fisheye, phone = make_fisheye(size.width), make_phone(size.width)
    first, second = (make_path(size.frames, start_rad=start, radius_m=1.5) for start in (0.0, 0.07))
    dslr = [(f"DSC{i:05d}.JPG", fisheye, first[i]) for i in range(size.frames)]
    return dslr, [(f"frame_{VIDEO_STEP * i:06d}.jpg", phone, second[i]) for i in range(size.frames)]


def _photograph(room: Room, folder: Path, images: Images) -> None:
    for name, camera, pose in images:
        write_image(folder / name, take_shot(room, camera, pose).pixels)


def _make_transforms(images: Images) -> dict[str, object]:
    """Make nerfstudio's document, in whose world x and y change places and z its sign."""
    world = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]], dtype=torch.float64)
    axes = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    camera = images[0][1]
    values = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
    values = {{"fx": "fl_x", "fy": "fl_y"}.get(key, key): value for key, value in values.items()}
    poses = [(name, (world @ pose.world_from_cam @ axes).tolist()) for name, _, pose in images]
    frames = [{"file_path": name, "transform_matrix": pose, "is_bad": False} for name, pose in poses]
    size = {"w": camera.width, "h": camera.height}
    return {**values, **size, "camera_model": "OPENCV_FISHEYE", "frames": frames}
