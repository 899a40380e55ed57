"""Photographs of a room on disk, with their cameras in any of the formats that are read; for tests."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from g_ray.cameras import OpenCV, OpenCVFisheye, Pinhole
from g_ray.cameras.camera import Camera
from g_ray.demo.room import make_random_room
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray_lab.sources.covisibility import CoarseView, compute_pairwise

OPENGL = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))


@dataclass(frozen=True)
class Shot:
    name: str
    camera: Camera
    pose: Pose
    pixels: np.ndarray
    z_depth: np.ndarray
    ray_depth: np.ndarray


def compute_covisibility(cameras, poses: Pose, points: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Covisibility [set view view] of the views of a batch, whose cameras are batched over sets or not at all."""
    matrices = []
    for index in range(len(points)):
        views = [
            CoarseView(points[index, view], valid[index, view], camera, points[index, view].norm(dim=-1))
            for view, camera in enumerate(
                camera[index] if camera.batch_shape else camera for camera in cameras
            )
        ]
        matrices.append(torch.from_numpy(compute_pairwise(views, poses[index])))
    return torch.stack(matrices)


def lens(kind: str, width: int, height: int) -> Camera:
    middle = {"cx": width / 2 + 0.3, "cy": height / 2 - 0.4, "dtype": torch.float64}
    if kind == "pinhole":
        return Pinhole.make(width, height, fx=0.8 * width, fy=0.82 * width, **middle)
    if kind == "opencv":
        return OpenCV.make(
            width, height, fx=0.8 * width, fy=0.8 * width, k1=-0.05, k2=0.01, p1=0.002, **middle
        )
    return OpenCVFisheye.make(width, height, fx=0.4 * width, fy=0.4 * width, k1=0.02, k2=-0.003, **middle)


def shots(
    count: int = 9, kinds: tuple[str, ...] = ("pinhole",), width: int = 48, height: int = 36, seed: int = 3
) -> list[Shot]:
    """Views on an arc; lenses take turns."""
    room, taken = make_random_room(seed, coarse=True), []
    for number in range(count):
        angle = 0.15 * number
        eye = torch.tensor([1.7 * np.sin(angle), -0.3, 1.7 * np.cos(angle)], dtype=torch.float64)
        pose = Pose.look_at(eye, torch.tensor([0.1, 0.3, 0.0], dtype=torch.float64))
        camera = lens(kinds[number % len(kinds)], width, height)
        seen = room.render(camera.to(torch.float32), pose.to(torch.float32))
        pixels = (seen.rgb * 255).round().byte().numpy()
        depth = seen.z_depth.numpy(), seen.ray_depth.numpy()
        taken.append(Shot(f"view_{number:02d}.png", camera, pose, pixels, *depth))
    return taken


