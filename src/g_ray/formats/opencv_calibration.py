"""Read OpenCV's calibration files, YAML, XML or JSON, as cv2.FileStorage, OpenCV's samples and scripts write them.

One camera (`camera_matrix` or K or mtx, `distortion_coefficients` or D or dist …), a pair of cameras (M1 D1 M2 D2 of
OpenCV's stereo sample, K1 D1 …), a fisheye (cv2.fisheye: `fisheye_model: 1`), or an omnidirectional camera
(cv2.omnidir: `xi` in addition to K and D).
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats import opencv_calibration as keys
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_numbers, parse_positive_int
from g_ray.formats.mei import make_mei_builder
from g_ray.runtime.files import write_atomically

COUNTS = (0, 4, 5, 8, 12, 14)
LABELS = {"l": "left", "r": "right"}
"""Names of cameras by the suffixes of their entries, where these differ."""
Entries = dict[str, tuple[str, Any]]
"""By normalized name: the name in the file, and the value."""


class OpenCVSource(CalibrationSource):
    """`camera_matrix` and `distortion_coefficients`; with `fisheye_model: 1` they are cv2.fisheye's.

    Two cameras have the labels 1 and 2, or those of their numbers.
    """

    NAME, TITLE, CENTER, PER_PHOTO = "opencv", "OpenCV", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        try:
            return file.document is not None and bool(keys.find_matrices(keys.normalize_keys(file.document)))
        except ValueError:
            return True  # `open` then raises with the reason

    @classmethod
    def open(cls, file: ParsedFile) -> "OpenCVSource":
        try:
            entries = keys.normalize_keys(file.document or {})
            matrices = keys.find_matrices(entries)
            if len(matrices) > 1 and "" in matrices:
                raise ValueError("a camera matrix without a number alongside numbered ones: keep one kind")
            size, used = _parse_size(entries)
            model = keys.find_model(entries)
            used |= {*matrices.values(), *keys.FISHEYE_FLAGS, *keys.MODELS, keys.SKEW}
            lenses, notes = [], []
            for suffix, name in matrices.items():
                matrix = parse_intrinsics(entries[name][1], entries[name][0])
                distortion, names = _parse_distortion(entries, suffix)
                used |= {*names, keys.XI + suffix}
                build = _make_builder(entries, suffix, matrix, distortion, model, cls.CENTER)
                lenses.append(Lens(LABELS.get(suffix, suffix), build, size))
                if len(distortion) == 4 and model is None:
                    notes.append(
                        f"{file.path}: four coefficients are read as k1 k2 p1 p2; if they are cv2.fisheye's, "
                        "add the line fisheye_model: 1"
                    )
            keys.check_unknown(entries, used)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        if size is None:
            notes.append(f"{file.path}: it names no image size; taken to be that of the photos")
        return cls(file.path, lenses, list(dict.fromkeys(notes)))

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """%YAML:1.0
---
image_width: 640
image_height: 480
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 520., 0., 319.5, 0., 521., 239.5, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -2.1e-01, 5.0e-02, 1.0e-03, -5.0e-04, 1.0e-02 ]
"""
        write_atomically(folder / "camera.yml", text)
        affine = {"fx": 520.0, "fy": 521.0, "cx": 320.0, "cy": 240.0}
        camera = OpenCV.make(
            640, 480, **affine, k1=-0.21, k2=0.05, p1=0.001, p2=-0.0005, k3=0.01, dtype=torch.float64
        )
        return Example(folder / "camera.yml", "a.png", camera)


def parse_intrinsics(value: Any, name: str) -> dict[str, float]:
    """Return fx, fy, cx, cy of a 3×3 matrix, in the file's own pixel convention."""
    if value is None:
        raise ValueError(f"{name} is missing")
    k = parse_numbers(value, name, (9,))
    if k[3:4] + k[6:] != [0.0, 0.0, 0.0, 1.0]:
        raise ValueError(f"{name} is not [fx 0 cx; 0 fy cy; 0 0 1]: check rows and columns")
    if k[1]:
        raise ValueError(f"{name} has skew {k[1]:g}, which OpenCV itself ignores; calibrate without skew")
    return {"fx": k[0], "fy": k[4], "cx": k[2], "cy": k[5]}


