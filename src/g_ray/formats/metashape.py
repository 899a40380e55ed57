"""Read Agisoft Metashape's camera calibrations: a calibration XML, or the sensors of an exported cameras XML.

With x, y on the image plane (frame) or the equidistant one (fisheye), r² = x² + y²:

    x' = x (1 + K1 r² + K2 r⁴ + K3 r⁶ + K4 r⁸) + P1 (r² + 2x²) + 2 P2 x y,   y' alike with P1 and P2 exchanged,
    u = w/2 + cx + x' f + x' B1 + y' B2,   v = h/2 + cy + y' f

P1 and P2 are therefore OpenCV's p2 and p1. The top-left corner of the image is the origin, as here.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_positive_int
from g_ray.runtime.files import write_atomically

ROOTS = ("calibration", "document")
PROJECTIONS = ("frame", "fisheye")
NUMBERS = ("f", "cx", "cy", "k1", "k2", "k3", "k4", "p1", "p2", "p3", "p4", "b1", "b2")
IGNORED = ("projection", "width", "height", "date", "resolution", "covariance")


class MetashapeSource(CalibrationSource):
    """Sensors of a document have their labels; a calibration alone serves all photos of its size."""

    NAME, TITLE, CENTER, PER_PHOTO = "metashape", "Metashape", 0.5, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        root = file.xml_root
        return root is not None and root.tag in ROOTS and next(_iterate_calibrations(root), None) is not None

    @classmethod
    def open(cls, file: ParsedFile) -> "MetashapeSource":
        assert file.xml_root is not None
        lenses = []
        for label, element in _iterate_calibrations(file.xml_root):
            try:
                lenses.append(Lens.from_camera(label, _build_camera(element)))
            except ValueError as error:
                raise ValueError(f"{file.path}: {f'sensor {label}: ' if label else ''}{error}") from None
        is_document = file.xml_root.tag == "document"
        notes = [f"{file.path}: lenses are read, poses of its cameras are not"] if is_document else []
        return cls(file.path, lenses, notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """<?xml version="1.0" encoding="UTF-8"?>
<calibration>
  <projection>frame</projection>
  <width>640</width>
  <height>480</height>
  <f>520.5</f>
  <cx>1.5</cx>
  <cy>-2.25</cy>
  <b1>0.75</b1>
  <k1>-0.1</k1>
  <k2>0.02</k2>
  <k3>-0.001</k3>
  <p1>0.0005</p1>
  <p2>-0.0003</p2>
</calibration>
"""
        write_atomically(folder / "calibration.xml", text)
        affine = {"fx": 521.25, "fy": 520.5, "cx": 321.5, "cy": 237.75}
        series = {"k1": -0.1, "k2": 0.02, "k3": -0.001, "p1": -0.0003, "p2": 0.0005}
        camera = OpenCV.make(640, 480, **affine, **series, dtype=torch.float64)
        return Example(folder / "calibration.xml", "a.png", camera)


def _iterate_calibrations(root: Element) -> Iterator[tuple[str, Element]]:
    """Yield labels with calibrations: of each sensor the adjusted one, which comes before the initial one."""
    if root.tag == "calibration":
        if root.find("f") is not None or root.find("projection") is not None:
            yield "", root
        return
    for sensor in root.iter("sensor"):
        found = sensor.findall("calibration")
        chosen = next((one for one in found if one.get("class") == "adjusted"), found[0] if found else None)
        if chosen is not None:
            chosen.set("type", chosen.get("type") or sensor.get("type") or "frame")
            yield (sensor.get("label") or "")[:200], chosen


def _build_camera(element: Element) -> Camera:
    projection = element.findtext("projection") or element.get("type") or "frame"
    if projection not in PROJECTIONS:
        raise ValueError(
            f"projection {describe(projection)} is not read; it can be frame or fisheye: calibrate with one"
        )
    values = {name: parse_number(element.findtext(name, "0"), name) for name in NUMBERS}
    unknown = [child.tag for child in element if child.tag not in (*NUMBERS, *IGNORED)]
    if unknown:
        raise ValueError(f"entry {describe(unknown[0])} is not known and may change the lens: remove it")
    refused = [name for name in ("b2", "p3", "p4") if values[name]]
    refused += ["k4"] if projection == "frame" and values["k4"] else []
    refused += [name for name in ("p1", "p2") if values[name]] if projection == "fisheye" else []
    if refused:
        raise ValueError(
            f"{refused[0]} of a {projection} camera is not 0, which no camera here has: calibrate with it fixed to 0"
        )
    width, height = _parse_size(element)
    affine = {
        "fx": values["f"] + values["b1"],
        "fy": values["f"],
        "cx": width / 2 + values["cx"],
        "cy": height / 2 + values["cy"],
    }
    series = {name: values[name] for name in ("k1", "k2", "k3")}
    if projection == "fisheye":
        return OpenCVFisheye.make(width, height, dtype=torch.float64, **affine, **series, k4=values["k4"])
    series |= {"p1": values["p2"], "p2": values["p1"]}
    if not any(series.values()):
        return Pinhole.make(width, height, dtype=torch.float64, **affine)
    return OpenCV.make(width, height, dtype=torch.float64, **affine, **series)


def _parse_size(element: Element) -> tuple[int, int]:
    resolution = element.find("resolution")
    if resolution is not None:
        width, height = (parse_positive_int(resolution.get(name), name) for name in ("width", "height"))
    else:
        width, height = (parse_positive_int(element.findtext(name), name) for name in ("width", "height"))
    return width, height
