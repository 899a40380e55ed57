"""A sparse scene on disk, for further photographs later.

FOLDER/lenses.json   the distinct lenses, as a cameras.json
FOLDER/scene.json    names, lens and pose of every view, reasons, notes, rig and figures
FOLDER/tracks.npz    points, colors and observations with their descriptors
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.runtime.files import atomic_path, write_json
from g_ray.sfm.rig import Rig
from g_ray.sfm.sparse_scene import PoseAgreement, ScaleEstimate, SparseScene, Tracks

FORMAT = "g-ray-sparse-scene"


def save_scene(scene: SparseScene, folder: Path) -> None:
    """Write a scene; the file that `load_scene` looks for is written last."""
    lenses: dict[int, Camera] = {id(camera): camera for camera in scene.cameras}
    order = list(lenses)
    named = [View(f"lens {index}", camera) for index, camera in enumerate(lenses.values())]
    folder.mkdir(parents=True, exist_ok=True)
    write_cameras(folder / "lenses.json", named)
    tracks = scene.tracks
    with atomic_path(folder / "tracks.npz") as scratch, scratch.open("wb") as file:
        np.savez(
            file,
            points=scene.points.numpy(),
            colors=scene.colors.numpy(),
            view=tracks.view.numpy(),
            point=tracks.point.numpy(),
            pixel=tracks.pixel.numpy(),
            descriptor=tracks.descriptor.numpy(),
        )
    document = {
        "format": FORMAT,
        "names": scene.names,
        "lenses": [order.index(id(camera)) for camera in scene.cameras],
        "world_from_cam": [_encode_pose(pose) for pose in scene.poses],
        "reasons": scene.reasons,
        "notes": scene.notes,
        "guessed": scene.guessed,
        "rig": None if scene.rig is None else _encode_rig(scene.rig),
        "scale": None if scene.scale is None else asdict(scene.scale),
        "agreement": None if scene.agreement is None else asdict(scene.agreement),
    }
    write_json(folder / "scene.json", document)


def load_scene(folder: Path) -> SparseScene:
    """Read a scene; ValueError in one line if the folder holds none."""
    try:
        document = json.loads((folder / "scene.json").read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise ValueError(f"scene.json is of format {document.get('format')!r}, not {FORMAT!r}")
        lenses = [named.camera for named in read_cameras(folder / "lenses.json")]
        with np.load(folder / "tracks.npz", allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        return _decode_scene(document, lenses, arrays)
    except (OSError, KeyError, TypeError, IndexError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder}: no sparse scene that can be read ({reason})") from None


def _decode_scene(
    document: dict[str, Any], lenses: list[Camera], arrays: dict[str, torch.Tensor]
) -> SparseScene:
    agreement, rig = document["agreement"], document["rig"]
    if agreement is not None:
        agreement = PoseAgreement(**agreement | {"view_shares": tuple(agreement["view_shares"])})
    return SparseScene(
        names=tuple(document["names"]),
        cameras=tuple(lenses[index] for index in document["lenses"]),
        poses=tuple(_decode_pose(rows) for rows in document["world_from_cam"]),
        reasons=tuple(document["reasons"]),
        points=arrays["points"],
        colors=arrays["colors"],
        tracks=Tracks(arrays["view"], arrays["point"], arrays["pixel"], arrays["descriptor"]),
        rig=None if rig is None else _decode_rig(rig),
        scale=None if document["scale"] is None else ScaleEstimate(**document["scale"]),
        agreement=agreement,
        notes=tuple(document["notes"]),
        guessed=tuple(document.get("guessed", ())),
    )


def _encode_rig(rig: Rig) -> dict[str, Any]:
    mounts = {label: _encode_pose(pose) for label, pose in rig.rig_from_cam.items()}
    return {"rig_from_cam": mounts, "places": rig.places}


def _decode_rig(document: dict[str, Any]) -> Rig:
    mounts = {label: Pose(_decode_matrix(rows)) for label, rows in document["rig_from_cam"].items()}
    places = [None if place is None else (place[0], place[1]) for place in document["places"]]
    return Rig(mounts, tuple(places))


def _encode_pose(pose: Pose | None) -> list[list[float]] | None:
    return None if pose is None else pose.world_from_cam.double().tolist()


def _decode_pose(rows: list[list[float]] | None) -> Pose | None:
    return None if rows is None else Pose(_decode_matrix(rows))


def _decode_matrix(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)