def make_lens_builder(
    matrix: dict[str, float], distortion: Sequence[float], fisheye: bool | None, center: float
) -> Callable[[int, int], Camera]:
    """Return a function that makes the camera for a width and a height.

    `distortion` is in OpenCV's order: k1 k2 p1 p2 k3, k4 k5 k6, s1 s2 s3 s4, τx τy; of a fisheye k1 k2 k3 k4.
    """
    affine = {**matrix, "cx": matrix["cx"] + 0.5 - center, "cy": matrix["cy"] + 0.5 - center}
    if fisheye:
        if len(distortion) not in (0, 4):
            raise ValueError(
                f"a fisheye has 4 distortion coefficients (k1 k2 k3 k4), the file gives {len(distortion)}"
            )
        model, names = OpenCVFisheye, OpenCVFisheye.PARAMETERS[4:]
    else:
        distortion = _strip_tilt(distortion)
        model, names = OpenCV, OpenCV.PARAMETERS[4:]
    values = dict(zip(names, distortion, strict=False))
    if not fisheye and not any(distortion):
        model, values = Pinhole, {}
    return lambda width, height: model.make(width, height, dtype=torch.float64, **affine, **values)


def _strip_tilt(distortion: Sequence[float]) -> Sequence[float]:
    if len(distortion) not in COUNTS:
        raise ValueError(
            f"{len(distortion)} distortion coefficients; OpenCV writes 4, 5, 8, 12 or 14 (k1 k2 p1 p2 k3 …)"
        )
    if any(distortion[12:]):
        raise ValueError(
            "a tilted sensor (14 coefficients) has no counterpart here; calibrate with 12 at most"
        )
    return distortion[:12]


def _parse_distortion(entries: Entries, suffix: str) -> tuple[list[float], set[str]]:
    """Return the coefficients of a camera in OpenCV's order, and the names that they come from."""
    name = keys.find_distortion(entries, suffix)
    single = {} if suffix else keys.collect_coefficients(entries)
    if name is not None and single:
        raise ValueError(
            f"{entries[name][0]} and {next(iter(single))} both give distortion: keep one of them"
        )
    if name is not None:
        value = entries[name][1]
        return ([] if value is None else parse_numbers(value, entries[name][0])), {name}
    if not single:
        return [], set()
    count = 1 + max(keys.COEFFICIENTS.index(key) for key in single)
    count = next(known for known in COUNTS if known >= count)
    return [single.get(key, 0.0) for key in keys.COEFFICIENTS[:count]], {key.lower() for key in single}


def _make_builder(
    entries: Entries,
    suffix: str,
    matrix: dict[str, float],
    distortion: list[float],
    model: str | None,
    center: float,
) -> Callable[[int, int], Camera]:
    if keys.SKEW in entries and parse_number(entries[keys.SKEW][1], keys.SKEW):
        raise ValueError("skew is not 0, which OpenCV itself ignores; calibrate without skew")
    if model != "omnidir":
        return make_lens_builder(matrix, distortion, None if model is None else model == "fisheye", center)
    if keys.XI + suffix not in entries:
        raise ValueError(
            f"an omnidirectional camera needs {keys.XI + suffix}: write it next to the camera matrix"
        )
    value = entries[keys.XI + suffix][1]
    (xi,) = parse_numbers(value if keys.is_array(value) else [value], "xi", (1,))
    if len(distortion) not in (0, 4):
        raise ValueError(f"cv2.omnidir has 4 coefficients (k1 k2 p1 p2), the file gives {len(distortion)}")
    affine = {**matrix, "cx": matrix["cx"] + 0.5 - center, "cy": matrix["cy"] + 0.5 - center}
    return make_mei_builder(affine, xi, distortion)


def _parse_size(entries: Entries) -> tuple[tuple[int, int] | None, set[str]]:
    """Return width and height, if the file has them, and the names that they come from."""
    for names in keys.SIZE_PAIRS:
        if all(name in entries for name in names):
            width, height = (parse_positive_int(entries[name][1], entries[name][0]) for name in names)
            return (width, height), set(names)
    for name in keys.SIZES:
        if name in entries:
            key, value = entries[name]
            width, height = (parse_positive_int(part, key) for part in parse_numbers(value, key, (2,)))
            return (width, height), {name}
    return None, set()


