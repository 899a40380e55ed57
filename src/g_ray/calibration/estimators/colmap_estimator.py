"""Calibrate a whole set of photos with COLMAP: features, matches, mapping, on the CPU.

Photos of one device share a camera: those with the same size and the same EXIF device and focal length, or, without
EXIF, with the same size and folder. Photos are turned upright and made smaller first; the cameras are scaled back.
A few photos leave focal length, distortion and depth open to each other: where the outcome is no likely lens, the
mapping starts again from other focal lengths, with and without distortion.
"""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from g_ray.calibration.estimators.estimator import Estimator, suggest_lens
from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap as camera_of
from g_ray.formats.colmap.colmap_cameras import count_threads
from g_ray.formats.exif import ExifSource, compute_focal_px, read_exif
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.runtime.interruptible import open_thread_pool, run_interruptibly
from g_ray.sfm.features import Features, find_features
from g_ray.sfm.pairs import Pair, choose_further_pairs, choose_pairs
from g_ray.sfm.sfm_options import SMALL_SET, WORKING_SIZE, SfMOptions
from g_ray.sfm.workspace import format_name, read_matched_pairs, write_features

COLMAP_FOCAL = 1.2
"""COLMAP's guess over the longer side."""
FISHEYE_FOCAL = 0.48
"""First guess over the width: 120° across."""
STARTS = (0.6, 0.8, 1.0, 1.2, 1.6)
"""Focal lengths over the longer side: 80° to 35° across."""
LIKELY_FOCAL = (0.3, 4.0)
"""Over the longer side, 118° to 14° across: a lens with more than that is a fisheye or a telescope."""
LIKELY_DISTORTION = 0.5
"""Largest |k| of SIMPLE_RADIAL that photographs have."""


