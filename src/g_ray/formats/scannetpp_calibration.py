"""Read scenes of ScanNet++: the DSLR fisheye (dslr/colmap or dslr/nerfstudio) and the iPhone (iphone/colmap).

Poses are COLMAP's, metric and in one world for both devices. nerfstudio's file has its own world, so where only that
one is there, the poses are not taken for a scene with both.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.colmap.colmap_scene import read_lenses
from g_ray.formats.documents import ParsedFile
from g_ray.formats.nerfstudio import TRANSFORMS, read_nerfstudio
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.runtime.files import write_atomically

DSLR, DSLR_NERFSTUDIO, IPHONE = Path("dslr/colmap"), Path("dslr/nerfstudio"), Path("iphone/colmap")


class ScanNetPPSource(CalibrationSource):
    """The folder of a scene, with dslr/ and iphone/ in it."""

    NAME, TITLE, CENTER, PER_PHOTO = "scannetpp", "ScanNet++", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        folder = file.path
        models = is_model(folder / DSLR) or is_model(folder / IPHONE)
        return models or (folder / DSLR_NERFSTUDIO / TRANSFORMS).is_file()

    @classmethod
    def open(cls, file: ParsedFile) -> "ScanNetPPSource":
        folder, lenses, notes = file.path, list[Lens](), list[str]()
        iphone = is_model(folder / IPHONE)
        if is_model(folder / DSLR):
            lenses += read_lenses(folder / DSLR)
        elif (folder / DSLR_NERFSTUDIO / TRANSFORMS).is_file():
            scene = read_nerfstudio(folder / DSLR_NERFSTUDIO, check=False)
            posed = [
                Lens.from_camera(*pair, scene.poses[i])
                for i, pair in enumerate(zip(scene.names, scene.cameras, strict=True))
            ]
            lenses += [replace(lens, pose=None) for lens in posed] if iphone else posed
            if iphone:
                notes.append(
                    f"{folder}: poses of the DSLR are nerfstudio's, in another world than the iPhone's: not used"
                )
        if iphone:
            lenses += read_lenses(folder / IPHONE)
        return cls(folder, lenses, notes)

    def find_camera(self, photo: Photo, resize: bool = False, label: str | None = None) -> View | None:
        if any("undistorted" in part for part in photo.place.parts):
            raise ValueError(
                f"{photo.name} is an undistorted image, and {self.path} has the cameras of the original ones: "
                "give dslr/nerfstudio/transforms_undistorted.json"
            )
        return super().find_camera(photo, resize, label)

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine = {"fl_x": 610.0, "fl_y": 611.0, "cx": 876.0, "cy": 584.0, "w": 1752, "h": 1168}
        k = {"k1": 0.03, "k2": 0.01, "k3": -0.01, "k4": 0.002}
        matrix = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        frames = [{"file_path": "DSC00001.JPG", "transform_matrix": matrix}]
        document = {"camera_model": "OPENCV_FISHEYE", **affine, **k, "frames": frames}
        write_atomically(folder / DSLR_NERFSTUDIO / TRANSFORMS, json.dumps(document, indent=1))
        write_atomically(
            folder / IPHONE / "cameras.txt", "1 OPENCV 1920 1440 1430 1431 960 720 0.1 -0.2 0 0\n"
        )
        write_atomically(folder / IPHONE / "images.txt", "1 1 0 0 0 0 0 0 1 frame_000000.jpg\n\n")
        camera = OpenCVFisheye.make(
            1752, 1168, fx=610.0, fy=611.0, cx=876.0, cy=584.0, **k, dtype=torch.float64
        )
        return Example(folder, "dslr/resized_images/DSC00001.JPG", camera)
