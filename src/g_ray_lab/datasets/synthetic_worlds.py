"""Read rendered worlds: Hypersim, TartanAir, Mid-Air, Virtual KITTI 2 and OmniWorld-Game."""

import csv
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import parse_number, parse_numbers, read_json_object
from g_ray.formats.posed_scene import PosedScene, SceneFormat
from g_ray.formats.recordings import (
    build_recorded_scene,
    make_centered_pinhole,
    make_pose,
    make_recorded_view,
    make_world_from_cam,
    read_table,
)
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile, read_hdf5
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.stored_frames import make_pinhole

NED_FROM_OPENCV = Pose.from_parts(
    torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64),
    torch.zeros(3, dtype=torch.float64),
)
"""To axes north (forward), east (right), down, as TartanAir and Mid-Air have them."""


# Hypersim: photorealistic interiors.
#
# metadata_camera_parameters.csv                            one line per scene, from the authors' repository
#                                                           (contrib/mikeroberts3000), next to the scene folders
# ai_001_001/_detail/metadata_scene.csv                     meters_per_asset_unit
# ai_001_001/_detail/cam_00/camera_keyframe_positions.hdf5      [frame, 3], in the units of the scene's assets
# ai_001_001/_detail/cam_00/camera_keyframe_orientations.hdf5   [frame, 3, 3], world_from_cam, OpenGL axes
# ai_001_001/images/scene_cam_00_final_preview/frame.0000.tonemap.jpg
# ai_001_001/images/scene_cam_00_geometry_hdf5/frame.0000.depth_meters.hdf5   distance along the ray, meters
#
# The projection of each scene is M_proj of the table, as OpenGL defines it. Some scenes have tilted sensors: they are
# no pinholes, and are refused. Files with HDF5 need h5py.


HYPERSIM_CAMERAS = "metadata_camera_parameters.csv"
HYPERSIM_PREVIEW = ".tonemap.jpg"
HYPERSIM_SIZE = ("settings_output_img_width", "settings_output_img_height")
PINHOLE_ZEROS = ("01", "10", "20", "21", "30", "31", "33")
"""Entries of M_proj that are zero unless the sensor is skewed or tilted."""


def is_hypersim(folder: Path) -> bool:
    return (folder / "_detail" / "metadata_scene.csv").is_file()


def read_hypersim(folder: Path, check: bool = True) -> PosedScene:
    """Read all trajectories of a scene; ValueError, in one line with the file, if anything is wrong."""
    camera, scale = (
        _read_hypersim_camera(folder),
        _read_hypersim_scale(folder / "_detail" / "metadata_scene.csv"),
    )
    views = []
    for detail in sorted((folder / "_detail").glob("cam_*")):
        positions = read_hdf5(detail / "camera_keyframe_positions.hdf5")
        rotations = read_hdf5(detail / "camera_keyframe_orientations.hdf5")
        preview = folder / "images" / f"scene_{detail.name}_final_preview"
        geometry = folder / "images" / f"scene_{detail.name}_geometry_hdf5"
        for image in sorted(preview.glob(f"frame.*{HYPERSIM_PREVIEW}")):
            stem = image.name.removesuffix(HYPERSIM_PREVIEW)
            number = stem.partition(".")[2]
            if not number.isdigit() or int(number) >= min(len(positions), len(rotations)):
                raise ValueError(f"{image}: no pose in {detail}; unpack the scene again")
            matrix = np.eye(4)
            matrix[:3, :3], matrix[:3, 3] = rotations[int(number)], positions[int(number)] * scale
            if not np.isfinite(matrix).all():
                continue  # a few frames of the release have no pose
            depth = DepthFile(geometry / f"{stem}.depth_meters.hdf5", "ray")
            views.append(
                make_recorded_view(image, camera, make_world_from_cam(str(image), matrix, "opengl"), depth)
            )
    return build_recorded_scene(folder, "Hypersim", views, check)


