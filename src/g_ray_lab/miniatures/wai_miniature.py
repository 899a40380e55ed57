"""A miniature of MapAnything's layout: fisheyes beside pinholes, depth as half floats."""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.frames import camera_to_frame
from g_ray.media.depth import check_exr_available
from g_ray.runtime.files import atomic_path, write_json
from g_ray_lab.miniatures.miniature_room import MiniatureSize, make_path, take_shot, write_image
from g_ray_lab.miniatures.scannetpp_miniature import make_fisheye

SCENES = ("courtyard", "office", "pipes", "relief")
"""Named as ETH3D's, which MapAnything distributes in this layout."""


def write_wai(root: Path, size: MiniatureSize) -> None:
    """Write scenes with scene_meta.json, images and z-depth."""
    height = round(size.width * 2 / 3)
    focal = {"fx": 0.8 * size.width, "fy": 0.8 * size.width}
    pinhole = Pinhole.make(
        size.width, height, **focal, cx=size.width / 2, cy=height / 2 - 1, dtype=torch.float64
    )
    lenses: list[Camera] = [pinhole, make_fisheye(size.width)]
    for number in range(min(size.scenes, len(SCENES))):
        room, folder, poses, frames = (
            size.make_room(number),
            root / SCENES[number],
            make_path(size.frames),
            [],
        )
        for index in range(size.frames):
            stem, camera = f"view_{index:03d}", lenses[index % 2]
            shot = take_shot(room, camera, poses[index])
            write_image(folder / "images" / f"{stem}.png", shot.pixels)
            _write_half_exr(folder / "depth" / f"{stem}.exr", shot.z_depth)
            paths = {
                "file_path": f"images/{stem}.png",
                "image": f"images/{stem}.png",
                "depth": f"depth/{stem}.exr",
            }
            matrix = poses[index].world_from_cam.tolist()
            frames.append(
                {"frame_name": stem, **paths, "transform_matrix": matrix, **camera_to_frame(camera)}
            )
        modalities = {name: {"frame_key": name, "format": name} for name in ("image", "depth")}
        head = {
            "scene_name": folder.name,
            "dataset_name": "rooms",
            "version": "0.1",
            "shared_intrinsics": False,
        }
        head |= {"camera_model": "PINHOLE", "camera_convention": "opencv", "scale_type": "metric"}
        write_json(folder / "scene_meta.json", {**head, "frames": frames, "frame_modalities": modalities})


def _write_half_exr(path: Path, depth: np.ndarray) -> None:
    check_exr_available()
    import OpenEXR

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with atomic_path(path) as scratch:
        OpenEXR.File(header, {"Y": depth.astype(np.float16)}).write(str(scratch))
