"""What `g-ray synthesize` is given: photographs, their cameras, targets; each thing is used or refused in one line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.formats.cameras_json import NamedCamera, read_cameras
from g_ray.formats.images import read_photo
from g_ray.formats.scene import PosedScene, check_photo_size
from g_ray.geometry.pose import Pose


@dataclass(frozen=True, eq=False)
class Contexts:
    images: list[Tensor]
    cameras: list[Camera]
    poses: Pose


def read_contexts(
    photos: Sequence[str], cameras: Path | None, scene: PosedScene | None, report: Callable[[str], None]
) -> Contexts:
    """Photographs with camera and pose, from a camera file or a scene folder."""
    twice = next((photo for photo in photos if photos.count(photo) > 1), None)
    if twice is not None:
        raise ValueError(f"--context names {twice} twice: give every photograph once")
    if scene is not None:
        chosen = [scene.find_index(photo) for photo in photos]
        paths = [scene.images[i] for i in chosen]
        named = [NamedCamera(scene.names[i], scene.cameras[i], scene.poses[i]) for i in chosen]
    else:
        paths = [Path(photo) for photo in photos]
        assert cameras is not None
        named = match_cameras(paths, read_cameras(cameras), cameras, report)
    poses = []
    for path, entry in zip(paths, named, strict=True):
        if entry.pose is None:
            raise ValueError(f"{cameras}: camera {entry.name!r} of {path} has no pose; add world_from_cam")
        check_photo_size(path, entry.camera)
        poses.append(entry.pose.world_from_cam)
    images = [read_photo(path) for path in paths]
    return Contexts(images, [entry.camera for entry in named], Pose(torch.stack(poses)))


def match_cameras(
    photos: Sequence[Path], cameras: Sequence[NamedCamera], file: Path, report: Callable[[str], None]
) -> list[NamedCamera]:
    """Cameras by the names of the photographs, with or without suffix; in order if no name fits and counts agree."""
    by_name = {camera.name: camera for camera in cameras}
    matches = [by_name.get(photo.name) or by_name.get(photo.stem) for photo in photos]
    missing = [photo for photo, camera in zip(photos, matches, strict=True) if camera is None]
    if not missing:
        report(f"cameras: by name, {len(photos)} of the {len(cameras)} in {file}")
        return [camera for camera in matches if camera is not None]
    if len(missing) == len(photos) == len(cameras):
        pairs = ", ".join(f"{p.name} = {c.name}" for p, c in zip(photos, cameras, strict=True))
        report(f"cameras: no name in {file} is that of a photograph, so in order: {pairs}")
        return list(cameras)
    raise ValueError(
        f"{missing[0]} has no camera in {file}, which has {', '.join(by_name) or 'none'}: "
        "name cameras as the photographs, or give as many in the same order"
    )


def read_targets(target: str, scene: PosedScene | None) -> list[NamedCamera]:
    """Cameras with poses, from a file, or one image of the scene."""
    cameras = _read_target_cameras(target, scene)
    without = next((camera.name for camera in cameras if camera.pose is None), None)
    if without is not None:
        raise ValueError(f"{target}: target {without!r} has no pose; add world_from_cam")
    return cameras


def choose_lens(target: str | None, scene: PosedScene | None, default: Camera) -> Camera:
    """The lens of a path: the first context's, or that of the one camera in a file, which must have no pose."""
    if target is None:
        return default
    cameras = _read_target_cameras(target, scene)
    if len(cameras) != 1 or (Path(target).suffix == ".json" and cameras[0].pose is not None):
        raise ValueError(f"{target}: with --path it gives the lens alone: one camera, without world_from_cam")
    return cameras[0].camera


def _read_target_cameras(target: str, scene: PosedScene | None) -> list[NamedCamera]:
    if Path(target).suffix == ".json":
        cameras = read_cameras(target)
        if not cameras:
            raise ValueError(f"{target} has no cameras: add one")
        return cameras
    if scene is None:
        raise ValueError(f"--target {target}: give a .json file with cameras (image names go with --scene)")
    index = scene.find_index(target)
    return [NamedCamera(scene.names[index], scene.cameras[index], scene.poses[index])]
