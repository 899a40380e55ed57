"""A reconstruction and its folder.

FOLDER/cameras.json          every view's camera (true model, original pixels), pose and where its calibration is from
FOLDER/images/NAME           the photographs, as their cameras see them, 8 bits
FOLDER/depth/NAME.npz        ray_depth, z_depth, confidence (float32), valid, at the resolution at which depth was
                             estimated (`--depth-size full`: that of the photograph); expected_error, relative,
                             where it is known; filled where depth was filled in;
                             pose_guessed where the pose is a network's;
                             true_world_from_cam where known
FOLDER/result.json           written last: unit, metrics, settings, notes. Without it the folder is unfinished.

Every file is written atomically. An unfinished folder is read with the views that it has. Names of views keep their
sub-folders; a name that leads out of the folder is refused.
"""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result_paths import get_depth_path, get_image_path
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.formats.documents import read_json_object
from g_ray.geometry.geodesy import Place
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.media.view import Image, View, store_image
from g_ray.runtime.files import atomic_path, drop_not_finite, write_json
from g_ray.runtime.out_folder import MARKER, RESULT, UNFINISHED, claim_out, read_mark

if TYPE_CHECKING:
    from g_ray.export.export_options import ExportOptions

Unit = Literal["metre", "unknown"]
CAMERAS = "cameras.json"
FORMAT, VERSION = "g-ray-result", 1
GROUPS_FORMAT = "g-ray-groups"
"""Of the result.json above the folders of groups that are not connected with one another."""


class StoredViews(Sequence):
    """Views in a folder; each is read from disk whenever it is used, so that hundreds need no memory.

    Not Sequence[ReconstructedView]: run-time type checks would then read one.
    """

    def __init__(self, folder: Path, cameras: Sequence[View]) -> None:
        self.folder, self.cameras = folder, tuple(cameras)

    def __len__(self) -> int:
        return len(self.cameras)

    def __iter__(self) -> Iterator[ReconstructedView]:
        return (_read_view(self.folder, view) for view in self.cameras)

    @overload
    def __getitem__(self, index: int) -> ReconstructedView: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredViews": ...
    def __getitem__(self, index: int | slice) -> "ReconstructedView | StoredViews":
        if isinstance(index, slice):
            return StoredViews(self.folder, self.cameras[index])
        return _read_view(self.folder, self.cameras[index])


@dataclass(frozen=True, eq=False)
class FeatureTracks:
    """Points of structure from motion, and where they were detected in the photographs."""

    positions: Float[np.ndarray, "point 3"]
    colors: UInt8[np.ndarray, "point 3"]
    view: Int[np.ndarray, "observation"]
    """Index of the view of each observation."""
    point: Int[np.ndarray, "observation"]
    pixels: Float[np.ndarray, "observation 2"]
    """Pixel coordinates in the photograph, from its top-left corner."""
    errors_px: Float[np.ndarray, "point"] | None = None
    """Mean reprojection error of each point."""

    def transform(self, similarity: Similarity) -> "FeatureTracks":
        """Return the tracks in another world."""
        moved = similarity.apply(torch.from_numpy(self.positions)).numpy()
        return replace(self, positions=moved)


