"""Cameras that move together: where each stands on the rig, and which photographs were taken at one instant."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from g_ray.formats.aria import read_entries
from g_ray.formats.documents import ParsedFile, parse_numbers
from g_ray.geometry.pose import Pose, rotation_from_quaternion

NEAR_ROTATION = 1e-3
"""Deviation of RᵀR from the identity that rounding in a file explains."""


@dataclass(frozen=True, eq=False)
class Rig:
    """Poses of the cameras on the rig and, for each photograph in its order, its camera and its instant.

    A photograph whose entry is None moves on its own.
    """

    rig_from_cam: Mapping[str, Pose]
    places: tuple[tuple[str, str] | None, ...]

    def __post_init__(self) -> None:
        for label, pose in self.rig_from_cam.items():
            _check_pose(label, pose)
        known = ", ".join(self.rig_from_cam)
        filled = [place for place in self.places if place is not None]
        for label, instant in filled:
            if label not in self.rig_from_cam:
                raise ValueError(f"rig: camera {label} at instant {instant} has no pose; the rig has {known}")
        twice = next((place for place in filled if filled.count(place) > 1), None)
        if twice is not None:
            raise ValueError(f"rig: camera {twice[0]} has two photographs at instant {twice[1]}")

    @property
    def baseline(self) -> float:
        """Largest distance between two cameras, in the rig's unit; 0 where all share one center."""
        centers = torch.stack([pose.translation.double() for pose in self.rig_from_cam.values()])
        return float(torch.cdist(centers, centers).max())

    def compute_digest(self) -> str:
        """Return a digest of where the cameras stand, and of which took each photograph when."""
        digest = hashlib.sha256(repr(self.places).encode())
        for label, pose in sorted(self.rig_from_cam.items()):
            digest.update(label.encode() + pose.world_from_cam.numpy(force=True).tobytes())
        return digest.hexdigest()[:16]

    def place_at_once(self) -> list[Pose] | None:
        """Return the poses of all photographs in the frame of the rig, if they are of one instant; otherwise None."""
        instants = {None if place is None else place[1] for place in self.places}
        if len(instants) != 1 or None in instants:
            return None
        return [self.rig_from_cam[place[0]].to(torch.float64) for place in self.places if place is not None]

    def select(self, views: Sequence[int]) -> "Rig":
        """Return the rig of some of the photographs."""
        return Rig(self.rig_from_cam, tuple(self.places[view] for view in views))

    @staticmethod
    def from_names(
        names: Sequence[str], rig_from_cam: Mapping[str, Pose], pattern: str | None = None
    ) -> "Rig":
        """Assign photographs by their names.

        Without a pattern the camera is the folder, or another part of the name between separators, that is a camera's
        label, and the rest of the name is the instant: left/0001.jpg, 0001_left.jpg. A pattern is a regular
        expression with groups called `camera` and `instant`.
        """
        places = [_parse_name(name, rig_from_cam, pattern) for name in names]
        if not any(places):
            labels = ", ".join(rig_from_cam)
            raise ValueError(
                f"rig: no photograph is named after one of its cameras ({labels}); give a pattern"
            )
        return Rig(dict(rig_from_cam), tuple(places))


def read_rig_config(path: Path) -> dict[str, Pose]:
    """Read COLMAP's rig_config.json: `rig_from_cam` by image prefix, without slashes at its ends.

    The reference sensor is the rig's frame; a camera without `cam_from_rig_rotation` cannot be used.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rigs = document if isinstance(document, list) else [document]
        if len(rigs) != 1:
            raise ValueError(f"it has {len(rigs)} rigs; give one with one rig")
        return dict(_parse_rig_camera(camera) for camera in rigs[0]["cameras"])
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(f"{path}: not a COLMAP rig configuration ({reason})") from None


def _parse_rig_camera(camera: dict[str, Any]) -> tuple[str, Pose]:
    label = camera["image_prefix"].strip("/")
    if camera.get("ref_sensor"):
        return label, Pose.identity(dtype=torch.float64)
    w, x, y, z = parse_numbers(camera["cam_from_rig_rotation"], "cam_from_rig_rotation", (4,))
    shift = parse_numbers(camera["cam_from_rig_translation"], "cam_from_rig_translation", (3,))
    rotation = rotation_from_quaternion(torch.tensor([x, y, z, w], dtype=torch.float64))
    return label, Pose.from_parts(rotation, torch.tensor(shift, dtype=torch.float64)).inverse()


def read_kalibr_rig(path: Path) -> dict[str, Pose]:
    """Read where the cameras of a Kalibr camchain stand: cam0 is the rig's frame, T_cn_cnm1 leads to the next."""
    document = ParsedFile(path).document or {}
    poses: dict[str, Pose] = {}
    cam_from_rig = Pose.identity(dtype=torch.float64)
    labels = [key for key in document if re.fullmatch(r"cam\d+", str(key))]
    for label in sorted(labels, key=lambda label: int(label[3:])):
        if poses:
            rows = document[label].get("T_cn_cnm1") if isinstance(document[label], dict) else None
            if not isinstance(rows, list) or len(rows) != 4:
                raise ValueError(f"{path}: {label} has no T_cn_cnm1 of 4×4; calibrate the cameras together")
            values = [parse_numbers(row, "T_cn_cnm1", (4,)) for row in rows]
            cam_from_rig = Pose(torch.tensor(values, dtype=torch.float64)) @ cam_from_rig
        poses[label] = cam_from_rig.inverse()
    if len(poses) < 2:
        raise ValueError(f"{path}: a camchain with {len(poses)} cameras is no rig")
    return poses


