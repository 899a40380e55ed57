"""Calibrate a whole set of photos with COLMAP: features, matches, mapping, on the CPU.

Photos of one device share a camera: those with the same size and the same EXIF device and focal length, or, without
EXIF, with the same size and folder. Photos are turned upright and made smaller first; the cameras are scaled back.
A few photos leave focal length, distortion and depth open to each other: where the outcome is no likely lens, the
mapping starts again from other focal lengths, with and without distortion.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from g_ray.calibration.estimators.estimator import Estimator, suggest_lens
from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap as camera_of
from g_ray.formats.exif import ExifSource, compute_focal_px, read_exif
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.runtime.interruptible import run_interruptibly
from g_ray.sfm.sfm_options import SfMOptions

LONGER = 1600
"""Longer side in pixels of the images in which features are found."""
FISHEYE_FOCAL = 0.48
"""First guess over the width: 120° across."""
SMALL_SET = SfMOptions().exhaustive_views
"""Photos up to which one thread maps, as in structure from motion with known lenses."""
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

    def __init__(self, fisheye: bool = False, longer: int = LONGER, threads: int = -1) -> None:
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
        images, database = folder / "images", folder / "database.db"
        # A start without a model is not an error; only if all fail is an error raised below.
        pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
        for number, group in enumerate(groups):
            for index, photo in enumerate(group):
                _write_small(photo, images / _format_name(number, index), self.longer)
            self._extract(pycolmap, database, images, number, group)
        matching = pycolmap.FeatureMatchingOptions()
        matching.num_threads = self.threads
        run_interruptibly(
            partial(
                pycolmap.match_exhaustive, database, matching_options=matching, device=pycolmap.Device.cpu
            )
        )
        model = self._map(pycolmap, database, folder, refine_distortion=True)
        photos = sum(map(len, groups))
        trusted = model is not None and is_likely(model) and 2 * model.num_reg_images() >= photos
        if not trusted and not self.fisheye:
            model = self._try_starts(pycolmap, database, folder) or model
        return model

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

    def _map(self, pycolmap: Any, database: Path, folder: Path, refine_distortion: bool) -> Any:
        """Return the model with the most photos, or None if there is none."""
        photos = sum(path.is_file() for path in (folder / "images").rglob("*"))
        options = self._make_mapping_options(pycolmap, photos)
        options.ba_refine_extra_params = refine_distortion
        token = pycolmap.CancellationToken()
        models = run_interruptibly(
            partial(
                pycolmap.incremental_mapping,
                *(database, folder / "images", folder / "models", options),
                cancellation_token=token,
            ),
            token.cancel,
        )
        return max(models.values(), key=lambda model: model.num_reg_images()) if models else None

    def _try_starts(self, pycolmap: Any, database: Path, folder: Path) -> Any:
        """Map from several focal lengths; return the likely model with the most photos and observations, if any."""
        likely: list[Any] = []
        for start in STARTS:
            _set_focal_lengths(pycolmap, database, start)
            # The lens with fewer parameters comes first, and stays if distortion explains no more.
            for refine_distortion in (False, True):
                model = self._map(pycolmap, database, folder, refine_distortion)
                if model is not None and is_likely(model):
                    likely.append(model)
        if not likely:
            return None
        return max(likely, key=lambda model: (model.num_reg_images(), model.compute_num_observations()))

    def _extract(self, pycolmap: Any, database: Path, images: Path, number: int, group: list[Photo]) -> None:
        reader, options = pycolmap.ImageReaderOptions(), pycolmap.FeatureExtractionOptions()
        reader.camera_model = "OPENCV_FISHEYE" if self.fisheye else "SIMPLE_RADIAL"
        reader.camera_params = self._format_first_guess(group[0])
        options.num_threads = self.threads
        names = [_format_name(number, index) for index in range(len(group))]
        mode = pycolmap.CameraMode.PER_FOLDER
        run_interruptibly(
            partial(
                pycolmap.extract_features,
                *(database, images, names, mode, reader, options, pycolmap.Device.cpu),
            )
        )

    def _format_first_guess(self, photo: Photo) -> str:
        """Format COLMAP's initial parameters, from EXIF, which the small copies lack; empty lets COLMAP guess."""
        width, height = _compute_small_size(photo, self.longer)
        if self.fisheye:
            focal = FISHEYE_FOCAL * max(width, height)
            return f"{focal},{focal},{width / 2},{height / 2},0,0,0,0"
        try:
            focal = compute_focal_px(read_exif(photo)) * width / photo.width
        except ValueError:
            return ""
        return f"{focal},{width / 2},{height / 2},0"

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
    images = {image.name: image for image in model.images.values() if image.has_pose}
    views, lost = {}, []
    for number, group in enumerate(groups):
        registered = [images.get(_format_name(number, index)) for index in range(len(group))]
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


def _format_name(group: int, index: int) -> str:
    return f"{group:03d}/{index:06d}.png"


def _compute_small_size(photo: Photo, longer: int) -> tuple[int, int]:
    scale = min(1.0, longer / max(photo.width, photo.height))
    return round(photo.width * scale), round(photo.height * scale)


def _write_small(photo: Photo, path: Path, longer: int) -> None:
    width, height = _compute_small_size(photo, longer)
    image = photo.load()
    if (width, height) != (photo.width, photo.height):
        image = interpolate(image[None], (height, width), mode="bilinear", antialias=True)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((image.clamp(0, 1) * 255).round().byte().movedim(0, -1).numpy()).save(
        path, compress_level=1
    )