class ColmapEstimator(Estimator):
    """SIMPLE_RADIAL for every device, OPENCV_FISHEYE when asked. Needs a few photos that overlap."""

    NAME = "colmap"
    INSTALL = "pip install 'g-ray[tool]'"

    def __init__(self, fisheye: bool = False, longer: int = WORKING_SIZE, threads: int = -1) -> None:
        super().__init__(fisheye)
        self.longer, self.threads = longer, threads

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        if len(photos) < 2:
            raise ValueError(
                f"{photos[0].name}: estimate:colmap needs two photos or more; use another estimator"
            )
        pycolmap = self.import_package("pycolmap")
        groups = group_by_device(photos)
        with tempfile.TemporaryDirectory(prefix="g-ray-") as folder:
            model = self._run_colmap(pycolmap, groups, Path(folder))
        if model is None:
            return self._take_exif(photos, report)
        views, lost = _collect_views(self, groups, model)
        if lost:
            some = ", ".join(lost[:3]) + (", …" if len(lost) > 3 else "")
            report(f"estimate:colmap: no pose for {len(lost)} of {len(photos)} photos: {some}")
        # A lens of which no photo is registered is not estimated: EXIF is what is left.
        views |= {
            photo.name: view for photo in photos if photo.name not in views and (view := find_exif(photo))
        }
        return [views[photo.name] for photo in photos if photo.name in views]

    def _run_colmap(self, pycolmap: Any, groups: list[list[Photo]], folder: Path) -> Any:
        database = folder / "database.db"
        # A start without a model is not an error; only if all fail is an error raised below.
        pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
        photos = [photo for group in groups for photo in group]
        with open_thread_pool(count_threads(self.threads)) as pool:
            features = list(pool.map(lambda photo: _find_features(pycolmap, photo, self.longer), photos))
        self._write_database(pycolmap, database, groups, features)
        options = SfMOptions()
        self._match(pycolmap, database, choose_pairs(features, options))
        matched, good = read_matched_pairs(pycolmap, database)
        self._match(pycolmap, database, choose_further_pairs(features, matched, good))
        model = self._map(pycolmap, database, folder, len(photos), refine_distortion=True)
        trusted = model is not None and is_likely(model) and 2 * model.num_reg_images() >= len(photos)
        if not trusted and not self.fisheye:
            model = self._try_starts(pycolmap, database, folder, len(photos)) or model
        return model

    def _match(self, pycolmap: Any, database: Path, pairs: Sequence[Pair]) -> None:
        options = pycolmap.FeatureMatchingOptions()
        options.num_threads = self.threads
        names = database.with_name("pairs.txt")
        names.write_text("".join(f"{format_name(i)} {format_name(j)}\n" for i, j in pairs))
        pairing = pycolmap.ImportedPairingOptions()
        pairing.match_list_path = str(names)
        run_interruptibly(
            partial(
                pycolmap.match_image_pairs,
                *(database, options, pairing, pycolmap.TwoViewGeometryOptions(), pycolmap.Device.cpu),
            )
        )

    def _take_exif(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        """Return the cameras of EXIF; ValueError if photos lack it, since nothing was estimated."""
        views = [find_exif(photo) for photo in photos]
        if self.fisheye or not all(views):
            names = ", ".join(photo.name for photo in photos[:2])
            raise ValueError(
                f"estimate:colmap found no model of {names}, …: photos must overlap, show texture and be taken "
                f"from different places; {suggest_lens(self)}"
            )
        report("estimate:colmap: no lens could be estimated, so the focal lengths of EXIF are used")
        return [view for view in views if view is not None]

    def _map(self, pycolmap: Any, database: Path, folder: Path, photos: int, refine_distortion: bool) -> Any:
        """Return the model with the most photos, or None if there is none."""
        options = self._make_mapping_options(pycolmap, photos)
        options.ba_refine_extra_params = refine_distortion
        token = pycolmap.CancellationToken()
        models = run_interruptibly(
            partial(
                pycolmap.incremental_mapping,
                *(database, folder, folder / "models", options),
                cancellation_token=token,
            ),
            token.cancel,
        )
        return max(models.values(), key=lambda model: model.num_reg_images()) if models else None

    def _try_starts(self, pycolmap: Any, database: Path, folder: Path, photos: int) -> Any:
        """Map from several focal lengths; return the likely model with the most photos and observations, if any."""
        likely: list[Any] = []
        for start in STARTS:
            _set_focal_lengths(pycolmap, database, start)
            # The lens with fewer parameters comes first, and stays if distortion explains no more.
            for refine_distortion in (False, True):
                model = self._map(pycolmap, database, folder, photos, refine_distortion)
                if model is not None and is_likely(model):
                    likely.append(model)
        if not likely:
            return None
        return max(likely, key=lambda model: (model.num_reg_images(), model.compute_num_observations()))

    def _write_database(
        self, pycolmap: Any, database: Path, groups: list[list[Photo]], features: Sequence[Features]
    ) -> None:
        """Write a camera per group and a frame per photo, numbered from 1, with their features."""
        with pycolmap.Database.open(database) as opened:
            image = 0
            for number, group in enumerate(groups, 1):
                opened.write_camera(self._make_camera(pycolmap, number, group[0]), use_camera_id=True)
                sensor = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, number)
                rig = pycolmap.Rig(rig_id=number)
                rig.add_ref_sensor(sensor)
                opened.write_rig(rig, use_rig_id=True)
                for photo in group:
                    image += 1
                    named = pycolmap.Image(name=format_name(image - 1), camera_id=number, image_id=image)
                    opened.write_image(named, use_image_id=True)
                    frame = pycolmap.Frame(frame_id=image, rig_id=number)
                    frame.add_data_id(pycolmap.data_t(sensor, image))
                    opened.write_frame(frame, use_frame_id=True)
                    width, height = _compute_small_size(photo, self.longer)
                    scale = np.array([width / photo.width, height / photo.height], dtype=np.float32)
                    write_features(
                        pycolmap, opened, image, features[image - 1].pixels * scale, features[image - 1]
                    )

    def _make_camera(self, pycolmap: Any, number: int, photo: Photo) -> Any:
        """Make COLMAP's camera of the reduced photos of a device, with a focal length from EXIF, or a guess."""
        width, height = _compute_small_size(photo, self.longer)
        focal, known = COLMAP_FOCAL * max(width, height), False
        if self.fisheye:
            focal, known = FISHEYE_FOCAL * max(width, height), True
        else:
            with contextlib.suppress(ValueError):
                focal, known = compute_focal_px(read_exif(photo)) * width / photo.width, True
        middle = [width / 2, height / 2]
        model, params = "SIMPLE_RADIAL", [focal, *middle, 0.0]
        if self.fisheye:
            model, params = "OPENCV_FISHEYE", [focal, focal, *middle, 0.0, 0.0, 0.0, 0.0]
        camera = pycolmap.Camera(camera_id=number, model=model, width=width, height=height, params=params)
        camera.has_prior_focal_length = known
        return camera

    def _make_mapping_options(self, pycolmap: Any, photos: int) -> Any:
        options = pycolmap.IncrementalPipelineOptions()
        # COLMAP's choice of the first pair depends on the number of threads: small sets give the same on every machine.
        options.num_threads = 1 if photos <= SMALL_SET else self.threads
        options.random_seed = 0
        options.min_model_size, options.extract_colors = 2, False
        return options