def write_images(folder: Path, views: list[Shot]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shot in views:
        Image.fromarray(shot.pixels).save(folder / shot.name)


def write_nerfstudio(folder: Path, views: list[Shot]) -> dict:
    """One camera per frame; returns what was written."""
    write_images(folder / "images", views)
    models = {"pinhole": "PINHOLE", "opencv": "OPENCV", "opencv_fisheye": "OPENCV_FISHEYE"}
    frames = []
    for shot in views:
        camera = shot.camera
        entry = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        entry = {{"fx": "fl_x", "fy": "fl_y"}.get(key, key): value for key, value in entry.items()}
        entry = {key: value for key, value in entry.items() if value}
        entry |= {"camera_model": models[camera.NAME], "w": camera.width, "h": camera.height}
        matrix = (shot.pose.world_from_cam @ OPENGL).tolist()
        frames.append({"file_path": f"images/{shot.name}", "transform_matrix": matrix, **entry})
    document = {"frames": frames, "applied_transform": np.eye(4)[:3].tolist()}
    (folder / "transforms.json").write_text(json.dumps(document))
    return document


def write_wai(folder: Path, views: list[Shot], covisibility: bool = False) -> dict:
    """As MapAnything's converters do: half floats in EXR, OpenCV axes; returns what was written."""
    write_images(folder / "images", views)
    frames = []
    for shot in views:
        stem, camera = Path(shot.name).stem, shot.camera
        write_exr(folder / "depth" / f"{stem}.exr", shot.z_depth)
        entry = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        entry = {{"fx": "fl_x", "fy": "fl_y"}.get(key, key): value for key, value in entry.items() if value}
        paths = {
            "image": f"images/{shot.name}",
            "file_path": f"images/{shot.name}",
            "depth": f"depth/{stem}.exr",
        }
        matrix = shot.pose.world_from_cam.tolist()
        frames.append({"frame_name": stem, **paths, "transform_matrix": matrix, **entry})
        frames[-1] |= {"w": camera.width, "h": camera.height, "camera_model": camera.NAME.upper()}
    document = {
        "scene_name": folder.name,
        "dataset_name": "rooms",
        "version": "0.1",
        "shared_intrinsics": False,
        "camera_model": "PINHOLE",
        "camera_convention": "opencv",
        "scale_type": "metric",
        "scene_modalities": {},
        "frames": frames,
        "frame_modalities": {
            "image": {"frame_key": "image", "format": "image"},
            "depth": {"frame_key": "depth", "format": "depth"},
        },
    }
    if covisibility:
        place = folder / "covisibility" / "v0" / f"pairwise_covisibility--{len(views)}x{len(views)}.npy"
        place.parent.mkdir(parents=True)
        np.save(place, np.ones((len(views), len(views)), dtype=np.float32))
    (folder / "scene_meta.json").write_text(json.dumps(document))
    return document


def write_exr(path: Path, depth: np.ndarray, channel: str = "Y") -> None:
    import OpenEXR

    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File(header, {channel: depth.astype(np.float16)}) as file:
        file.write(str(path))


def write_png_depth(path: Path, depth: np.ndarray) -> None:
    """Millimetres."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((depth * 1000).round().clip(0, 65535).astype(np.uint16)).save(path)


def write_seven_scenes(folder: Path, views: list[Shot]) -> None:
    """One pinhole for all."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "camera-intrinsics.txt", views[0].camera.central_intrinsics().numpy())
    for number, shot in enumerate(views):
        stem = folder / f"frame-{number:06d}"
        Image.fromarray(shot.pixels).save(f"{stem}.color.png")
        write_png_depth(Path(f"{stem}.depth.png"), shot.z_depth)
        np.savetxt(f"{stem}.pose.txt", shot.pose.world_from_cam.numpy())


def write_nerfstudio_depth(folder: Path, views: list[Shot]) -> dict:
    """transforms.json with 16-bit PNGs in millimetres; returns what was written."""
    document = write_nerfstudio(folder, views)
    for frame, shot in zip(document["frames"], views, strict=True):
        frame["depth_file_path"] = f"depths/{shot.name}"
        write_png_depth(folder / "depths" / shot.name, shot.z_depth)
    (folder / "transforms.json").write_text(json.dumps(document))
    return document


def write_colmap_dense(folder: Path, views: list[Shot]) -> None:
    """A COLMAP model with its own dense depth maps."""
    write_colmap(folder, views)
    place = folder / "stereo" / "depth_maps"
    place.mkdir(parents=True)
    for shot in views:
        rows, columns = shot.z_depth.shape
        head = f"{columns}&{rows}&1&".encode()
        (place / f"{shot.name}.geometric.bin").write_bytes(head + shot.z_depth.astype("<f4").tobytes())


def write_colmap(folder: Path, views: list[Shot], text: bool = False) -> None:
    """Through pycolmap, which knows nothing of this project."""
    import pycolmap

    write_images(folder / "images", views)
    model = pycolmap.Reconstruction()
    names = {"pinhole": "PINHOLE", "opencv": "OPENCV", "opencv_fisheye": "OPENCV_FISHEYE"}
    for number, shot in enumerate(views, 1):
        camera = shot.camera
        count = {"pinhole": 4, "opencv": 8, "opencv_fisheye": 8}[camera.NAME]
        model.add_camera_with_trivial_rig(
            pycolmap.Camera(
                camera_id=number,
                model=names[camera.NAME],
                width=camera.width,
                height=camera.height,
                params=camera.params[:count].tolist(),
            )
        )
        matrix = shot.pose.cam_from_world[:3].numpy()
        image = pycolmap.Image(name=shot.name, camera_id=number, image_id=number)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(matrix))
    place = folder / "sparse" / "0"
    place.mkdir(parents=True)
    model.write_text(str(place)) if text else model.write_binary(str(place))


def write_camera_file(path: Path, views: list[Shot], poses: bool = True) -> Path:
    write_cameras(path, [View(s.name, s.camera, s.pose if poses else None) for s in views])
    return path


def write_weights(path: Path, recipe=None, seed: int = 0) -> Path:
    """A small network that knows nothing, as `g-ray train` writes it."""
    from dataclasses import replace

    from safetensors.torch import save_file

    from g_ray.models.lvsm import LVSM
    from g_ray_lab.recipes import nvs_recipes

    if recipe is None:
        tiny = nvs_recipes.tiny("gta_gray")
        recipe = replace(tiny, model=replace(tiny.model, dim=48, layers=2, ffn=48))
    torch.manual_seed(seed)
    weights = LVSM(recipe.model).state_dict()
    document = {"name": "test", "kind": type(recipe).__name__, "settings": recipe.to_settings()}
    save_file(weights, path, metadata={"format": "pt", "step": "0", "recipe": json.dumps(document)})
    return path
