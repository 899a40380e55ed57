"""Input files for the golden tests: photographs of a box with painted walls, in several layouts. Uses no g_ray code."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

HALF_SIZE = np.array([2.4, 1.4, 2.4])
"""Of the box around the origin, in meters; y points down."""


@dataclass(frozen=True)
class Shot:
    """A photograph, its lens and its pose."""

    name: str
    model: str
    params: dict[str, float]
    world_from_cam: np.ndarray  # [4 4]
    pixels: np.ndarray  # [h w 3], uint8
    z_depth: np.ndarray  # [h w]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        return self.pixels.shape[1]


def make_lens(model: str, width: int, height: int) -> dict[str, float]:
    center = {"cx": width / 2 + 0.3, "cy": height / 2 - 0.4}
    if model == "pinhole":
        return {"fx": 0.8 * width, "fy": 0.82 * width, **center}
    if model == "opencv_fisheye":  # about 160° across, no distortion beyond ρ = θ
        return {"fx": 0.36 * width, "fy": 0.36 * width, **center}
    return {"fx": width / (2 * np.pi), "fy": height / np.pi, "cx": width / 2, "cy": height / 2}


def cast_rays(model: str, params: dict[str, float], width: int, height: int) -> np.ndarray:
    """Unit rays of all pixel centers [h w 3] in the camera's frame."""
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    x, y = (u - params["cx"]) / params["fx"], (v - params["cy"]) / params["fy"]
    if model == "pinhole":
        rays = np.stack([x, y, np.ones_like(x)], -1)
    elif model == "opencv_fisheye":
        angle = np.hypot(x, y)
        scale = np.sinc(angle / np.pi)
        rays = np.stack([x * scale, y * scale, np.cos(angle)], -1)
    else:
        rays = np.stack([np.cos(y) * np.sin(x), np.sin(y), np.cos(y) * np.cos(x)], -1)
    return rays / np.linalg.norm(rays, axis=-1, keepdims=True)


def look_at(eye: np.ndarray, target: np.ndarray) -> np.ndarray:
    """OpenCV axes: x right, y down, z forward."""
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross([0.0, 1.0, 0.0], forward)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(forward, right), forward, eye], 1)
    return pose


def take_photo(name: str, model: str, pose: np.ndarray, width: int, height: int) -> Shot:
    params = make_lens(model, width, height)
    local = cast_rays(model, params, width, height)
    rays, eye = local @ pose[:3, :3].T, pose[:3, 3]
    with np.errstate(divide="ignore"):
        ray_depth = ((np.sign(rays) * HALF_SIZE - eye) / rays).min(-1)
    pixels = (255 * paint(eye + rays * ray_depth[..., None])).round().astype(np.uint8)
    return Shot(name, model, params, pose, pixels, ray_depth * local[..., 2])


def paint(points: np.ndarray) -> np.ndarray:
    """Colors in [0, 1] of points on the walls: waves with wavelengths of 0.6 to 3 m."""
    directions = np.random.default_rng(5).normal(0, 1, (3, 6, 3))
    waves = np.sin(np.einsum("...k,cnk->...cn", 3 * points, directions) + np.arange(6))
    return 0.5 + 0.5 * np.tanh(waves.sum(-1) / 2)


def take_photos(
    count: int, models: tuple[str, ...] = ("pinhole",), width: int = 48, height: int = 36, start: float = 0.0
) -> list[Shot]:
    """Views on an arc that look across the box; lenses take turns."""
    shots = []
    for number in range(count):
        angle = start + 0.12 * number
        eye = np.array([1.5 * np.sin(angle), -0.3, 1.5 * np.cos(angle)])
        pose = look_at(eye, np.array([0.1, 0.3, 0.0]))
        model = models[number % len(models)]
        shots.append(take_photo(f"view_{number:02d}.png", model, pose, width, height))
    return shots


# Layouts on disk


