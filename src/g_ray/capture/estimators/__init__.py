"""Estimate calibrations from the photos themselves: `--calibration estimate[:NAME[:fisheye]]`.

One file an estimator; all but COLMAP's are adapters to packages that people install themselves. There is no
single-image estimator of our own here.
"""

from collections.abc import Callable, Sequence

from g_ray.capture.estimators.anycalib import AnyCalibEstimator
from g_ray.capture.estimators.base import Estimator
from g_ray.capture.estimators.colmap import ColmapEstimator
from g_ray.capture.estimators.geocalib import GeoCalibEstimator
from g_ray.capture.estimators.unik3d import UniK3DEstimator
from g_ray.capture.estimators.vggt import VGGTEstimator
from g_ray.formats.calibration import CalibratedView
from g_ray.formats.photos import Photo
from g_ray.formats.plausible import check_plausible

KEYWORD = "estimate"
FISHEYE = "fisheye"

ESTIMATORS: dict[str, type[Estimator]] = {
    "colmap": ColmapEstimator,
    "anycalib": AnyCalibEstimator,
    "geocalib": GeoCalibEstimator,
    "unik3d": UniK3DEstimator,
    "vggt": VGGTEstimator,
}


def estimate_cameras(
    text: str, photos: Sequence[Photo], report: Callable[[str], None]
) -> list[CalibratedView]:
    """Estimate the cameras, and poses where possible, of photos; those that cannot be calibrated are left out."""
    estimator = choose_estimator(text)
    views = estimator.estimate(list(photos), report)
    for view in views:
        try:
            check_plausible(view.camera)
        except ValueError as error:
            raise ValueError(f"{view.name}: estimate:{estimator.NAME} failed: {error}") from None
    return views


def choose_estimator(text: str) -> Estimator:
    """Make the estimator of "estimate", "estimate:NAME", "estimate:fisheye" or "estimate:NAME:fisheye"."""
    words = text.split(":")[1:]
    fisheye = FISHEYE in words
    names = [word for word in words if word != FISHEYE] or ["colmap"]
    if len(names) > 1 or names[0] not in ESTIMATORS or words.count(FISHEYE) > 1:
        known = ", ".join(ESTIMATORS)
        raise ValueError(f"calibration {text}: write estimate[:NAME][:{FISHEYE}] with NAME one of {known}")
    return ESTIMATORS[names[0]](fisheye)
