"""Read OmniObject3D's renderings of scanned objects.

CATEGORY/OBJECT/render/transforms.json             camera_angle_x, frames with file_path and transform_matrix (OpenGL)
CATEGORY/OBJECT/render/images/r_0.png              with a transparent background
CATEGORY/OBJECT/render/depths/r_0_depth.exr        z-depth in the unit of the poses, R of several equal channels; the
                                                   background is at the end of half floats, 65504
"""

from pathlib import Path
from typing import Any

from g_ray.formats.documents import parse_number
from g_ray.formats.frames import get_frames, pose_from_frame, read_document
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_centered_pinhole, make_recorded_view
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size

TITLE = "OmniObject3D"
TRANSFORMS = "transforms.json"
BACKGROUND = 65504


def is_omniobject3d(folder: Path) -> bool:
    has_file = (folder / TRANSFORMS).is_file()
    return has_file and next((folder / "depths").glob("r_*_depth.exr"), None) is not None


def read_omniobject3d(folder: Path, check: bool = True) -> PosedScene:
    """Read all renderings of an object; ValueError, in one line with the file, if anything is wrong."""
    path = folder / TRANSFORMS
    document = read_document(path)
    frames = sorted(get_frames(path, document), key=_get_number)
    images = [folder / "images" / f"{_get_stem(frame)}.png" for frame in frames]
    size = read_photo_size(images[0])
    camera = make_centered_pinhole(
        str(path), *size, parse_number(document.get("camera_angle_x"), "camera_angle_x")
    )
    views = []
    for frame, image in zip(frames, images, strict=True):
        depth = DepthFile(folder / "depths" / f"{image.stem}_depth.exr", "z", limit=BACKGROUND)
        views.append(make_recorded_view(image, camera, Pose(pose_from_frame(frame, "opengl")), depth))
    return build_recorded_scene(folder, TITLE, views, check)


def _get_stem(frame: dict[str, Any]) -> str:
    """Return r_0 of r_0, of ./images/r_0 and of r_0.png."""
    return Path(frame["file_path"]).name.removesuffix(".png")


def _get_number(frame: dict[str, Any]) -> tuple[int, str]:
    digits = _get_stem(frame).rpartition("_")[2]
    return (int(digits) if digits.isdigit() else 0), _get_stem(frame)