def write_images(folder: Path, shots: list[Shot]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shot in shots:
        Image.fromarray(shot.pixels).save(folder / shot.name)


def write_depth(path: Path, shot: Shot) -> None:
    """16-bit PNG in millimeters."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((shot.z_depth * 1000).round().clip(0, 65535).astype(np.uint16)).save(path)


def write_cameras_json(path: Path, shots: list[Shot]) -> None:
    cameras = [
        {
            "name": shot.name,
            "model": shot.model,
            "width": shot.width,
            "height": shot.height,
            "params": shot.params,
            "world_from_cam": shot.world_from_cam.tolist(),
        }
        for shot in shots
    ]
    path.write_text(json.dumps({"format": "g-ray-cameras", "version": 1, "cameras": cameras}))


def write_nerfstudio(folder: Path, shots: list[Shot]) -> None:
    """transforms.json with depth; OpenGL axes."""
    write_images(folder / "images", shots)
    frames = []
    for shot in shots:
        write_depth(folder / "depths" / shot.name, shot)
        frames.append(
            {
                "file_path": f"images/{shot.name}",
                "depth_file_path": f"depths/{shot.name}",
                "transform_matrix": (shot.world_from_cam @ np.diag([1, -1, -1, 1])).tolist(),
                "camera_model": shot.model.upper(),
                "w": shot.width,
                "h": shot.height,
                "fl_x": shot.params["fx"],
                "fl_y": shot.params["fy"],
                "cx": shot.params["cx"],
                "cy": shot.params["cy"],
            }
        )
    document = {"frames": frames, "applied_transform": np.eye(4)[:3].tolist()}
    (folder / "transforms.json").write_text(json.dumps(document))


def write_colmap(folder: Path, shots: list[Shot]) -> None:
    """A model as text, pinholes only, each rotation as the quaternion of its matrix."""
    from scipy.spatial.transform import Rotation

    write_images(folder / "images", shots)
    cameras, images = [], []
    for number, shot in enumerate(shots, 1):
        lens = " ".join(str(shot.params[key]) for key in ("fx", "fy", "cx", "cy"))
        cameras.append(f"{number} PINHOLE {shot.width} {shot.height} {lens}\n")
        matrix = np.linalg.inv(shot.world_from_cam)
        x, y, z, w = Rotation.from_matrix(matrix[:3, :3]).as_quat()
        pose = " ".join(str(value) for value in (w, x, y, z, *matrix[:3, 3]))
        images.append(f"{number} {pose} {number} {shot.name}\n\n")
    model = folder / "sparse" / "0"
    model.mkdir(parents=True)
    (model / "cameras.txt").write_text("".join(cameras))
    (model / "images.txt").write_text("".join(images))
    (model / "points3D.txt").write_text("")


def write_seven_scenes(folder: Path, shots: list[Shot]) -> None:
    """One pinhole for all frames."""
    folder.mkdir(parents=True)
    lens = shots[0].params
    matrix = [[lens["fx"], 0, lens["cx"]], [0, lens["fy"], lens["cy"]], [0, 0, 1]]
    np.savetxt(folder / "camera-intrinsics.txt", np.array(matrix))
    for number, shot in enumerate(shots):
        stem = folder / f"frame-{number:06d}"
        Image.fromarray(shot.pixels).save(f"{stem}.color.png")
        write_depth(Path(f"{stem}.depth.png"), shot)
        np.savetxt(f"{stem}.pose.txt", shot.world_from_cam)


def write_re10k_chunks(root: Path, clips: int = 4, frames: int = 10) -> None:
    """RealEstate10K in pixelSplat's layout: two clips per chunk."""
    folder, index = root / "train", {}
    folder.mkdir(parents=True)
    for chunk in range(clips // 2):
        entries = []
        for key in (f"clip{2 * chunk}", f"clip{2 * chunk + 1}"):
            shots = film(key, frames)
            rows = np.stack([np.linalg.inv(shot.world_from_cam)[:3].reshape(12) for shot in shots])
            lens = np.tile([*normalized_lens(shots[0]), 0.0, 0.0], (frames, 1))
            entries.append(
                {
                    "url": "https://example.org/video",
                    "timestamps": torch.arange(frames) * 33366,
                    "cameras": torch.from_numpy(np.concatenate([lens, rows], 1)).float(),
                    "key": key,
                    "images": [torch.from_numpy(encode_png(shot.pixels)) for shot in shots],
                }
            )
            index[key] = f"{chunk:06d}.torch"
        torch.save(entries, folder / f"{chunk:06d}.torch")
    (folder / "index.json").write_text(json.dumps(index))


def write_re10k_folders(root: Path, clips: int = 4, frames: int = 10) -> None:
    """The same clips in LVSM's layout."""
    folder = root / "train"
    (folder / "metadata").mkdir(parents=True)
    for number in range(clips):
        key, entries = f"clip{number}", []
        shots = film(key, frames)
        write_images(folder / "images" / key, shots)
        for shot in shots:
            entries.append(
                {
                    "image_path": f"/elsewhere/re10k/train/images/{key}/{shot.name}",
                    "fxfycxcy": [shot.params[name] for name in ("fx", "fy", "cx", "cy")],
                    "w2c": np.linalg.inv(shot.world_from_cam).tolist(),
                }
            )
        document = {"scene_name": key, "frames": entries}
        (folder / "metadata" / f"{key}.json").write_text(json.dumps(document))


def film(key: str, frames: int) -> list[Shot]:
    return take_photos(frames, width=48, height=27, start=0.7 * int(key[-1]))


def normalized_lens(shot: Shot) -> list[float]:
    size = {"fx": shot.width, "fy": shot.height, "cx": shot.width, "cy": shot.height}
    return [shot.params[key] / pixels for key, pixels in size.items()]


def encode_png(pixels: np.ndarray) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return np.frombuffer(buffer.getvalue(), np.uint8).copy()


def write_camera_paths(path: Path, clips: int = 60, frames: int = 12) -> None:
    """RealEstate10K's camera paths as .npz: per frame a normalized lens and cam_from_world."""
    rows = {}
    for number in range(clips):
        random = np.random.default_rng(number)
        eyes = np.cumsum(random.normal(0, 0.05, (frames, 3)), 0)
        aims = eyes + np.array([0.0, 0.0, 1.0]) + np.cumsum(random.normal(0, 0.02, (frames, 3)), 0)
        poses = [
            np.linalg.inv(look_at(eye, aim))[:3].reshape(12) for eye, aim in zip(eyes, aims, strict=True)
        ]
        lens = np.tile([0.48, 0.48 * 16 / 9, 0.5, 0.5], (frames, 1))
        rows[f"clip{number:03d}"] = np.concatenate([lens, np.stack(poses)], 1).astype(np.float32)
    np.savez(path, **rows)
