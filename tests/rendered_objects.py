"""Writes rendered objects to disk in the exact released format, without any code of ours.

Each object is a ball of radius 0.4 around the origin whose colour is its surface point · 1.25 + ½ on white, so that
every pixel tells which point it shows, to within the few grey levels that JPEG costs.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image


def write_objects(root: Path, names: list[str], size: int = 24) -> Path:
    for name in names:
        write_object(root / name, sum(name.encode()), size)
    return root


def write_object(folder: Path, seed: int, size: int) -> None:
    random, entries = np.random.default_rng(seed), []
    (folder / "views").mkdir(parents=True)
    for direction in range(8):
        for kind, (eye, fov) in enumerate(sampled_cameras(random, direction)):
            axes, focal = blender_axes(eye), size / 2 / np.tan(fov / 2)
            name = f"{direction:03d}_{kind}.jpg"
            image = (render(eye, axes, focal, size) * 255).round().astype(np.uint8)
            Image.fromarray(image).save(folder / "views" / name, quality=98, subsampling=0)
            place = {
                "view_id": 3 * direction + kind,
                "view_idx": direction,
                "radial_idx": kind,
                "image_name": name,
            }
            entries.append(place | camera_entry(eye, axes, focal, fov, size))
    (folder / "cameras.json").write_text(json.dumps({"cameras": entries}))


def camera_entry(eye: np.ndarray, axes: np.ndarray, focal: float, fov: float, size: int) -> dict:
    return {
        "intrinsics": {
            "focal_length": [focal, focal],
            "principal_point": [size / 2, size / 2],
            "image_size": [size, size],
            "fov_degrees": float(np.rad2deg(fov)),
        },
        "extrinsics": {
            "world_to_camera": np.c_[axes.T, -axes.T @ eye].tolist(),
            "camera_to_world": np.c_[axes, eye].tolist(),
        },
    }


def sampled_cameras(random: np.random.Generator, direction: int) -> list[tuple[np.ndarray, float]]:
    """Native, another focal length from the same place, and the native one from another distance."""
    azimuth = np.deg2rad(45 * direction + random.uniform(-22.5, 22.5))
    elevation = np.deg2rad(random.uniform(-10, 30))
    level = np.cos(elevation)
    towards = np.array([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)])
    fov = np.deg2rad(random.uniform(30, 80))
    eye = towards / (1.2 * np.tan(fov / 2))
    other = 2 * np.arctan(np.tan(fov / 2) * random.uniform(0.7, 1.4))
    return [(eye, fov), (eye, other), (eye * random.uniform(0.9, 1.2), fov)]


def blender_axes(eye: np.ndarray) -> np.ndarray:
    """Columns right, up, backward, of a camera that looks at the origin; the world's z is up."""
    back = eye / np.linalg.norm(eye)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(back, right), back], 1)


def render(eye: np.ndarray, axes: np.ndarray, focal: float, size: int) -> np.ndarray:
    across = (np.arange(size) + 0.5 - size / 2) / focal
    local = np.stack([*np.meshgrid(across, -across), -np.ones((size, size))], -1)
    rays = local / np.linalg.norm(local, axis=-1, keepdims=True) @ axes.T
    along = rays @ eye
    inside = along**2 - (eye @ eye - 0.4**2)
    points = eye - (along + np.sqrt(np.maximum(inside, 0)))[..., None] * rays
    return np.where(inside[..., None] > 0, points * 1.25 + 0.5, 1.0)
