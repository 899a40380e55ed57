"""Miniatures of recordings: TUM RGB-D, 7-Scenes, Sintel, KITTI, Neural RGB-D, DTU, MapAnything's layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from g_ray.cameras.camera import Camera
from g_ray.formats.frames import camera_to_frame
from g_ray.formats.seven_scenes import COLOR_FOCAL_PX, COLOR_FROM_DEPTH, DEPTH_FOCAL_PX, KINECT_SIZE
from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.media.depth import check_exr_available
from g_ray.media.scene_files import write_ply
from g_ray.runtime.files import atomic_path, write_atomically, write_json
from g_ray_lab.datasets import da3_bench, dtu, kitti, nrgbd, real_small, sintel, tum
from g_ray_lab.datasets import seven_scenes_sequences as seven_scenes
from g_ray_lab.datasets.stored_frames import make_pinhole
from g_ray_lab.miniatures.colmap_miniatures import make_fisheye
from g_ray_lab.miniatures.miniature_room import (
    MiniatureSize,
    Shot,
    make_mesh,
    make_path,
    measure_depth,
    take_shot,
    take_shots,
    write_image,
    write_mesh_ply,
    write_png_depth,
)

START_S = 1341845688.538082


def _get_matrix(camera: Camera) -> np.ndarray:
    """Return the 3×3 matrix for pixel centers at whole numbers, as OpenCV and most datasets count."""
    return camera.central_intrinsics().numpy() - np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])


# TUM RGB-D


def write_tum(root: Path, size: MiniatureSize) -> None:
    """Write sequences of Freiburg 3: images at 30 Hz, a trajectory at 100 Hz that begins before and ends after them."""
    for number, name in enumerate(tum.SEQUENCES[: size.scenes]):
        folder, lists = root / name, {"rgb": ["# color images"], "depth": ["# depth maps"]}
        shots = take_shots(size.make_room(number), tum.CAMERA, make_path(size.frames, step_rad=0.05))
        for index, shot in enumerate(shots):
            stamp, later = f"{START_S + index / 30:.6f}", f"{START_S + index / 30 + 0.008:.6f}"
            write_image(folder / "rgb" / f"{stamp}.png", shot.pixels)
            write_png_depth(folder / "depth" / f"{later}.png", shot.z_depth, tum.PER_METER)
            lists["rgb"].append(f"{stamp} rgb/{stamp}.png")
            lists["depth"].append(f"{later} depth/{later}.png")
        for kind, lines in lists.items():
            write_atomically(folder / f"{kind}.txt", "\n".join(lines) + "\n")
        write_atomically(folder / "groundtruth.txt", _format_trajectory([shot.pose for shot in shots]))


def _format_trajectory(poses: Sequence[Pose]) -> str:
    """Repeat each pose at the three times of a 100 Hz tracker that are nearest to its image."""
    lines = ["# ground truth trajectory", "# timestamp tx ty tz qx qy qz qw"]
    for index, pose in enumerate(poses):
        numbers = [*pose.translation.tolist(), *quaternion_from_rotation(pose.rotation).tolist()]
        for offset_s in (-0.011, -0.001, 0.009):
            time_s = START_S + index / 30 + offset_s
            lines.append(f"{time_s:.4f} " + " ".join(f"{value:.8f}" for value in numbers))
    return "\n".join(lines) + "\n"


# 7-Scenes


def write_seven_scenes(
    root: Path, size: MiniatureSize, names: Sequence[str] = (), meshes: bool = False
) -> None:
    """Write sequences with the Kinect's two cameras: depth and poses are the depth camera's."""
    names = names or seven_scenes.TEST_SCENES
    middle = KINECT_SIZE[0] / 2, KINECT_SIZE[1] / 2
    color = make_pinhole(KINECT_SIZE, COLOR_FOCAL_PX, COLOR_FOCAL_PX, *middle)
    depth = make_pinhole(KINECT_SIZE, DEPTH_FOCAL_PX, DEPTH_FOCAL_PX, *middle)
    color_from_depth = Pose(torch.tensor(COLOR_FROM_DEPTH, dtype=torch.float64))
    for number, name in enumerate(names[: size.scenes]):
        room, poses = size.make_room(number), make_path(size.frames)
        for index in range(size.frames):
            stem = root / name / f"frame-{index:06d}"
            world_from_depth = poses[index] @ color_from_depth
            write_image(Path(f"{stem}.color.png"), take_shot(room, color, poses[index]).pixels)
            measured = measure_depth(room, depth, world_from_depth)
            write_png_depth(Path(f"{stem}.depth.png"), measured, 1000, nothing=65535)
            rows = [
                "\t ".join(f"{value: .9e}" for value in row)
                for row in world_from_depth.world_from_cam.tolist()
            ]
            write_atomically(Path(f"{stem}.pose.txt"), "\n".join(rows) + "\n")
        if meshes:
            write_mesh_ply(root / "meshes" / f"{Path(name).parent}.ply", room)


def write_da3_seven_scenes(root: Path, size: MiniatureSize) -> None:
    """Write the sequences that DA3-BENCH uses, with meshes."""
    write_seven_scenes(root, size, da3_bench.SEVEN_SCENES, meshes=True)


def write_real_small(root: Path, size: MiniatureSize) -> None:
    """Write the red kitchen of the small collection of real photographs; the castle and the pairs are left out."""
    write_seven_scenes(root, size, (real_small.KITCHEN,))


# Sintel


def write_sintel(root: Path, size: MiniatureSize) -> None:
    """Write sequences of the final pass, with 1024×436 scaled to the width."""
    width, scale = size.width, size.width / 1024
    height = round(436 * scale)
    camera = make_pinhole((width, height), 1120 * scale, 1120 * scale, width / 2, height / 2)
    for number, name in enumerate(sintel.SEQUENCES[: size.scenes]):
        folder = root / "training"
        shots = take_shots(size.make_room(number), camera, make_path(size.frames, step_rad=0.05))
        for index, shot in enumerate(shots, 1):
            stem = f"frame_{index:04d}"
            write_image(folder / sintel.PASS / name / f"{stem}.png", shot.pixels)
            sintel.write_dpt(folder / "depth" / name / f"{stem}.dpt", shot.z_depth)
            cam_from_world = shot.pose.cam_from_world[:3].numpy()
            sintel.write_cam(
                folder / "camdata_left" / name / f"{stem}.cam", _get_matrix(camera), cam_from_world
            )


# KITTI


KITTI_FIRST = 5
"""Annotated depth begins at frame 5."""


def write_kitti(root: Path, size: MiniatureSize) -> None:
    """Write drives whose depth is known at one pixel in three, with 1242×375 scaled to the width."""
    scale = size.width / 1242
    height = round(375 * scale)
    numbers = [value * scale for value in (721.5377, 721.5377, 609.5593, 172.854)]
    camera = make_pinhole((size.width, height), *numbers)
    for number, name in enumerate(kitti.DRIVES[: size.scenes]):
        day, random = root / name[:10], np.random.default_rng(number)
        shots = take_shots(size.make_room(number), camera, make_path(size.frames, step_rad=0.05))
        for index, shot in enumerate(shots, KITTI_FIRST):
            known = random.random(shot.z_depth.shape) < 1 / 3
            write_image(day / name / "image_02" / "data" / f"{index:010d}.png", shot.pixels)
            place = root / "val" / name / kitti.DEPTH / f"{index:010d}.png"
            write_png_depth(place, shot.z_depth * known, kitti.PER_METER)
        matrix = np.concatenate([_get_matrix(camera), [[44.85728 * scale], [0.2163791], [0.002745884]]], 1)
        numbers = " ".join(f"{value:.6e}" for value in matrix.flatten())
        text = f"calib_time: 09-Jan-2012 13:57:47\nS_rect_02: {size.width} {height}\nP_rect_02: {numbers}\n"
        write_atomically(day / "calib_cam_to_cam.txt", text)


# Neural RGB-D


def write_nrgbd(root: Path, size: MiniatureSize) -> None:
    """Write scenes with OpenGL's poses, with 640×480 scaled to the width."""
    scale = size.width / 640
    height, focal = round(480 * scale), nrgbd.FOCAL_PX * scale
    camera = make_pinhole((size.width, height), focal, focal, size.width / 2, height / 2)
    axes = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    for number, name in enumerate(nrgbd.SCENES[: size.scenes]):
        rows: list[str] = []
        for index, shot in enumerate(take_shots(size.make_room(number), camera, make_path(size.frames))):
            write_image(root / name / "images" / f"img{index}.png", shot.pixels)
            write_png_depth(root / name / "depth" / f"depth{index}.png", shot.z_depth, 1000)
            matrix = (shot.pose.world_from_cam @ axes).tolist()
            rows += [" ".join(f"{value:.8f}" for value in row) for row in matrix]
        write_atomically(root / name / "poses.txt", "\n".join(rows) + "\n")
        write_atomically(root / name / "focal.txt", f"{focal!r}\n")