def read_aria_rig(path: Path) -> dict[str, Pose]:
    """Read where the cameras of a Project Aria device stand, in meters: the device is the rig's frame."""
    document = ParsedFile(path).document or {}
    try:
        entries = read_entries(path, document["CameraCalibrations"])
        poses = dict(_parse_aria_camera(entry) for entry in entries)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(f"{path}: not a rig of Project Aria ({reason})") from None
    if len(poses) < 2:
        raise ValueError(f"{path}: a device with {len(poses)} camera is no rig")
    return poses


def _parse_aria_camera(entry: dict[str, Any]) -> tuple[str, Pose]:
    """Parse Translation and UnitQuaternion, [w, [x, y, z]]."""
    device_from_camera = entry["T_Device_Camera"]
    shift = parse_numbers(device_from_camera["Translation"], "Translation", (3,))
    w, imaginary = device_from_camera["UnitQuaternion"]
    x, y, z = parse_numbers(imaginary, "UnitQuaternion", (3,))
    quaternion = torch.tensor([x, y, z, *parse_numbers([w], "UnitQuaternion", (1,))], dtype=torch.float64)
    rotation = rotation_from_quaternion(quaternion)
    return entry["Label"], Pose.from_parts(rotation, torch.tensor(shift, dtype=torch.float64))


def read_rig_cameras(path: Path) -> dict[str, Pose]:
    """Read `rig_from_cam` by label from any file that describes a rig: Project Aria's, COLMAP's or Kalibr's."""
    if '"CameraCalibrations"' in path.read_text(encoding="utf-8", errors="replace"):
        return read_aria_rig(path)
    return read_rig_config(path) if path.suffix.lower() == ".json" else read_kalibr_rig(path)


def _parse_name(name: str, labels: Mapping[str, Pose], pattern: str | None) -> tuple[str, str] | None:
    if pattern is not None:
        match = re.search(pattern, name)
        if match is None:
            return None
        try:
            return match["camera"], match["instant"]
        except IndexError:
            raise ValueError(f"rig: the pattern {pattern!r} needs groups called camera and instant") from None
    for label in sorted(labels, key=len, reverse=True):
        if name.startswith(f"{label}/"):
            return label, _strip_suffix(name[len(label) + 1 :])
    stem = _strip_suffix(name)
    for label in sorted(labels, key=len, reverse=True):
        parts = re.split(rf"(?:^|(?<=[/_.-])){re.escape(label)}(?=$|[/_.-])", stem, maxsplit=1)
        if len(parts) == 2:
            return label, "".join(parts)
    return None


def _strip_suffix(name: str) -> str:
    return str(Path(name).with_suffix(""))


def _check_pose(label: str, pose: Pose) -> None:
    matrix = pose.world_from_cam.double()
    if matrix.shape != (4, 4) or not bool(torch.isfinite(matrix).all()):
        raise ValueError(f"rig: the pose of camera {label} is not a finite 4×4 matrix")
    rotation = matrix[:3, :3]
    off = float((rotation.mT @ rotation - torch.eye(3, dtype=torch.float64)).abs().max())
    if off > NEAR_ROTATION or float(torch.linalg.det(rotation)) < 0:
        raise ValueError(f"rig: the pose of camera {label} is not a rotation and a translation")
