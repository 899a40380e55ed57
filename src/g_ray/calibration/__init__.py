"""Photographs of a user, and the assignment of cameras to them from calibration files or estimators."""

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import CALIBRATIONS, open_calibration
from g_ray.formats.calibration_source import CalibratedView, CalibrationSource, format_calibration_table
from g_ray.media.photos import Photo, find_photos

__all__ = [
    "CALIBRATIONS",
    "CalibratedView",
    "CalibrationSource",
    "Photo",
    "assign_cameras",
    "find_photos",
    "format_calibration_table",
    "open_calibration",
]