# DTU


def write_dtu(root: Path, size: MiniatureSize) -> None:
    """Write scans of Spann3R's pack: millimeters, with 1600×1200 scaled to the width."""
    for number, name in enumerate(dtu.SCANS[: size.scenes]):
        folder = root / name
        for index, shot in enumerate(_take_dtu_shots(size, number)):
            stem = f"{index:08d}"
            write_image(folder / "images" / f"{stem}.jpg", shot.pixels)
            _write_dtu_camera(folder / "cams" / f"{stem}_cam.txt", shot)
            with atomic_path(folder / "depths" / f"{stem}.npy") as scratch, scratch.open("wb") as file:
                np.save(file, (1000 * shot.z_depth).astype(np.float32))
            mask = np.zeros(shot.z_depth.shape, np.uint8)
            mask[2:-2, 2:-2] = 255  # the object; the rest is background
            write_image(folder / "binary_masks" / f"{stem}.png", mask)


def write_da3_dtu(root: Path, size: MiniatureSize) -> None:
    """Write scans of DA3-BENCH: photographs with pictures of their depth, cameras for all scans, points and masks."""
    for number, name in enumerate(dtu.SCANS[: size.scenes]):
        for index, shot in enumerate(_take_dtu_shots(size, number)):
            write_image(root / "Rectified" / name / f"rect_{index + 1:03d}_3_r5000.png", shot.pixels)
            _write_dtu_camera(root / "Cameras" / f"{index:08d}_cam.txt", shot)
            bright = (255 * shot.z_depth / shot.z_depth.max()).clip(0, 255).astype(np.uint8)
            bright[:2] = 0  # background
            write_image(root / "depth_raw" / "Depths" / name / f"depth_visual_{index:04d}.png", bright)
        points = 1000 * make_mesh(size.make_room(number))[0]
        count = len(points)
        path = root / "Points" / "stl" / f"stl{int(name.removeprefix('scan')):03d}_total.ply"
        write_ply(path, points, np.zeros((count, 3), np.uint8), np.ones(count, np.float32))
        _write_scanned_volume(root / "SampleSet" / "mvs_data" / "ObsMask", name.removeprefix("scan"), points)