def find_exif(photo: Photo) -> View | None:
    """Return the photo with the camera of its EXIF, or None if EXIF has no focal length."""
    try:
        return ExifSource().find_camera(photo)
    except ValueError:
        return None


def is_likely(model: Any) -> bool:
    """Return whether all lenses of a COLMAP model are such as photographs are taken with, or as EXIF has them."""
    return all(
        _has_likely_focal(camera) and _has_likely_distortion(camera) for camera in model.cameras.values()
    )


def _has_likely_focal(camera: Any) -> bool:
    share = camera.mean_focal_length() / max(camera.width, camera.height)
    return camera.has_prior_focal_length or LIKELY_FOCAL[0] <= share <= LIKELY_FOCAL[1]


def _has_likely_distortion(camera: Any) -> bool:
    return all(abs(camera.params[i]) <= LIKELY_DISTORTION for i in camera.extra_params_idxs())


def _set_focal_lengths(pycolmap: Any, database: Path, start: float) -> None:
    """Set the focal lengths, over the longer side, that EXIF lacks."""
    with pycolmap.Database.open(database) as opened:
        for camera in opened.read_all_cameras():
            if not camera.has_prior_focal_length:
                width, height = camera.width, camera.height
                camera.params = [start * max(width, height), width / 2, height / 2, 0.0]
                opened.update_camera(camera)


def group_by_device(photos: Sequence[Photo]) -> list[list[Photo]]:
    """Group photos that share a lens and its setting."""
    groups: dict[tuple[Any, ...], list[Photo]] = {}
    for photo in photos:
        exif = read_exif(photo)
        folder = str(Path(photo.name).parent)
        device = (exif.device, exif.focal_mm, exif.focal_35mm) if exif.device else (folder,)
        groups.setdefault((photo.width, photo.height, *device), []).append(photo)
    return list(groups.values())


def _collect_views(
    estimator: ColmapEstimator, groups: list[list[Photo]], model: Any
) -> tuple[dict[str, View], list[str]]:
    """Return views by name, and photos without a pose; these have a camera if another photo of their device has one."""
    images = {image.image_id: image for image in model.images.values() if image.has_pose}
    views, lost, first = {}, [], 1
    for group in groups:
        registered = [images.get(first + index) for index in range(len(group))]
        first += len(group)
        lens = next(
            (_convert_camera(image.camera, group[0]) for image in registered if image is not None), None
        )
        for photo, image in zip(group, registered, strict=True):
            if image is None:
                lost.append(photo.name)
            if lens is not None:
                views[photo.name] = estimator.make_calibrated(
                    photo, lens, None if image is None else _convert_pose(image)
                )
    return views, lost


def _convert_camera(raw: Any, photo: Photo) -> Camera:
    small = camera_of(raw.model.name, int(raw.width), int(raw.height), tuple(map(float, raw.params)))
    return small.resize(photo.width, photo.height)


def _convert_pose(image: Any) -> Pose:
    matrix = torch.from_numpy(np.asarray(image.cam_from_world().matrix(), dtype=np.float64).copy())
    return Pose.from_parts(matrix[:, :3], matrix[:, 3]).inverse()


def _find_features(pycolmap: Any, photo: Photo, longer: int) -> Features:
    """Return features of a photo, which keeps those of the usual size for structure from motion with the lens."""
    features = find_features(pycolmap, photo.load(), SfMOptions(), longer)
    if longer == WORKING_SIZE:
        photo.features[:] = [features]
    return features


def _compute_small_size(photo: Photo, longer: int) -> tuple[int, int]:
    scale = min(1.0, longer / max(photo.width, photo.height))
    return round(photo.width * scale), round(photo.height * scale)
