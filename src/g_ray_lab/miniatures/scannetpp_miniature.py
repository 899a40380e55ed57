"""A miniature of ScanNet++: DSLR fisheye and iPhone in one world, with the mesh; and DA3-BENCH's joint model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.demo.room import Room
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import atomic_path, write_atomically, write_json
from g_ray_lab.miniatures.colmap_text import write_colmap_text
from g_ray_lab.miniatures.miniature_room import (
    MiniatureSize,
    make_path,
    take_shot,
    write_image,
    write_mesh_ply,
)

SCENES = ("cc5237fd77", "acd95847c5", "fb5a96b1a2", "1ada7a0617")
"""Of the validation split and of DA3-BENCH."""
LISTED = "scannetpp_mv-recon_seq-id-map.json"
VIDEO_STEP = 10
"""About every tenth frame of the video is registered."""


def write_scannetpp(root: Path, size: MiniatureSize) -> None:
    """Write scenes in the official layout, with the frames of the video extracted as the official tool does."""
    write_atomically(root / "splits" / "nvs_sem_val.txt", "\n".join(SCENES[: size.scenes]) + "\n")
    listed: dict[str, list[list[str]]] = {}
    for number, scene in enumerate(SCENES[: size.scenes]):
        room, folder = size.make_room(number), root / "data" / scene
        fisheye, phone = make_fisheye(size.width), make_phone(size.width)
        dslr = [(f"DSC{n:05d}.JPG", fisheye, pose) for n, pose in _list_poses(size.frames, 0.0, 1)]
        iphone = [
            (f"frame_{n:06d}.jpg", phone, pose) for n, pose in _list_poses(size.frames, 0.07, VIDEO_STEP)
        ]
        _photograph(room, folder / "dslr" / "resized_images", dslr)
        _photograph(room, folder / "iphone" / "rgb", iphone)
        _photograph(
            room,
            folder / "dslr" / "original_images",
            [(n, c.resize(2 * c.width, 2 * c.height), p) for n, c, p in dslr],
        )
        for name, camera, _ in dslr:
            _write_mask(folder / "dslr" / "resized_anon_masks" / f"{Path(name).stem}.png", camera)
        write_colmap_text(folder / "dslr" / "colmap", dslr)
        write_colmap_text(folder / "iphone" / "colmap", [(f"video/{n}", c, p) for n, c, p in iphone])
        write_json(folder / "dslr" / "nerfstudio" / "transforms.json", _make_transforms(dslr))
        write_mesh_ply(folder / "scans" / "mesh_aligned_0.05.ply", room)
        listed[scene] = [[f"data/{scene}/dslr/resized_images/{name}" for name, _, _ in reversed(dslr)]]
    write_json(root / LISTED, listed)  # Wid3R's list of frames


def write_scannetpp_joint(root: Path, size: MiniatureSize) -> None:
    """Write scenes in DA3-BENCH's layout: one model with the images of both devices."""
    for number, scene in enumerate(SCENES[: size.scenes]):
        room, folder = size.make_room(number), root / scene
        fisheye, phone = make_fisheye(size.width), make_phone(size.width)
        images = [(f"dslr/DSC{n:05d}.JPG", fisheye, pose) for n, pose in _list_poses(size.frames, 0.0, 1)]
        images += [
            (f"iphone/frame_{n:06d}.jpg", phone, pose)
            for n, pose in _list_poses(size.frames, 0.07, VIDEO_STEP)
        ]
        _photograph(room, folder / "merge_dslr_iphone" / "images", images)
        write_colmap_text(folder / "merge_dslr_iphone" / "colmap" / "sparse_render_rgb", images)
        write_mesh_ply(folder / "scans" / "mesh_aligned_0.05.ply", room)


def make_fisheye(width: int) -> OpenCVFisheye:
    """Make a lens like the DSLR's, 127° wide, at a smaller size than 1752×1168."""
    scale = width / 1752
    affine = {
        key: value * scale for key, value in {"fx": 790.2, "fy": 792.4, "cx": 879.6, "cy": 581.3}.items()
    }
    k = {"k1": -0.0297, "k2": -0.0060, "k3": 0.0011, "k4": -0.0007}
    return OpenCVFisheye.make(width, round(1168 * scale), **affine, **k, dtype=torch.float64)


def make_phone(width: int) -> OpenCV:
    """Make a lens like the iPhone's at a smaller size than 1920×1440."""
    scale = width / 1920
    affine = {
        key: value * scale for key, value in {"fx": 1431.7, "fy": 1432.9, "cx": 957.1, "cy": 722.8}.items()
    }
    return OpenCV.make(
        width,
        round(1440 * scale),
        **affine,
        k1=0.0812,
        k2=-0.1537,
        p1=0.0006,
        p2=-0.0004,
        dtype=torch.float64,
    )


def _list_poses(count: int, start_rad: float, step: int) -> list[tuple[int, Pose]]:
    poses = make_path(count, start_rad=start_rad, radius_m=1.5)
    return [(step * number, poses[number]) for number in range(count)]


def _photograph(room: Room, folder: Path, images: Sequence[tuple[str, Camera, Pose]]) -> None:
    for name, camera, pose in images:
        write_image(folder / name, take_shot(room, camera, pose).pixels)


def _write_mask(path: Path, camera: Camera) -> None:
    """Hide a small patch, as the faces of passers-by are."""
    mask = np.full((camera.height, camera.width), 255, np.uint8)
    mask[: camera.height // 8, : camera.width // 8] = 0
    with atomic_path(path) as scratch:
        Image.fromarray(mask).save(scratch, format="png")


def _make_transforms(images: Sequence[tuple[str, Camera, Pose]]) -> dict[str, object]:
    """Make nerfstudio's document, in whose world x and y change places and z its sign."""
    world = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]], dtype=torch.float64)
    axes = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    camera = images[0][1]
    values = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
    values = {{"fx": "fl_x", "fy": "fl_y"}.get(key, key): value for key, value in values.items()}
    frames = [
        {
            "file_path": name,
            "transform_matrix": (world @ pose.world_from_cam @ axes).tolist(),
            "is_bad": False,
        }
        for name, _, pose in images
    ]
    return {
        **values,
        "w": camera.width,
        "h": camera.height,
        "camera_model": "OPENCV_FISHEYE",
        "frames": frames,
    }
