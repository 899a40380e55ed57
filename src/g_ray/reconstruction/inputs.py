"""Inputs of `g-ray reconstruct` and `g-ray synthesize`: photographs with their cameras, known geometry, targets.

Both commands take photographs and cameras through `read_views`. Everything that was given is used, reported, or refused
in one line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from g_ray.calibration.assign import assign_cameras, find_calibration
from g_ray.cameras.camera import Camera
from g_ray.export.result import read_reconstruction
from g_ray.formats.calibration_source import rescale_camera
from g_ray.formats.cameras_json import CamerasJsonSource, read_cameras
from g_ray.formats.documents import ParsedFile
from g_ray.formats.gps import read_places
from g_ray.formats.masks import find_masks
from g_ray.formats.posed_scene import PosedScene
from g_ray.geometry.geodesy import Place
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo, check_photos, find_photos, orient_photo
from g_ray.media.view import View
from g_ray.reconstruction.gps_alignment import MIN_PLACES
from g_ray.reconstruction.known_lengths import (
    End,
    KnownBoard,
    find_board,
    list_views,
    parse_end,
    renumber_end,
)
from g_ray.reconstruction.score import read_truth
from g_ray.sfm.rig import Rig, read_rig_cameras

Report = Callable[[str], None]
GpsUse = Literal["use", "ignore"]


@dataclass(frozen=True)
class PhotoOptions:
    """Which photographs are taken, and how their pixels and cameras are brought together."""

    every: int | None = None
    """Take every n-th frame of a video."""
    frames: int | None = None
    """Take this many frames of a video, evenly spread."""
    upright: bool = True
    """Turn pixels upright by EXIF instead of taking them as stored."""
    resize_calibration: bool = False
    """Scale calibrations that were made at another size of the same photograph."""
    masks: Path | None = None
    """Folder of masks, named as the photographs."""
    min_photos: int = 2


def read_views(
    images: Sequence[str], calibrations: Sequence[str], options: PhotoOptions, report: Report
) -> list[View]:
    """Find photographs and assign their cameras, in natural order of their names.

    Without calibrations, one found next to the photographs is used, or it is estimated (`find_calibration`).
    """
    photos = find_photos(
        images, every=options.every, frames=options.frames, upright=options.upright, note=report
    )
    if len(photos) < options.min_photos:
        raise ValueError(
            f"one photograph ({photos[0].name}) has no parallax, which stereo measures depth by: give two or more from "
            "different places, let a network guess (--model network), or add it to a finished result with --into"
        )
    check_photos(photos)
    calibrations = calibrations or [find_calibration(photos, report)]
    views = assign_cameras(photos, calibrations, resize=options.resize_calibration, report=report)
    if options.masks is None:
        masked = sum(view.mask is not None for view in views)
        if masked:
            report(
                f"{masked} photographs have masks that their calibration names (mask_path): these are used"
            )
        return views
    # Photographs are turned by the time that they have cameras: masks must follow them.
    turned = [view.image for view in views if isinstance(view.image, Photo)]
    masks = find_masks(options.masks, turned, report)
    return [replace(view, mask=mask) for view, mask in zip(views, masks, strict=True)]


# What users know about a scene in addition to its cameras


@dataclass(frozen=True)
class KnownGeometry:
    """What is known about a scene in addition to its cameras."""

    poses: Sequence[Pose | None] = ()
    """`world_from_cam` of views, in one world; the scene is aligned to them and scored with them."""
    metric: bool = False
    """The known poses are in meters."""
    distance: tuple[End, End, float] | None = None
    """Two views or points, and the distance between these cameras or points in meters."""
    board: KnownBoard | None = None
    """A chessboard of known size in the photographs."""
    truth: Sequence[View | None] = ()
    """Known depth of views (`read_truth`); the scene is scored with it."""

    keep_poses: bool = True
    """Models that use poses keep the known ones; otherwise the scene is aligned to them."""
    estimated: bool = False
    """The poses were estimated from these photographs: they fix neither a world nor a unit."""
    places: Sequence[Place | None] = ()
    """Where GPS says that the photographs were taken."""
    georeference: bool = False
    """Write where on the earth the result is."""

    def count_poses(self) -> int:
        return sum(pose is not None for pose in self.poses)

    def select(self, views: Sequence[int]) -> "KnownGeometry":
        """Return what is known of some views alone; fewer than two poses or true views are left out."""
        poses = [self.poses[view] for view in views] if self.poses else []
        truth = [self.truth[view] for view in views] if self.truth else []
        enough = sum(pose is not None for pose in poses) >= 2
        scored = sum(view is not None for view in truth) >= 2
        distance = None
        if self.distance is not None:
            one, other = (renumber_end(end, views) for end in self.distance[:2])
            distance = None if one is None or other is None else (one, other, self.distance[2])
        return replace(
            self,
            poses=poses if enough else (),
            metric=self.metric and enough,
            distance=distance,
            board=None if self.board is None else self.board.select(views),
            truth=truth if scored else (),
            places=[self.places[view] for view in views] if self.places else (),
        )


def collect_known(
    views: Sequence[View],
    *,
    poses: Literal["given", "align", "ignore"],
    metric: bool,
    distance: tuple[str, str, float] | None,
    truth: Path | None,
    report: Report,
    board: str | None = None,
    gps: GpsUse = "use",
    georeference: bool = False,
) -> KnownGeometry:
    """Collect what the calibration and the user know of a scene.

    `distance` names two photographs, or points in them, and the meters between; `board` is the size of a chessboard in
    the photographs; `truth` is a scene folder with depth.
    """
    known = [view.pose for view in views]
    count = sum(pose is not None for pose in known)
    estimated = any(view.is_estimated for view in views if view.pose is not None)
    if metric and (count < 2 or estimated):
        problem = "they are estimated" if estimated else f"{count} of {len(views)} views have one"
        raise ValueError(
            f"--metric means that known poses are in meters, but {problem}: "
            "give a calibration with poses, or leave it out"
        )
    kind = "estimated" if estimated else "known"
    if poses == "ignore":
        known = []
    elif count == 1:
        report(f"one {kind} pose cannot fix a scene and is not used")
        known = []
    elif count and poses == "given":
        report(f"{count} {kind} poses are kept (--poses align estimates poses and compares them)")
    elif count:
        report(
            f"{count} {kind} poses: the scene is aligned to them and scored with them (--poses ignore: not)"
        )
    pair = None if distance is None else _find_distance(distance, [view.name for view in views])
    if pair is not None and sum(pose is not None for pose in known) >= 2:
        if not estimated:
            raise ValueError(
                "--distance gives a scale, and known poses have one already: leave it out, or add --poses ignore"
            )
        _check_estimated(known, pair, views)
    seen = None if board is None else find_board(views, board)
    if seen is not None:
        report(f"the board is seen in {seen.count_views()} of {len(views)} photographs")
    true_views = [] if truth is None else _read_truth_of_views(truth, views, report)
    return KnownGeometry(
        known,
        metric,
        pair,
        seen,
        true_views,
        keep_poses=poses == "given",
        estimated=estimated,
        places=_find_places(views, gps, georeference, report),
        georeference=georeference,
    )


def read_finished_views(folder: Path) -> tuple[list[View], KnownGeometry]:
    """Read the views of a finished result, with their poses as known ones, to add photographs to them."""
    result = read_reconstruction(folder)
    if not result.finished:
        raise ValueError(f"{folder} is not finished: repeat its g-ray reconstruct command first")
    views = []
    for view in result.cameras():
        photo = Photo.from_file(result.get_image_path(view.name), view.name, upright=False)
        views.append(replace(view, image=photo))
    return views, KnownGeometry([view.pose for view in views], metric=result.unit == "metre")


def join_views(
    old: Sequence[View], known: KnownGeometry, new: Sequence[View], report: Report
) -> tuple[list[View], KnownGeometry]:
    """Put new photographs, whose poses are to be found, behind the views of a finished result."""
    names = {view.name for view in old}
    twice = [view.name for view in new if view.name in names]
    if twice:
        raise ValueError(f"--into has a view named {twice[0]} already: rename the photograph or leave it out")
    if any(view.pose is not None for view in new):
        report("poses of the further photographs are not used: they are localized in the finished result")
    views = [*old, *(replace(view, pose=None) for view in new)]
    return views, replace(known, poses=[*known.poses, *(None for _ in new)])


def read_rig(source: str, views: Sequence[View]) -> Rig:
    """Read where cameras stand on a rig, and assign the photographs to them by their names."""
    path = Path(source)
    if not path.is_file():
        raise ValueError(
            f"--rig {source}: no such file; give COLMAP's rig_config.json, a Kalibr camchain or Aria's calibration"
        )
    return Rig.from_names([view.name for view in views], read_rig_cameras(path))


def _find_distance(distance: tuple[str, str, float], names: list[str]) -> tuple[End, End, float]:
    first, second, length = distance
    if first == second:
        raise ValueError(f"--distance names {first} twice: give two photographs, or two points")
    return parse_end(first, names), parse_end(second, names), length


def _check_estimated(
    poses: Sequence[Pose | None], pair: tuple[End, End, float], views: Sequence[View]
) -> None:
    """Raise ValueError if a view that a distance names has no pose among the estimated ones."""
    for number in (view for end in pair[:2] for view in list_views(end)):
        if poses[number] is None:
            raise ValueError(
                f"--distance names {views[number].name}, whose pose could not be estimated: name another one"
            )


def _find_places(
    views: Sequence[View], gps: GpsUse, georeference: bool, report: Report
) -> Sequence[Place | None]:
    """Read where photographs were taken; ValueError if a georeference needs it and it is not there."""
    if gps == "ignore":
        return ()
    try:
        places = read_places(views, report)
        count = sum(place is not None for place in places)
        if georeference and count < MIN_PLACES:
            raise ValueError(
                f"with altitude is in {count} of {len(views)} photographs, and {MIN_PLACES} are needed"
            )
    except ValueError as error:
        if georeference:
            raise ValueError(
                f"--georeference: GPS {error}; leave it out, or add GPS to the photographs"
            ) from None
        report(f"GPS {error}: it is not used")
        return ()
    if count:
        report(f"{count} photographs have GPS, which gives scale, heading and level (--gps ignore: not)")
    return places


def _read_truth_of_views(folder: Path, views: Sequence[View], report: Report) -> list[View | None]:
    # Depth maps are made for stored pixels, and are not turned with the photographs.
    turned = [view.name for view in views if isinstance(view.image, Photo) and view.image.is_turned]
    if turned:
        raise ValueError(
            f"--truth is about pixels as they are stored, but {turned[0]} is turned upright: add --as-stored"
        )
    true_views = read_truth(folder, [view.name for view in views], [view.camera for view in views])
    report(f"{folder}: knows depth of {sum(view is not None for view in true_views)} of {len(views)} views")
    return true_views


# Contexts and targets of novel-view synthesis


def read_contexts(
    photos: Sequence[str],
    calibration: Path | None,
    scene: PosedScene | None,
    report: Report,
    upright: bool = True,
) -> list[View]:
    """Read photographs with camera and pose, from a calibration or a scene folder, in the order given."""
    twice = next((photo for photo in photos if photos.count(photo) > 1), None)
    if twice is not None:
        raise ValueError(f"--context names {twice} twice: give every photograph once")
    if scene is not None:
        indices = [scene.find_index(photo) for photo in photos]
        return [scene.views[index] for index in indices]
    assert calibration is not None
    paths = [Path(photo) for photo in photos]
    if CamerasJsonSource.recognizes(ParsedFile(calibration)):
        cameras = _match_cameras(paths, read_cameras(calibration), calibration, report)
        views = [
            _attach_photo(camera, path, calibration, upright)
            for camera, path in zip(cameras, paths, strict=True)
        ]
    else:
        found = [Photo.from_file(path, path.name, upright) for path in paths]
        views = assign_cameras(found, str(calibration), report=report)
    for path, view in zip(paths, views, strict=True):
        if view.pose is None:
            raise ValueError(f"{calibration}: camera {view.name!r} of {path} has no pose; add world_from_cam")
    return views


def _match_cameras(paths: Sequence[Path], cameras: Sequence[View], file: Path, report: Report) -> list[View]:
    """Match cameras by the names of photographs, with or without suffix; in order if no name fits and counts agree."""
    by_name = {camera.name: camera for camera in cameras}
    matches = [by_name.get(path.name) or by_name.get(path.stem) for path in paths]
    missing = [path for path, camera in zip(paths, matches, strict=True) if camera is None]
    if not missing:
        report(f"cameras: by name, {len(paths)} of the {len(cameras)} in {file}")
        return [camera for camera in matches if camera is not None]
    if len(missing) == len(paths) == len(cameras):
        pairs = ", ".join(f"{path.name} = {one.name}" for path, one in zip(paths, cameras, strict=True))
        report(f"cameras: no name in {file} is that of a photograph, so in order: {pairs}")
        return list(cameras)
    raise ValueError(
        f"{missing[0]} has no camera in {file}, which has {', '.join(by_name) or 'none'}: "
        "name cameras as the photographs, or give as many in the same order"
    )


def _attach_photo(view: View, path: Path, file: Path, upright: bool) -> View:
    photo = Photo.from_file(path, path.name, upright)
    photo = orient_photo(photo, (view.camera.width, view.camera.height))
    try:
        return replace(view, camera=rescale_camera(view.camera, photo, resize=False), image=photo)
    except ValueError as error:
        raise ValueError(f"{file}: camera {view.name!r}: {error}") from None


def read_targets(target: str, scene: PosedScene | None) -> list[View]:
    """Read cameras with poses, from a file, or those of one image of the scene."""
    cameras = _read_target_cameras(target, scene)
    without = next((camera.name for camera in cameras if camera.pose is None), None)
    if without is not None:
        raise ValueError(f"{target}: target {without!r} has no pose; add world_from_cam")
    return cameras


def choose_lens(target: str | None, scene: PosedScene | None, default: Camera) -> Camera:
    """Return the lens of a camera path: the first context's, or that of the one camera of a file, without pose."""
    if target is None:
        return default
    cameras = _read_target_cameras(target, scene)
    if len(cameras) != 1 or (Path(target).suffix == ".json" and cameras[0].pose is not None):
        raise ValueError(f"{target}: with --path it gives the lens alone: one camera, without world_from_cam")
    return cameras[0].camera


def _read_target_cameras(target: str, scene: PosedScene | None) -> list[View]:
    if Path(target).suffix == ".json":
        cameras = read_cameras(target)
        if not cameras:
            raise ValueError(f"{target} has no cameras: add one")
        return cameras
    if scene is None:
        raise ValueError(f"--target {target}: give a .json file with cameras (image names go with --scene)")
    return [replace(scene.views[scene.find_index(target)], image=None)]
