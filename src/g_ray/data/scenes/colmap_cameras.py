"""COLMAP's camera models as ours. Both count pixels from the top-left corner, so parameters are taken as they are."""

from typing import NamedTuple

import torch

from g_ray.cameras.base import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye


class Model(NamedTuple):
    number: int
    """In binary files."""
    parameters: str
    """In COLMAP's order, by our names; f is fx and fy."""
    ours: type[Camera] | None
    """None: there is no such model here."""


MODELS: dict[str, Model] = {
    "SIMPLE_PINHOLE": Model(0, "f cx cy", Pinhole),
    "PINHOLE": Model(1, "fx fy cx cy", Pinhole),
    "SIMPLE_RADIAL": Model(2, "f cx cy k1", OpenCV),
    "RADIAL": Model(3, "f cx cy k1 k2", OpenCV),
    "OPENCV": Model(4, "fx fy cx cy k1 k2 p1 p2", OpenCV),
    "OPENCV_FISHEYE": Model(5, "fx fy cx cy k1 k2 k3 k4", OpenCVFisheye),
    "FULL_OPENCV": Model(6, "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", OpenCV),
    "FOV": Model(7, "fx fy cx cy omega", None),
    "SIMPLE_RADIAL_FISHEYE": Model(8, "f cx cy k1", OpenCVFisheye),
    "RADIAL_FISHEYE": Model(9, "f cx cy k1 k2", OpenCVFisheye),
    "THIN_PRISM_FISHEYE": Model(10, "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1", ThinPrismFisheye),
    "RAD_TAN_THIN_PRISM_FISHEYE": Model(11, "fx fy cx cy k1 k2 k3 k4 k5 k6 p1 p2 s1 s2 s3 s4", Fisheye624),
    "SIMPLE_DIVISION": Model(12, "f cx cy k", None),
    "DIVISION": Model(13, "fx fy cx cy k", None),
    "SIMPLE_FISHEYE": Model(14, "f cx cy", OpenCVFisheye),
    "FISHEYE": Model(15, "fx fy cx cy", OpenCVFisheye),
    "EUCM": Model(16, "fx fy cx cy alpha beta", EUCM),
    "EQUIRECTANGULAR": Model(17, "w h", Equirectangular),
}

NUMBERS = {model.number: name for name, model in MODELS.items()}


def camera(name: str, width: int, height: int, parameters: tuple[float, ...]) -> Camera:
    """One of our cameras; ValueError for a model that has no counterpart here."""
    model = _known(name)
    names = model.parameters.split()
    if len(parameters) != len(names):
        raise ValueError(f"{name} has {len(names)} parameters, the file gives {len(parameters)}")
    if model.ours is None:
        usable = ", ".join(known for known, entry in MODELS.items() if entry.ours is not None)
        raise ValueError(
            f"camera model {name} has no counterpart here; convert it in COLMAP to one of {usable}"
        )
    if model.ours is Equirectangular:
        return Equirectangular.panorama(width, height, dtype=torch.float64)
    values = dict(zip(names, parameters, strict=True))
    if "f" in values:
        values["fx"] = values["fy"] = values.pop("f")
    return model.ours.make(width, height, dtype=torch.float64, **values)


def _known(name: str) -> Model:
    if name not in MODELS:
        raise ValueError(f"unknown COLMAP camera model {name}; known are {', '.join(MODELS)}")
    return MODELS[name]