# Names of the entries
#
# Names are compared without case and punctuation: `distCoeffs`, `dist_coeffs` and `Dist-Coeffs` are one. An entry
# that is neither read nor known to be harmless is refused by name: it may change the lens.


MATRIX = ("cameramatrix", "k", "mtx", "m", "cameramtx", "kmatrix")
VECTORS = ("d", "mdist", "mtxdist", "coeffs", "coefficients")
"""Names of distortion vectors, in addition to all that begin with "dist"."""
COEFFICIENTS = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4", "tauX", "tauY")
"""Distortion coefficients in OpenCV's order."""
SIZE_PAIRS = (("imagewidth", "imageheight"), ("imgwidth", "imgheight"), ("width", "height"), ("w", "h"))
SIZES = ("imagesize", "imgsize", "resolution", "imageresolution", "cameraresolution", "framesize")
SUFFIX = r"(\d{0,2}|left|right|l|r)"
"""What distinguishes cameras of a pair or a rig: K1 and K2, cameraMatrixL and cameraMatrixR."""
STATISTIC = "stddev"
"""Part of the names of standard deviations, which begin with the name of their quantity."""
FISHEYE_FLAGS = ("fisheyemodel", "fisheye", "isfisheye", "usefisheye")
MODELS = ("distortionmodel", "distortiontype", "cameramodel", "cameratype", "lensmodel", "lenstype", "model")
XI, SKEW = "xi", "skew"
_FISHEYES = {
    "fisheye",
    "opencvfisheye",
    "fisheyeopencv",
    "equidistant",
    "equi",
    "kannalabrandt",
    "kb4",
    "kb",
}
MODEL_NAMES: dict[str, str] = {
    **dict.fromkeys(_FISHEYES, "fisheye"),
    **dict.fromkeys(("omnidir", "omni", "omnidirectional", "mei"), "omnidir"),
    **dict.fromkeys(
        (
            "pinhole",
            "opencv",
            "plumbbob",
            "radtan",
            "rationalpolynomial",
            "rational",
            "perspective",
            "standard",
        ),
        "perspective",
    ),
    **dict.fromkeys(("brown", "brownconrady", "radialtangential", "fullopencv", "thinprism"), "perspective"),
}
HARMLESS = {
    *("calibrationtime", "calibrationdate", "date", "time", "timestamp", "flags", "flagvalue", "aspectratio"),
    *("nframes", "nrofframes", "nimages", "numimages", "imagecount", "numframes", "version", "name", "id"),
    *(
        "comment",
        "comments",
        "description",
        "note",
        "notes",
        "cameraname",
        "cameraid",
        "cameraserial",
        "serial",
    ),
    *("serialnumber", "device", "deviceid", "error", "calibrationerror", "finalerror", "rectificationmatrix"),
    *("projectionmatrix", "validroi", "roi", "roi1", "roi2", "alpha", "r", "t", "e", "f", "q", "p", "ret"),
    *("framescount", "calibrationflags", "usedimgs", "usedimages", "om", "vidpid"),
    *("newcameramatrix", "optimalcameramatrix", "newmtx", "newcameramtx", "r1", "r2", "format", "frameid"),
}
"""What calibration tools write in addition to the lens and does not change it: times, errors, boards, extrinsics."""
HARMLESS_STARTS = (
    *(
        "board",
        "pattern",
        "chess",
        "charuco",
        "aruco",
        "marker",
        "square",
        "perview",
        "extrinsic",
        "rms",
    ),
    *(
        "reproj",
        "avgreproj",
        "meanreproj",
        "rvec",
        "tvec",
        "imagepoints",
        "objectpoints",
        "gridpoints",
        "grid",
    ),
    *("calibrationpattern", "calibrate", "fix", "inputtype", "xmlns"),
)


def normalize_keys(document: dict[Any, Any]) -> dict[str, tuple[str, Any]]:
    """Return entries by their normalized names, with the names in the file; ValueError if two become one."""
    entries: dict[str, tuple[str, Any]] = {}
    for key, value in document.items():
        name = re.sub(r"[^a-z0-9]", "", str(key)[:80].lower())
        if name in entries:
            raise ValueError(f"{entries[name][0]} and {str(key)[:80]} are the same entry: remove one of them")
        entries[name] = (str(key)[:80], value)
    return entries


