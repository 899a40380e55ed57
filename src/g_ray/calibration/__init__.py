"""Photographs of a user, and the assignment of cameras to them from calibration files or estimators."""

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import CALIBRATIONS, open_calibration
from g_ray.formats.calibration_source import CalibrationSource, format_calibration_table
from g_ray.media.photos import Photo, find_photos
from g_ray.media.view import View

__all__ = [
    "CALIBRATIONS",
    "CalibrationSource",
    "Photo",
    "View",
    "assign_cameras",
    "find_photos",
    "format_calibration_table",
    "open_calibration",
]
