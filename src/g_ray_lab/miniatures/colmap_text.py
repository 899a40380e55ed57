"""Write COLMAP models as text, with the three or four lines of comments that published datasets have."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_scene import make_raw_camera, make_raw_image
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import write_atomically

NOTHING = np.zeros((0, 2)), np.zeros(0, dtype=np.int64)


def write_colmap_text(place: Path, images: Sequence[tuple[str, Camera, Pose]]) -> None:
    """Write cameras.txt, images.txt (with empty lines of features) and points3D.txt; equal objects share a camera."""
    numbers = {id(camera): number for number, camera in enumerate({id(c): c for _, c, _ in images}.values())}
    known = {numbers[id(camera)]: make_raw_camera(camera) for _, camera, _ in images}
    lines = [
        "# Camera list with one line of data per camera:",
        "#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]",
        f"# Number of cameras: {len(known)}",
    ]
    lines += [
        f"{number} {raw.model} {raw.width} {raw.height} {' '.join(map(repr, raw.parameters))}"
        for number, raw in known.items()
    ]
    write_atomically(place / "cameras.txt", "\n".join(lines) + "\n")
    lines = [
        "# Image list with two lines of data per image:",
        "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME",
        "#   POINTS2D[] as (X, Y, POINT3D_ID)",
        f"# Number of images: {len(images)}, mean observations per image: 0",
    ]
    for number, (name, camera, pose) in enumerate(images, 1):
        raw = make_raw_image(name, numbers[id(camera)], pose, *NOTHING)
        place_text = " ".join(map(repr, (*raw.quaternion, *raw.translation)))
        lines += [f"{number} {place_text} {raw.camera} {name}", ""]
    write_atomically(place / "images.txt", "\n".join(lines) + "\n")
    write_atomically(place / "points3D.txt", "# 3D point list with one line of data per point:\n")
