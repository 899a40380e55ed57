"""What people hand in: photographs from anywhere, and what is known about the cameras that took them."""

from g_ray.capture.calibrate import calibrate
from g_ray.capture.calibrated import Calibrated, calibration_table
from g_ray.capture.photos import Photo, find_photos
from g_ray.capture.sources import SOURCES, CalibrationSource, open_source

__all__ = [
    "SOURCES",
    "Calibrated",
    "CalibrationSource",
    "Photo",
    "calibrate",
    "calibration_table",
    "find_photos",
    "open_source",
]