def _write_scanned_volume(folder: Path, scan: str, points: Float[np.ndarray, "point 3"]) -> None:
    """Write a grid around all points, observed everywhere, and a floor below them; y is down."""
    from scipy.io import savemat

    side = 100.0
    corners = np.stack([points.min(0), points.max(0)])
    shape = np.ceil((corners[1] - corners[0]) / side).astype(int) + 1
    grid = {"ObsMask": np.ones(shape, np.uint8), "BB": corners, "Res": side}
    floor = {"P": np.array([[0.0], [-1.0], [0.0], [corners[1, 1] + 1]])}
    for file, content in ((f"ObsMask{scan}_10.mat", grid), (f"Plane{scan}.mat", floor)):
        with atomic_path(folder / file) as scratch, scratch.open("wb") as stream:
            savemat(stream, content)


def _take_dtu_shots(size: MiniatureSize, scan: int) -> list[Shot]:
    scale = size.width / 1600
    numbers = [value * scale for value in (2892.33, 2883.18, 823.205, 619.071)]
    camera = make_pinhole((size.width, round(1200 * scale)), *numbers)
    return take_shots(size.make_room(scan), camera, make_path(size.frames, step_rad=0.05))


def _write_dtu_camera(path: Path, shot: Shot) -> None:
    extrinsic = shot.pose.scale_translation(1000.0).cam_from_world.numpy()
    dtu.write_mvsnet_camera(path, _get_matrix(shot.camera), extrinsic, (425.0, 2.5))


# WAI: fisheyes and pinholes in one scene, depth as half floats


WAI_SCENES = ("courtyard", "office", "pipes", "relief")
"""Named as ETH3D's, which MapAnything distributes in this layout."""


def write_wai(root: Path, size: MiniatureSize) -> None:
    """Write scenes with scene_meta.json, images and z-depth."""
    height = round(size.width * 2 / 3)
    focal = 0.8 * size.width
    pinhole = make_pinhole((size.width, height), focal, focal, size.width / 2, height / 2 - 1)
    lenses: list[Camera] = [pinhole, make_fisheye(size.width)]
    for number, name in enumerate(WAI_SCENES[: size.scenes]):
        room, folder, poses = size.make_room(number), root / name, make_path(size.frames)
        frames = []
        for index in range(size.frames):
            stem, camera = f"view_{index:03d}", lenses[index % 2]
            shot = take_shot(room, camera, poses[index])
            write_image(folder / "images" / f"{stem}.png", shot.pixels)
            _write_half_exr(folder / "depth" / f"{stem}.exr", shot.z_depth)
            paths = {
                **dict.fromkeys(("file_path", "image"), f"images/{stem}.png"),
                "depth": f"depth/{stem}.exr",
            }
            matrix = poses[index].world_from_cam.tolist()
            frames.append(
                {"frame_name": stem, **paths, "transform_matrix": matrix, **camera_to_frame(camera)}
            )
        modalities = {name: {"frame_key": name, "format": name} for name in ("image", "depth")}
        head = {"scene_name": name, "dataset_name": "rooms", "version": "0.1", "shared_intrinsics": False}
        head |= {"camera_model": "PINHOLE", "camera_convention": "opencv", "scale_type": "metric"}
        write_json(folder / "scene_meta.json", {**head, "frames": frames, "frame_modalities": modalities})


def _write_half_exr(path: Path, depth: np.ndarray) -> None:
    check_exr_available()
    import OpenEXR

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with atomic_path(path) as scratch:
        OpenEXR.File(header, {"Y": depth.astype(np.float16)}).write(str(scratch))
