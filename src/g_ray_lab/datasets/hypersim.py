"""Read Hypersim: photorealistic interiors.

metadata_camera_parameters.csv                            one line per scene, from the authors' repository
                                                          (contrib/mikeroberts3000), beside the scene folders
ai_001_001/_detail/metadata_scene.csv                     meters_per_asset_unit
ai_001_001/_detail/cam_00/camera_keyframe_positions.hdf5      [frame, 3], in the units of the scene's assets
ai_001_001/_detail/cam_00/camera_keyframe_orientations.hdf5   [frame, 3, 3], world_from_cam, OpenGL axes
ai_001_001/images/scene_cam_00_final_preview/frame.0000.tonemap.jpg
ai_001_001/images/scene_cam_00_geometry_hdf5/frame.0000.depth_meters.hdf5   distance along the ray, meters

The projection of each scene is M_proj of the table, as OpenGL defines it. Some scenes have tilted sensors: they are no
pinholes, and are refused. Files with HDF5 need h5py.
"""

import csv
from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam
from g_ray.media.depth import DepthFile, read_hdf5

TITLE = "Hypersim"
PARAMETERS = "metadata_camera_parameters.csv"
PREVIEW = ".tonemap.jpg"
SIZE_KEYS = ("settings_output_img_width", "settings_output_img_height")
PINHOLE_ZEROS = ("01", "10", "20", "21", "30", "31", "33")
"""Entries of M_proj that are zero unless the sensor is skewed or tilted."""


def is_hypersim(folder: Path) -> bool:
    return (folder / "_detail" / "metadata_scene.csv").is_file()


def read_hypersim(folder: Path, check: bool = True) -> PosedScene:
    """Read all trajectories of a scene; ValueError, in one line with the file, if anything is wrong."""
    camera, scale = _read_camera(folder), _read_scale(folder / "_detail" / "metadata_scene.csv")
    views = []
    for detail in sorted((folder / "_detail").glob("cam_*")):
        positions = read_hdf5(detail / "camera_keyframe_positions.hdf5")
        rotations = read_hdf5(detail / "camera_keyframe_orientations.hdf5")
        preview = folder / "images" / f"scene_{detail.name}_final_preview"
        geometry = folder / "images" / f"scene_{detail.name}_geometry_hdf5"
        for image in sorted(preview.glob(f"frame.*{PREVIEW}")):
            stem = image.name.removesuffix(PREVIEW)
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
    return build_recorded_scene(folder, TITLE, views, check)


def _read_camera(folder: Path) -> Pinhole:
    """Read the scene's line of the table, which lies beside the scene folder or one level above."""
    paths = [folder.parent / PARAMETERS, folder.parent.parent / PARAMETERS]
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
        width, height = (int(float(row[key])) for key in SIZE_KEYS)
        entries = {key: float(row[f"M_proj_{key}"]) for key in ("00", "02", "11", "12", *PINHOLE_ZEROS)}
    except (KeyError, ValueError):
        raise ValueError(f"{path}: the line of {folder.name} has no size or no M_proj") from None
    if any(abs(entries[key]) > 1e-6 for key in PINHOLE_ZEROS):
        raise ValueError(
            f"{folder}: its sensor is tilted (M_proj in {path.name}), no pinhole; leave the scene out"
        )
    # Clip coordinates run from −1 to 1 over the image, x to the right and y up.
    return Pinhole.make(
        width,
        height,
        fx=entries["00"] * width / 2,
        fy=entries["11"] * height / 2,
        cx=(1 - entries["02"]) * width / 2,
        cy=(1 + entries["12"]) * height / 2,
        dtype=torch.float64,
    )


def _read_scale(path: Path) -> float:
    with path.open(newline="", encoding="utf-8") as file:
        values = {row[0].strip(): row[1].strip() for row in csv.reader(file) if len(row) > 1}
    try:
        scale = float(values["meters_per_asset_unit"])
    except (KeyError, ValueError):
        scale = float("nan")
    if not 0 < scale < float("inf"):
        raise ValueError(f"{path}: no meters_per_asset_unit in it; unpack the scene again")
    return scale
