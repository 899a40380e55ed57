"""The result of structure from motion: poses, sparse points and their tracks, with errors in the true lens."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.runtime.files import atomic_path, write_json
from g_ray.sfm.rig import Rig


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations: point `point` is seen in view `view` at `pixel` of the original image (corner origin)."""

    view: Int[Tensor, "observation"]
    point: Int[Tensor, "observation"]
    pixel: Float[Tensor, "observation 2"]
    descriptor: UInt8[Tensor, "observation 128"]

    def __len__(self) -> int:
        return len(self.view)

    def select(self, keep: Tensor) -> "Tracks":
        """Keep some observations, by a mask or by indices."""
        return Tracks(self.view[keep], self.point[keep], self.pixel[keep], self.descriptor[keep])

    @staticmethod
    def concatenate(parts: "Sequence[Tracks]") -> "Tracks":
        names = ("view", "point", "pixel", "descriptor")
        return Tracks(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    @staticmethod
    def make_empty() -> "Tracks":
        none = torch.zeros(0, dtype=torch.int64)
        return Tracks(
            none,
            none,
            torch.zeros(0, 2, dtype=torch.float64),
            torch.zeros(0, 128, dtype=torch.uint8),
        )


@dataclass(frozen=True)
class PoseAgreement:
    """How well given poses explain the pictures. Errors are in pixels of the working images."""

    matches: int
    """Matches that agree with some relative pose of their pair."""
    match_share: float
    """Share of the matches within the error limit of the given poses' epipolar lines, in front of both cameras."""
    match_median_px: float
    """Median distance to the epipolar line."""
    observations: int
    """Observations in tracks: features that are connected by matches."""
    track_share: float
    """Share of the observations within the error limit of the point that best fits the track and the given poses."""
    track_median_px: float
    """Median reprojection error of these points."""
    view_shares: tuple[float, ...]
    """`track_share` of each view; NaN without observations."""

    @property
    def share(self) -> float:
        """The smaller of both shares."""
        return min(self.match_share, self.track_share)


@dataclass(frozen=True, eq=False)
class SparseScene:
    """Cameras with poses in one world and sparse points with their tracks.

    Poses are float64 `world_from_cam`. A view without a pose has a reason in `reasons`.
    """

    names: tuple[str, ...]
    cameras: tuple[Camera, ...]
    poses: tuple[Pose | None, ...]
    reasons: tuple[str | None, ...]
    points: Float[Tensor, "point 3"]
    colors: UInt8[Tensor, "point 3"]
    tracks: Tracks
    rig: Rig | None = None
    scale: MetricScale | None = None
    agreement: PoseAgreement | None = None
    notes: tuple[str, ...] = ()
    guessed: tuple[int, ...] = ()
    """Views whose poses started as guesses from elsewhere, because matching could not place them."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Views without a pose that match one another, the largest group first: scenes of their own."""

    @property
    def registered(self) -> tuple[int, ...]:
        """Indices of the views that have a pose."""
        return tuple(index for index, pose in enumerate(self.poses) if pose is not None)

    def stack_poses(self) -> Pose:
        """Poses of the registered views, in their order."""
        poses = [pose for pose in self.poses if pose is not None]
        if not poses:
            raise ValueError("no view of this scene has a pose")
        return Pose(torch.stack([pose.world_from_cam for pose in poses]))

    def compute_errors_px(self) -> Float[Tensor, "observation"]:
        """Distance in the original image between each observation and its projected point, through the true lens.

        Infinite where the lens does not image the point.
        """
        errors = torch.full((len(self.tracks),), torch.inf, dtype=torch.float64)
        for index in self.registered:
            rows = (self.tracks.view == index).nonzero()[:, 0]
            if len(rows):
                points = self.points[self.tracks.point[rows]]
                errors[rows] = measure_reprojection_px(
                    self.cameras[index], _get_pose(self.poses[index]), points, self.tracks.pixel[rows]
                )
        return errors

    def count_observations(self) -> Int[Tensor, "view"]:
        """Return the number of observations in each view."""
        return torch.bincount(self.tracks.view, minlength=len(self.names))

    def compute_statistics(self) -> dict[str, float]:
        """Compute quality figures of the scene."""
        errors = self.compute_errors_px()
        points = max(1, len(self.points))
        return {
            "views": float(len(self.names)),
            "registered": float(len(self.registered)),
            "points": float(len(self.points)),
            "observations": float(len(self.tracks)),
            "mean_track_length": len(self.tracks) / points,
            "mean_error_px": float(errors.mean()) if len(errors) else float("nan"),
            "median_error_px": float(errors.median()) if len(errors) else float("nan"),
        }

    def select(self, views: Sequence[int]) -> "SparseScene":
        """Return the scene of some views, in their order; all that have a pose must be among them."""
        assert set(self.registered) <= set(views), "tracks of a view that is left out would be lost"
        number = torch.full((len(self.names),), -1)
        number[list(views)] = torch.arange(len(views))
        agreement = self.agreement
        if agreement is not None:
            agreement = replace(agreement, view_shares=tuple(agreement.view_shares[view] for view in views))
        return replace(
            self,
            names=tuple(self.names[view] for view in views),
            cameras=tuple(self.cameras[view] for view in views),
            poses=tuple(self.poses[view] for view in views),
            reasons=tuple(self.reasons[view] for view in views),
            tracks=replace(self.tracks, view=number[self.tracks.view]),
            rig=None if self.rig is None else self.rig.select(views),
            agreement=agreement,
            guessed=tuple(int(number[view]) for view in self.guessed),
            groups=(),
        )

    def add_notes(self, *notes: str) -> "SparseScene":
        return replace(self, notes=(*self.notes, *notes))


def measure_reprojection_px(
    camera: Camera,
    pose: Pose,
    points: Float[Tensor, "n 3"],
    pixels: Float[Tensor, "n 2"],
) -> Float[Tensor, "n"]:
    """Distance between pixels and projected world points; infinite where the lens does not image a point."""
    projected, valid = camera.project(pose.inverse().apply(points))
    offset = projected - pixels
    if isinstance(camera, Equirectangular):
        # Left and right border of a panorama are the same meridian.
        turn = camera.parameter("fx") * 2 * torch.pi
        offset = torch.stack([torch.remainder(offset[:, 0] + turn / 2, turn) - turn / 2, offset[:, 1]], -1)
    return torch.where(valid, torch.linalg.vector_norm(offset, dim=-1), torch.inf)


def drop_weak_tracks(scene: SparseScene, keep: Tensor) -> SparseScene:
    """Keep the observations of a mask, and of the points those with two views or more."""
    tracks = scene.tracks.select(keep)
    seen = torch.bincount(tracks.point, minlength=len(scene.points))
    strong = seen >= 2
    tracks = tracks.select(strong[tracks.point])
    number = torch.cumsum(strong, 0) - 1
    tracks = replace(tracks, point=number[tracks.point])
    return replace(scene, points=scene.points[strong], colors=scene.colors[strong], tracks=tracks)


def _get_pose(pose: Pose | None) -> Pose:
    assert pose is not None
    return pose


# A scene on disk
#
# FOLDER/lenses.json   the distinct lenses, as a cameras.json
# FOLDER/scene.json    names, lens and pose of every view, reasons, notes, rig and figures
# FOLDER/tracks.npz    points, colors and observations with their descriptors


FORMAT = "g-ray-sparse-scene"


def save_scene(scene: SparseScene, folder: Path) -> None:
    """Write a scene; the file that `load_scene` looks for is written last."""
    # Views that share a camera object share a lens: it is written once, so that they share it again when loaded.
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
        "groups": scene.groups,
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
    except (OSError, KeyError, TypeError, IndexError, ValueError, EOFError, zipfile.BadZipFile) as error:
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
        scale=None if document["scale"] is None else MetricScale(**document["scale"]),
        agreement=agreement,
        notes=tuple(document["notes"]),
        guessed=tuple(document.get("guessed", ())),
        groups=tuple(tuple(group) for group in document.get("groups", ())),
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