def group_reasons(reasons: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Group names by the reason that each has, so that a note names a kind of problem once.

    What a reason has in parentheses is about one name, and is kept where no other shares the reason.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, reason in reasons:
        groups.setdefault(reason.split(" (")[0], []).append((name, reason))
    return [
        (
            ", ".join(name for name, _ in members[:3])
            + (f", … ({len(members)})" if len(members) > 3 else ""),
            members[0][1] if len(members) == 1 else kind,
        )
        for kind, members in groups.items()
    ]


Page = Callable[["Reconstruction", Any], object]
"""Writes one more file from a saved reconstruction and its `PointCloud`, e.g. `write_report` of the viewer."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """All views of a scene in one world. Views of a folder are read from disk when they are used."""

    views: tuple[ReconstructedView, ...] | StoredViews
    folder: Path | None = None
    """Where it is saved; None: not yet."""
    unit: Unit = "unknown"
    metrics: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What users should know, e.g. views that a format cannot hold."""
    quality: dict[str, Any] = field(default_factory=dict)
    """Quality figures, and under "verdict" readable sentences (`g_ray.reconstruction.verdict`)."""
    tracks: FeatureTracks | None = None
    """Feature tracks for the COLMAP export; without them points of the depth maps are exported."""
    cloud: Any = None
    """A `PointCloud` of points that several views agree on; None: the pixels of the views. Not stored."""
    origin: Place | None = None
    """Place of the world's origin, with x east, y north and z up, for `scene.geo`; None: not to be written."""
    page: Page | None = None
    """Called by `save`; here because the viewer, which makes the page, imports this package."""

    @property
    def saved_folder(self) -> Path:
        """The folder with its files; ValueError if it was not saved."""
        if self.folder is None:
            raise ValueError("the reconstruction has no folder yet: call save(folder, images)")
        return self.folder

    @property
    def finished(self) -> bool:
        """Whether all files are in its folder."""
        return self.folder is not None and (self.folder / RESULT).is_file()

    def cameras(self) -> list[View]:
        """Return the cameras of all views with their poses, without reading any depth."""
        if isinstance(self.views, StoredViews):
            return list(self.views.cameras)
        return [_to_calibrated(view) for view in self.views]

    def poses(self) -> list[Pose]:
        return [camera.pose for camera in self.cameras() if camera.pose is not None]

    def get_image_path(self, name: str) -> Path:
        """Return the path of a view's photograph in the folder."""
        return get_image_path(self.saved_folder, name)

    def save(
        self,
        folder: str | os.PathLike[str],
        images: Sequence[Image],
        options: "ExportOptions | None" = None,
        settings: dict[str, Any] | None = None,
    ) -> "Reconstruction":
        """Write every file that `g-ray reconstruct` writes; returns the reconstruction as it is stored.

        ValueError if the folder holds files that no reconstruction made.
        """
        from g_ray.export.write_files import write_reconstruction  # which imports this module

        folder = Path(folder)
        marks = (read_mark(folder / name) for name in (RESULT, UNFINISHED))
        claim_out(folder, "reconstruct", ours=any(mark is not None for mark in marks))
        settings = self.settings if settings is None else settings
        stored = replace(self, folder=folder, settings=settings)
        written = write_reconstruction(stored, images, options, self.page)
        (folder / MARKER).unlink(missing_ok=True)  # from here on result.json marks the folder
        return written


def _to_calibrated(view: ReconstructedView) -> View:
    return View(view.name, view.original_camera, view.pose, view.calibration)


# Writing


def write_views(
    folder: str | os.PathLike[str], views: Iterable[ReconstructedView], images: Iterable[Image]
) -> None:
    """Write photographs and depth of views, then cameras.json with these and the views that it has already.

    Can be called for every part of a long run: what it has written can be read. The folder counts as unfinished until
    `finish_reconstruction`.
    """
    folder = Path(folder)
    (folder / RESULT).unlink(missing_ok=True)
    written = {stored.name: stored for stored in _read_existing_cameras(folder)}
    for view, image in zip(views, images, strict=True):
        store_image(image, get_image_path(folder, view.name), view.original_camera)
        _write_depth(get_depth_path(folder, view.name), view)
        written[view.name] = _to_calibrated(view)
    write_cameras(folder / CAMERAS, list(written.values()))


def finish_reconstruction(reconstruction: Reconstruction) -> None:
    """Write result.json last: its presence means that all other files are complete."""
    folder, cameras = reconstruction.saved_folder, reconstruction.cameras()
    content = {
        "format": FORMAT,
        "version": VERSION,
        "unit": reconstruction.unit,
        "views": [camera.name for camera in cameras],
        "quality": reconstruction.quality,
        "metrics": reconstruction.metrics,
        "settings": reconstruction.settings,
        "notes": list(reconstruction.notes),
    }
    # Once more, in the order of the views and without views that an earlier run has left.
    write_cameras(folder / CAMERAS, cameras)
    write_json(folder / RESULT, drop_not_finite(content))


def _read_existing_cameras(folder: Path) -> list[View]:
    return read_cameras(folder / CAMERAS) if (folder / CAMERAS).is_file() else []


def _write_depth(path: Path, view: ReconstructedView) -> None:
    arrays = {
        "ray_depth": view.ray_depth.to(torch.float32),
        "z_depth": view.z_depth().to(torch.float32),
        "confidence": view.confidence.to(torch.float32),
        "valid": view.valid,
    }
    if view.expected_error is not None:
        arrays["expected_error"] = view.expected_error.to(torch.float32)
    if view.filled is not None:
        arrays["filled"] = view.filled
    if view.pose_guessed:
        arrays["pose_guessed"] = torch.tensor(True)
    if view.true_pose is not None:
        arrays["true_world_from_cam"] = view.true_pose.world_from_cam.double()
    with (
        atomic_path(path) as scratch,
        zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        for name, tensor in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, tensor.numpy(force=True), allow_pickle=False)


# Reading


def read_reconstruction(folder: str | os.PathLike[str]) -> Reconstruction:
    """Read the folder of a reconstruction, finished or not; ValueError in one line if it is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give one that g-ray reconstruct has written")
    if (read_mark(folder / RESULT) or {}).get("format") == GROUPS_FORMAT:
        raise ValueError(
            f"{folder} holds groups that nothing connects: give one of them, as {folder}/group-1"
        )
    if not (folder / CAMERAS).is_file() or not (folder / "depth").is_dir():
        raise ValueError(
            f"{folder} is no reconstruction: it needs {CAMERAS} and depth/, as g-ray reconstruct writes"
        )
    cameras = read_cameras(folder / CAMERAS)
    for view in cameras:
        get_image_path(folder, view.name)
    if (folder / RESULT).is_file():
        return _read_finished(folder, cameras)
    finished = [
        view for view in cameras if view.pose is not None and get_depth_path(folder, view.name).is_file()
    ]
    if not finished:
        raise ValueError(f"{folder}: no view is finished yet; run g-ray reconstruct again")
    return Reconstruction(StoredViews(folder, finished), folder)


def _read_finished(folder: Path, cameras: list[View]) -> Reconstruction:
    path = folder / RESULT
    try:
        content = read_json_object(path, "a result")
        if (
            content["format"] != FORMAT
            or content["version"] != VERSION
            or content["unit"] not in get_args(Unit)
        ):
            raise ValueError(f"it must be {FORMAT} version {VERSION}")
        names, notes = content["views"], tuple(content["notes"])
        metrics, settings = dict(content["metrics"]), dict(content["settings"])
        quality = dict(content.get("quality", {}))
        if not all(isinstance(note, str) for note in notes):
            raise ValueError("notes must be sentences")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({str(error)[:200]}); run g-ray reconstruct again") from None
    if names != [view.name for view in cameras]:
        raise ValueError(f"{path} and {CAMERAS} name different views; run g-ray reconstruct again")
    missing = [name for name in names if not get_depth_path(folder, name).is_file()]
    if missing:
        raise ValueError(f"{get_depth_path(folder, missing[0])} is missing; run g-ray reconstruct again")
    return Reconstruction(
        StoredViews(folder, cameras), folder, content["unit"], metrics, settings, notes, quality
    )


def _check_maps(depth: Tensor, confidence: Tensor, valid: Tensor) -> None:
    """Check that maps of a file are what they are called: floats of one size, finite where they are valid."""
    floats = depth.is_floating_point() and confidence.is_floating_point() and valid.dtype == torch.bool
    if (
        not floats
        or depth.ndim != 2
        or not depth.shape == confidence.shape == valid.shape
        or not depth.numel()
    ):
        raise ValueError(
            "ray_depth, confidence and valid must be maps of one size, two of floats and one of bools"
        )
    if not bool(torch.isfinite(depth[valid]).all() and torch.isfinite(confidence[valid]).all()):
        raise ValueError("depth or confidence of valid pixels is not finite")
    if not bool((depth[valid] > 0).all()):
        raise ValueError("depth of valid pixels is not above 0")


def _read_view(folder: Path, view: View) -> ReconstructedView:
    path = get_depth_path(folder, view.name)
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz")
        with np.load(path, allow_pickle=False) as stored:
            depth, confidence, valid = (
                torch.from_numpy(stored[key]) for key in ("ray_depth", "confidence", "valid")
            )
            true, filled = stored.get("true_world_from_cam"), stored.get("filled")
            guessed = bool(stored.get("pose_guessed", False))
            error = stored.get("expected_error")
        error = None if error is None else torch.from_numpy(error)
        _check_maps(depth, confidence, valid)
        if error is not None:
            _check_maps(depth, error, valid)
        if view.pose is None:
            raise ValueError(f"{CAMERAS} has no pose for it")
        return ReconstructedView(
            view.name,
            view.camera.resize(depth.shape[1], depth.shape[0]),
            view.pose,
            depth,
            confidence,
            valid,
            view.source or "unknown",
            None if true is None else Pose(torch.from_numpy(true)),
            view.camera,
            None if filled is None else torch.from_numpy(filled),
            guessed,
            error,
        )
    except Exception as error:  # damaged archives make numpy, zipfile and zlib raise many kinds
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read ({reason}); run g-ray reconstruct again") from None
