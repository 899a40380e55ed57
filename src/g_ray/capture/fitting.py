"""A calibration for one image size and a photo of another: scaled if people ask for it, else refused with advice."""

from g_ray.cameras.base import Camera
from g_ray.capture.pixels import TURNED
from g_ray.formats.photos import Photo

RESIZE = "--resize-calibration"
AS_STORED = "--as-stored"


def has_same_aspect(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one size is the other scaled, up to the rounding of sides to whole pixels."""
    scale = other[0] / one[0]
    return abs(one[1] * scale - other[1]) <= max(1.0, scale)


def rescale_camera(camera: Camera, photo: Photo, resize: bool) -> Camera:
    """The camera at the photo's size; ValueError, without the source's name, if it is another one's."""
    camera_size, photo_size = (camera.width, camera.height), (photo.width, photo.height)
    if camera_size == photo_size:
        return camera
    sizes = f"it is for {camera.width}×{camera.height} px, {photo.name} has {photo.width}×{photo.height}"
    if camera_size == photo_size[::-1] and photo.upright and photo.orientation in TURNED:
        raise ValueError(
            f"{sizes}: the photo is stored lying and its EXIF says to turn it; "
            f"{AS_STORED} uses the pixels as they are stored"
        )
    if camera_size == photo_size[::-1]:
        raise ValueError(
            f"{sizes}: it belongs to the photo turned by 90°; calibrate the camera in this position"
        )
    if not has_same_aspect(camera_size, photo_size):
        raise ValueError(
            f"{sizes}, another shape: the photo was cropped or is from another camera; calibrate this size"
        )
    if not resize:
        raise ValueError(
            f"{sizes}, the same shape: if the photo was only scaled, {RESIZE} scales the calibration "
            f"by {photo.width / camera.width:.4g}"
        )
    return camera.resize(photo.width, photo.height)
