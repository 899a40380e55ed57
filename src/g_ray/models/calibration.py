"""Calibrations that a reconstruction is given, and the record of what became of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from g_ray.cameras.base import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

CalibrationInput = Views | Sequence[Camera | RayMap]
"""One calibration per image: cameras of any models, or unit rays per pixel."""


@dataclass(frozen=True)
class Calibration:
    """Which calibration a view was reconstructed with."""

    model: str
    """Name of the camera model; "ray_map" for a table of rays."""
    parameters: dict[str, float]
    """As given, for an image of `width` × `height` px; a table of rays has none."""
    width: int
    height: int
    network_size: tuple[int, int]
    """Width and height of what the network saw; its rays were scaled to it together with the image."""
    used_by: str
    """"attention", "input", both, or "nothing": grid-index encodings do not look at calibration."""

    @classmethod
    def from_camera(cls, camera: Camera, network_camera: Camera, used_by: str) -> "Calibration":
        table = isinstance(camera, RayMapCamera)
        values = {} if table else dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        size = (network_camera.width, network_camera.height)
        return cls(camera.NAME, values, camera.width, camera.height, size, used_by)


def convert_to_cameras(calibrations: CalibrationInput) -> list[Camera]:
    """One unbatched camera per view; refuses what would otherwise be ignored."""
    if isinstance(calibrations, Views):
        if calibrations.poses is not None:
            raise ValueError(
                "poses were given, but reconstruction finds poses itself and would ignore them: pass Views(cameras)"
            )
        calibrations = calibrations.cameras
    cameras = [_convert_to_camera(view, one) for view, one in enumerate(calibrations)]
    for view, camera in enumerate(cameras):
        if camera.batch_shape:
            raise ValueError(
                f"camera of view {view} is a batch {camera.batch_shape}: reconstruct one scene at a time, camera[i]"
            )
    return cameras


def _convert_to_camera(view: int, calibration: Camera | RayMap) -> Camera:
    if isinstance(calibration, Camera):
        return calibration
    if calibration.origins is not None:
        raise ValueError(
            f"ray map of view {view} has origins, which would be ignored: give camera-local rays of one centre"
        )
    return RayMapCamera.from_rays(calibration.directions, calibration.valid)
