"""nerfstudio's transforms.json: OpenGL camera axes there, OpenCV's here."""

import json
from pathlib import Path

import torch

from g_ray.cameras.opencv import OpenCV
from g_ray.capture.sources.base import CalibrationSource, Example, Lens
from g_ray.data.scenes.nerfstudio import TRANSFORMS, read_nerfstudio
from g_ray.files import write_atomically
from g_ray.formats.documents import ParsedFile


class NerfstudioSource(CalibrationSource):
    """The file, whatever its name, or the folder that has it."""

    NAME, TITLE, CENTER, PER_PHOTO = "nerfstudio", "nerfstudio", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        if file.path.is_dir():
            return (file.path / TRANSFORMS).is_file()
        document = file.document
        return document is not None and isinstance(document.get("frames"), list)

    @classmethod
    def open(cls, file: ParsedFile) -> "NerfstudioSource":
        path = file.path / TRANSFORMS if file.path.is_dir() else file.path
        scene = read_nerfstudio(path.parent, check=False, name=path.name)
        lenses = [
            Lens.from_camera(name, camera, scene.poses[index])
            for index, (name, camera) in enumerate(zip(scene.names, scene.cameras, strict=True))
        ]
        return cls(path, lenses, scene.notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine = {"fl_x": 500.0, "fl_y": 501.0, "cx": 320.5, "cy": 240.0, "w": 640, "h": 480}
        matrix = [[1.0, 0.0, 0.0, 0.2], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0]]
        frames = [{"file_path": "images/a.jpg", "transform_matrix": matrix}]
        document = {"camera_model": "OPENCV", **affine, "k1": -0.05, "k2": 0.01, "frames": frames}
        write_atomically(folder / TRANSFORMS, json.dumps(document, indent=1))
        camera = OpenCV.make(
            640, 480, fx=500.0, fy=501.0, cx=320.5, cy=240.0, k1=-0.05, k2=0.01, dtype=torch.float64
        )
        return Example(folder / TRANSFORMS, "images/a.jpg", camera)
