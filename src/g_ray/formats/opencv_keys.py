"""Names of the entries in OpenCV's calibration files, in all spellings, since every script chooses its own.

Names are compared without case and punctuation: `distCoeffs`, `dist_coeffs` and `Dist-Coeffs` are one. An entry that
is neither read nor known to be harmless is refused by name: it may change the lens.
"""

import re
from typing import Any

from g_ray.formats.documents import describe, parse_number

MATRIX = ("cameramatrix", "k", "mtx", "m", "cameramtx", "kmatrix")
VECTORS = ("d", "mdist", "mtxdist", "coeffs", "coefficients")
"""Distortion, beside all names that begin with "dist"."""
COEFFICIENTS = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4", "tauX", "tauY")
"""In OpenCV's order."""
SIZE_PAIRS = (("imagewidth", "imageheight"), ("imgwidth", "imgheight"), ("width", "height"), ("w", "h"))
SIZES = ("imagesize", "imgsize", "resolution", "imageresolution", "cameraresolution", "framesize")
SUFFIX = r"(\d{0,2}|left|right|l|r)"
"""What tells cameras of a pair or a rig apart: K1 and K2, cameraMatrixL and cameraMatrixR."""
STATISTIC = "stddev"
"""In names of standard deviations, which begin as the name of what they belong to."""
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
"""What calibration tools write beside the lens, and what does not change it: times, errors, boards, extrinsics."""
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
    """Return "fisheye", "omnidir" or "perspective", or None where the file does not say; ValueError if unknown."""
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
