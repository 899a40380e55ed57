"""Estimate calibrations from the photos themselves: `--calibration estimate[:NAME[:fisheye or :pinhole]]`.

All but COLMAP's and VGGT's are adapters to packages that users install themselves. There is no
single-image estimator of our own here.
"""

from collections.abc import Callable, Sequence

from g_ray.calibration.estimators.colmap_estimator import ColmapEstimator
from g_ray.calibration.estimators.estimator import Estimator, suggest_lens
from g_ray.calibration.estimators.single_photo_estimators import (
    AnyCalibEstimator,
    GeoCalibEstimator,
    UniK3DEstimator,
)
from g_ray.calibration.estimators.vggt_estimator import VGGTEstimator
from g_ray.formats.plausible import check_plausible
from g_ray.media.photos import Photo
from g_ray.media.view import View

KEYWORD = "estimate"
FISHEYE, PINHOLE = "fisheye", "pinhole"

ESTIMATORS: dict[str, type[Estimator]] = {
    "colmap": ColmapEstimator,
    "anycalib": AnyCalibEstimator,
    "geocalib": GeoCalibEstimator,
    "unik3d": UniK3DEstimator,
    "vggt": VGGTEstimator,
}


def estimate_cameras(text: str, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
    """Estimate the cameras, and poses where possible, of photos; those that cannot be calibrated are left out."""
    estimator = choose_estimator(text)
    views = estimator.estimate(list(photos), report)
    for view in views:
        try:
            check_plausible(view.camera)
        except ValueError as error:
            raise ValueError(
                f"{view.name}: estimate:{estimator.NAME} failed: {error}; {suggest_lens(estimator)}"
            ) from None
    return views


def choose_estimator(text: str) -> Estimator:
    """Make the estimator of "estimate", "estimate:NAME", "estimate:fisheye", "estimate:NAME:fisheye" or "…:pinhole"."""
    words = text.split(":")[1:]
    lenses = [word for word in words if word in (FISHEYE, PINHOLE)]
    names = [word for word in words if word not in lenses] or ["colmap"]
    if len(names) > 1 or names[0] not in ESTIMATORS or len(lenses) > 1:
        known = ", ".join(ESTIMATORS)
        raise ValueError(
            f"calibration {text[:80]}: write estimate[:NAME][:{FISHEYE} or :{PINHOLE}] with NAME one of {known}"
        )
    estimator = ESTIMATORS[names[0]](FISHEYE in lenses)
    if PINHOLE in lenses:
        if not estimator.HAS_PINHOLE:
            able = ", ".join(f"estimate:{name}" for name, kind in ESTIMATORS.items() if kind.HAS_PINHOLE)
            raise ValueError(f"calibration {text}: {estimator.NAME} has no choice of a pinhole; use {able}")
        estimator.pinhole = True
    return estimator