def is_array(value: Any) -> bool:
    """Return whether an entry is a list or a matrix, not a single number: K1 of a pair of cameras, not k1 of a lens."""
    return isinstance(value, list | dict) or (isinstance(value, str) and len(value.split()) > 1)


def find_matrices(entries: dict[str, tuple[str, Any]]) -> dict[str, str]:
    """Return the names of camera matrices by the suffix of their camera, which is empty if there is only one."""
    found: dict[str, str] = {}
    for name, (key, value) in entries.items():
        match = re.fullmatch(rf"({'|'.join(MATRIX)}){SUFFIX}", name)
        if match and (is_array(value) or not match[2]):
            if match[2] in found:
                raise ValueError(
                    f"{entries[found[match[2]]][0]} and {key} are both camera matrices: keep one"
                )
            found[match[2]] = name
    return found


def find_distortion(entries: dict[str, tuple[str, Any]], suffix: str = "") -> str | None:
    """Return the name of the distortion vector of a camera, or None; ValueError if there are two."""
    names = [name for name in entries if _is_distortion(name, suffix) and name not in MODELS]
    if len(names) > 1:
        keys = " and ".join(entries[name][0] for name in names[:2])
        raise ValueError(f"{keys} both look like distortion: keep the one that belongs to the camera matrix")
    return names[0] if names else None


def _is_distortion(name: str, suffix: str) -> bool:
    if (suffix and not name.endswith(suffix)) or STATISTIC in name:
        return False
    stem = name.removesuffix(suffix) if suffix else name
    return stem in VECTORS or (stem.startswith("dist") and not stem[-1:].isdigit())


def find_model(entries: dict[str, tuple[str, Any]]) -> str | None:
    """Return "fisheye", "omnidir" or "perspective", or None if the file names none; ValueError if unknown."""
    said = {_parse_flag(*entries[name]) for name in FISHEYE_FLAGS if name in entries}
    for name in MODELS:
        if name in entries:
            key, value = entries[name]
            model = re.sub(r"[^a-z0-9]", "", value.lower()) if isinstance(value, str) else ""
            if model not in MODEL_NAMES:
                raise ValueError(
                    f"{key} {describe(value)} is not known; it can be pinhole, fisheye or omnidir"
                )
            said.add(MODEL_NAMES[model])
    if any(re.fullmatch(XI + SUFFIX, name) for name in entries):
        said = said - {"perspective"} | {"omnidir"}
    if len(said) > 1:
        raise ValueError(f"its entries say both {' and '.join(sorted(said))}: keep one of them")
    return next(iter(said), None)


def _parse_flag(key: str, value: Any) -> str:
    text = str(value).strip('"').lower() if isinstance(value, str | int | float | bool) else ""
    if text in ("1", "1.0", "true", "yes"):
        return "fisheye"
    if text in ("0", "0.0", "false", "no"):
        return "perspective"
    raise ValueError(f"{key} is {describe(value)}: write 1 for a fisheye, 0 for a perspective lens")


def collect_coefficients(entries: dict[str, tuple[str, Any]]) -> dict[str, float]:
    """Return coefficients that have entries of their own, by OpenCV's names."""
    named = {name: entries.get(name.lower()) for name in COEFFICIENTS}
    return {
        name: parse_number(entry[1], entry[0])
        for name, entry in named.items()
        if entry is not None and not is_array(entry[1])
    }


def check_unknown(entries: dict[str, tuple[str, Any]], used: set[str]) -> None:
    """Refuse an entry that is neither used nor harmless; ValueError names it."""
    for name, (key, value) in entries.items():
        is_projection = name in ("p1", "p2") and is_array(value)
        is_harmless = name in HARMLESS or name.startswith(HARMLESS_STARTS) or STATISTIC in name
        if name in used or is_harmless or is_projection:
            continue
        raise ValueError(
            f"entry {describe(key)} is not known and may change the lens: remove it, or write the calibration with "
            "camera_matrix, distortion_coefficients, image_width, image_height"
        )