def _read_hypersim_camera(folder: Path) -> Pinhole:
    """Read the scene's line of the table, which lies next to the scene folder or one level above."""
    paths = [folder.parent / HYPERSIM_CAMERAS, folder.parent.parent / HYPERSIM_CAMERAS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ValueError(
            f"{paths[0]}: no such file; take it from contrib/mikeroberts3000 of apple/ml-hypersim"
        )
    with path.open(newline="", encoding="utf-8") as file:
        row = next((row for row in csv.DictReader(file) if row.get("scene_name") == folder.name), None)
    if row is None:
        raise ValueError(f"{path}: no line for {folder.name}")
    try:
        width, height = (int(float(row[key])) for key in HYPERSIM_SIZE)
        entries = {key: float(row[f"M_proj_{key}"]) for key in ("00", "02", "11", "12", *PINHOLE_ZEROS)}
    except (KeyError, ValueError):
        raise ValueError(f"{path}: the line of {folder.name} has no size or no M_proj") from None
    if any(abs(entries[key]) > 1e-6 for key in PINHOLE_ZEROS):
        raise ValueError(
            f"{folder}: its sensor is tilted (M_proj in {path.name}), no pinhole; leave the scene out"
        )
    # Clip coordinates run from −1 to 1 over the image, x to the right and y up.
    fx, fy = entries["00"] * width / 2, entries["11"] * height / 2
    cx, cy = (1 - entries["02"]) * width / 2, (1 + entries["12"]) * height / 2
    return make_pinhole((width, height), fx, fy, cx, cy)


def _read_hypersim_scale(path: Path) -> float:
    with path.open(newline="", encoding="utf-8") as file:
        values = {row[0].strip(): row[1].strip() for row in csv.reader(file) if len(row) > 1}
    try:
        scale = float(values["meters_per_asset_unit"])
    except (KeyError, ValueError):
        scale = float("nan")
    if not 0 < scale < float("inf"):
        raise ValueError(f"{path}: no meters_per_asset_unit in it; unpack the scene again")
    return scale


# TartanAir (first release): a drone's left camera in synthetic worlds.
#
# ENVIRONMENT/Easy/P000/image_left/000000_left.png         640×480, 90° wide
# ENVIRONMENT/Easy/P000/depth_left/000000_left_depth.npy   z-depth in meters; the sky is at 10,000 and beyond
# ENVIRONMENT/Easy/P000/pose_left.txt                      tx ty tz qx qy qz qw per frame: world_from_cam
#
# The camera's axes are north, east, down: x looks forward, y to the right, z down. Described by the authors' tools
# (castacks/tartanair_tools, data_type.md).


TARTANAIR_POSES = "pose_left.txt"
TARTANAIR_SKY_M = 10_000


def is_tartanair(folder: Path) -> bool:
    return (folder / TARTANAIR_POSES).is_file() and (folder / "image_left").is_dir()


def read_tartanair(folder: Path, check: bool = True) -> PosedScene:
    """Read the frames of a trajectory; ValueError, in one line with the file, if anything is wrong."""
    path = folder / TARTANAIR_POSES
    table = read_table(path, 7)
    images = sorted((folder / "image_left").glob("*_left.png"))
    if len(images) != len(table):
        raise ValueError(f"{path}: {len(table)} poses for {len(images)} images; unpack the trajectory again")
    camera = make_centered_pinhole(str(images[0]), *read_photo_size(images[0]), pi / 2)
    views = []
    for number, (image, row) in enumerate(zip(images, table.tolist(), strict=True)):
        pose = make_pose(f"{path}, line {number + 1}", row[3:], row[:3]) @ NED_FROM_OPENCV
        depth = folder / "depth_left" / f"{image.stem}_depth.npy"
        views.append(make_recorded_view(image, camera, pose, DepthFile(depth, "z", limit=TARTANAIR_SKY_M)))
    return build_recorded_scene(folder, "TartanAir", views, check)


# Mid-Air: a drone's flights through synthetic landscapes in several climates.
#
# Kite_training/sunny/sensor_records.hdf5                            all flights of a climate
#     trajectory_0000/groundtruth/position                           [sample, 3], meters, 100 per second
#     trajectory_0000/groundtruth/attitude                           [sample, 4], qw qx qy qz, world_from_body
# Kite_training/sunny/color_left/trajectory_0000/000000.JPEG         1024×1024, 90° wide, 25 per second
# Kite_training/sunny/depth/trajectory_0000/000000.PNG               meters along the ray, half floats in 16 bits
#
# A scene is a flight: each has a world of its own. The axes of world and body are north, east, down; the left camera
# sits at the origin of the body and looks along its x axis. That and the distance along the ray are not in the
# documentation: the authors' M4Depth takes the motion of the body for the camera's, and published loaders that
# reproduce the dataset's optical flow take both as here. The sky has no depth. HDF5 needs h5py.


MIDAIR_RECORDS = "sensor_records.hdf5"
SAMPLES_PER_IMAGE = 4
MIDAIR_SKY_M = 5_000


def is_midair(folder: Path) -> bool:
    return folder.parent.name == "color_left" and (folder.parent.parent / MIDAIR_RECORDS).is_file()


def read_midair(folder: Path, check: bool = True) -> PosedScene:
    """Read the left camera of a flight; ValueError, in one line with the file, if anything is wrong."""
    climate = folder.parent.parent
    records, group = climate / MIDAIR_RECORDS, f"{folder.name}/groundtruth"
    try:
        positions, attitudes = (read_hdf5(records, f"{group}/{name}") for name in ("position", "attitude"))
    except OSError as error:
        raise ValueError(str(error)) from None
    images = sorted(folder.glob("*.JPEG"))
    if not images:
        raise ValueError(f"{folder}: no JPEG files in it; unpack the flight again")
    camera = make_centered_pinhole(str(images[0]), *read_photo_size(images[0]), pi / 2)
    views = []
    for image in images:
        sample = SAMPLES_PER_IMAGE * int(image.stem) if image.stem.isdigit() else len(positions)
        if sample >= min(len(positions), len(attitudes)):
            raise ValueError(f"{image}: no pose in {records}; unpack the flight again")
        w, x, y, z = attitudes[sample].tolist()
        body = make_pose(f"{records}: {group}, sample {sample}", (x, y, z, w), positions[sample].tolist())
        path = climate / "depth" / folder.name / f"{image.stem}.PNG"
        depth = DepthFile(path, "ray", limit=MIDAIR_SKY_M, half_floats=True)
        views.append(make_recorded_view(image, camera, body @ NED_FROM_OPENCV, depth))
    return build_recorded_scene(folder, "Mid-Air", views, check)


# Virtual KITTI 2: five streets in synthetic variations, seen by a stereo pair.
#
# Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg       1242×375
# Scene01/clone/frames/depth/Camera_0/depth_00000.png   z-depth, 16 bits, centimeters; 65535 is 655.35 m and beyond
# Scene01/clone/intrinsic.txt     heading, then frame, camera, fx, fy, cx, cy (pixel centers at whole numbers)
# Scene01/clone/extrinsic.txt     heading, then frame, camera, 4×4 cam_from_world row by row, OpenCV axes, meters
#
# Cars move: depth of different frames does not agree on them.


VKITTI_POSES, VKITTI_LENSES = "extrinsic.txt", "intrinsic.txt"
VKITTI_CENTIMETER, VKITTI_FARTHEST = 0.01, 65535


def is_virtual_kitti(folder: Path) -> bool:
    return (folder / VKITTI_POSES).is_file() and (folder / VKITTI_LENSES).is_file()


def read_virtual_kitti(folder: Path, check: bool = True) -> PosedScene:
    """Read the frames of both cameras; ValueError, in one line with the file, if anything is wrong."""
    lenses = {(int(row[0]), int(row[1])): row[2:] for row in read_table(folder / VKITTI_LENSES, 6, skip=1)}
    views, sizes = [], dict[int, tuple[int, int]]()
    for row in read_table(folder / VKITTI_POSES, 18, skip=1):
        frame, number = int(row[0]), int(row[1])
        image = folder / "frames" / "rgb" / f"Camera_{number}" / f"rgb_{frame:05d}.jpg"
        if (frame, number) not in lenses:
            raise ValueError(f"{folder / VKITTI_LENSES}: no line for frame {frame} of camera {number}")
        if number not in sizes:
            sizes[number] = read_photo_size(image)
        # The principal point 620.5, 187 is the middle of 1242×375 pixels whose centers are whole numbers.
        camera = make_pinhole(sizes[number], *lenses[frame, number].tolist(), center=0)
        what = f"{folder / VKITTI_POSES}: frame {frame} of camera {number}"
        pose = make_world_from_cam(what, np.reshape(row[2:], (4, 4))).inverse()
        depth = folder / "frames" / "depth" / f"Camera_{number}" / f"depth_{frame:05d}.png"
        views.append(
            make_recorded_view(
                image, camera, pose, DepthFile(depth, "z", VKITTI_CENTIMETER, limit=VKITTI_FARTHEST)
            )
        )
    return build_recorded_scene(folder, "Virtual KITTI 2", views, check)


# OmniWorld-Game: sequences from games.
#
# SCENE/split_info.json          split: lists of frame numbers
# SCENE/camera/split_0.json      focals, cx, cy, quats (w x y z) and trans of a split's frames: cam_from_world, OpenCV
# SCENE/color/000000.png
# SCENE/depth/000000.png         16 bits, u = number / 65535: z = u / (1000 − 999 u) / 0.004; below 0.0015 (too near)
#                                and above 65500 (sky) is none
#
# Splits have worlds of their own, so the longest one alone is read.


OMNIWORLD_SPLITS = "split_info.json"
WHITE, NEAREST, FARTHEST = 65535, 0.0015, 65500
NEAR, FAR, SCALE = 1.0, 1000.0, 0.004


@dataclass(frozen=True)
class GameDepthFile(DepthFile):
    """A buffer of a game's renderer, between its near and its far plane."""

    def read(self) -> Float[Tensor, "h w"]:
        unit = super().read() / WHITE
        depth = unit / (FAR - unit * (FAR - NEAR)) / SCALE
        return torch.where((unit >= NEAREST) & (unit <= FARTHEST / WHITE), depth, 0)


def is_omniworld(folder: Path) -> bool:
    return (folder / OMNIWORLD_SPLITS).is_file() and (folder / "camera").is_dir()


def read_omniworld(folder: Path, check: bool = True) -> PosedScene:
    """Read the longest split; ValueError, in one line with the file, if anything is wrong."""
    splits = read_json_object(folder / OMNIWORLD_SPLITS, "splits of OmniWorld-Game").get("split")
    if not isinstance(splits, list) or not splits or not all(isinstance(split, list) for split in splits):
        raise ValueError(
            f"{folder / OMNIWORLD_SPLITS}: no lists of frames under split; unpack the scene again"
        )
    longest = max(range(len(splits)), key=lambda index: len(splits[index]))
    frames = [int(parse_number(frame, "a frame")) for frame in splits[longest]]
    path = folder / "camera" / f"split_{longest}.json"
    document = read_json_object(path, "cameras of OmniWorld-Game")
    lists: dict[str, Any] = {name: document.get(name) for name in ("focals", "quats", "trans")}
    if any(not isinstance(values, list) or len(values) != len(frames) for values in lists.values()):
        raise ValueError(f"{path}: not {len(frames)} of each of {', '.join(lists)}; unpack the scene again")
    cx, cy = (parse_number(document.get(name), name) for name in ("cx", "cy"))
    size, views = None, []
    for number, frame in enumerate(frames):
        focal, quaternion, position = (values[number] for values in lists.values())
        what = f"{path}: frame {frame}"
        image = folder / "color" / f"{frame:06d}.png"
        size = size or read_photo_size(image)
        focal_px = parse_number(focal, f"{what}: its focal length")
        camera = make_pinhole(size, focal_px, focal_px, cx, cy)
        w, x, y, z = parse_numbers(quaternion, f"{what}: its rotation", (4,))
        pose = make_pose(what, (x, y, z, w), parse_numbers(position, f"{what}: its translation", (3,)))
        depth = GameDepthFile(folder / "depth" / image.name)
        views.append(make_recorded_view(image, camera, pose.inverse(), depth))
    notes = (f"split {longest} of {len(splits)}, the longest, is read",) if len(splits) > 1 else ()
    return build_recorded_scene(folder, "OmniWorld-Game", views, check, notes)


FORMATS = {
    "hypersim": SceneFormat("Hypersim", "_detail/metadata_scene.csv", is_hypersim, read_hypersim),
    "midair": SceneFormat("Mid-Air", "color_left next to sensor_records.hdf5", is_midair, read_midair),
    "omniworld": SceneFormat("OmniWorld-Game", OMNIWORLD_SPLITS, is_omniworld, read_omniworld),
    "tartanair": SceneFormat("TartanAir", TARTANAIR_POSES, is_tartanair, read_tartanair),
    "virtual_kitti": SceneFormat(
        "Virtual KITTI 2", "extrinsic.txt and intrinsic.txt", is_virtual_kitti, read_virtual_kitti
    ),
}
