"""COLMAP's camera models as our cameras, and our cameras as COLMAP's.

Both count pixels from the top-left corner, so parameters are taken as they are.
"""

from typing import NamedTuple

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.division import Division
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.fov import FOV
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.cameras.ucm import UCM
from g_ray.formats.documents import parse_number, parse_positive_int


class Model(NamedTuple):
    """A camera model of COLMAP."""

    number: int
    """Its id in binary files."""
    parameters: str
    """In COLMAP's order, by our names; f stands for fx and fy."""
    ours: type[Camera]


MODELS: dict[str, Model] = {
    "SIMPLE_PINHOLE": Model(0, "f cx cy", Pinhole),
    "PINHOLE": Model(1, "fx fy cx cy", Pinhole),
    "SIMPLE_RADIAL": Model(2, "f cx cy k1", OpenCV),
    "RADIAL": Model(3, "f cx cy k1 k2", OpenCV),
    "OPENCV": Model(4, "fx fy cx cy k1 k2 p1 p2", OpenCV),
    "OPENCV_FISHEYE": Model(5, "fx fy cx cy k1 k2 k3 k4", OpenCVFisheye),
    "FULL_OPENCV": Model(6, "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", OpenCV),
    "FOV": Model(7, "fx fy cx cy omega", FOV),
    "SIMPLE_RADIAL_FISHEYE": Model(8, "f cx cy k1", OpenCVFisheye),
    "RADIAL_FISHEYE": Model(9, "f cx cy k1 k2", OpenCVFisheye),
    "THIN_PRISM_FISHEYE": Model(10, "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1", ThinPrismFisheye),
    "RAD_TAN_THIN_PRISM_FISHEYE": Model(11, "fx fy cx cy k1 k2 k3 k4 k5 k6 p1 p2 s1 s2 s3 s4", Fisheye624),
    "SIMPLE_DIVISION": Model(12, "f cx cy k", Division),
    "DIVISION": Model(13, "fx fy cx cy k", Division),
    "SIMPLE_FISHEYE": Model(14, "f cx cy", OpenCVFisheye),
    "FISHEYE": Model(15, "fx fy cx cy", OpenCVFisheye),
    "EUCM": Model(16, "fx fy cx cy alpha beta", EUCM),
    "EQUIRECTANGULAR": Model(17, "w h", Equirectangular),
}

WRITTEN = (
    "PINHOLE",
    "OPENCV",
    "FULL_OPENCV",
    "OPENCV_FISHEYE",
    "THIN_PRISM_FISHEYE",
    "RAD_TAN_THIN_PRISM_FISHEYE",
    "EUCM",
    "FOV",
    "DIVISION",
    "EQUIRECTANGULAR",
)
"""Models that are written, simplest first: a camera becomes the first of them that is exact, which most tools know."""

NUMBERS = {model.number: name for name, model in MODELS.items()}


def camera_from_colmap(name: str, width: int, height: int, parameters: tuple[float, ...]) -> Camera:
    """Convert COLMAP's model and parameters; ValueError for a model that COLMAP does not have."""
    width, height = parse_positive_int(width, "width"), parse_positive_int(height, "height")
    parameters = tuple(parse_number(value, f"a parameter of {name}") for value in parameters)
    model = _get_model(name)
    names = model.parameters.split()
    if len(parameters) != len(names):
        raise ValueError(f"{name} has {len(names)} parameters, the file gives {len(parameters)}")
    if model.ours is Equirectangular:
        return Equirectangular.panorama(width, height, dtype=torch.float64)
    values = dict(zip(names, parameters, strict=True))
    if "f" in values:
        values["fx"] = values["fy"] = values.pop("f")
    return model.ours.make(width, height, dtype=torch.float64, **values)


def camera_to_colmap(ours: Camera) -> tuple[str, tuple[float, ...]]:
    """Convert a camera to COLMAP's model and parameters; ValueError, with the reason, if none is exactly the same."""
    if isinstance(ours, Equirectangular):
        return _panorama_to_colmap(ours)
    values = dict(zip(ours.PARAMETERS, ours.params.double().tolist(), strict=True))
    kind = type(ours)
    if kind is UCM:
        kind, values = EUCM, values | {"beta": 1.0}
    candidates = [name for name in WRITTEN if MODELS[name].ours is kind]
    surplus: list[str] = []
    for name in candidates:
        names = MODELS[name].parameters.split()
        surplus = [key for key, value in values.items() if key not in names and value != 0]
        if not surplus:
            return name, tuple(values[key] for key in names)
    if candidates:
        raise ValueError(f"COLMAP's {candidates[-1]} has no {', '.join(surplus)}")
    raise ValueError(f"COLMAP has no camera model like {ours.NAME}")


def _panorama_to_colmap(ours: Equirectangular) -> tuple[str, tuple[float, ...]]:
    whole = Equirectangular.panorama(ours.width, ours.height, dtype=torch.float64)
    if not torch.allclose(ours.params.double(), whole.params, rtol=1e-6):
        raise ValueError("COLMAP's EQUIRECTANGULAR is the whole sphere, and this panorama is a part of it")
    return "EQUIRECTANGULAR", (float(ours.width), float(ours.height))


def _get_model(name: str) -> Model:
    if name not in MODELS:
        raise ValueError(f"unknown COLMAP camera model {name}; known are {', '.join(MODELS)}")
    return MODELS[name]
