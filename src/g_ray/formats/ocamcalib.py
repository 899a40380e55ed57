"""Read OCamCalib's text files (calib_results.txt), which OmniMVS and MultiCol-SLAM use too.

Numbers in lines of their own, comments start with #:

    n A0 … A(n−1)       f(ρ), whose ray is (row, column, f) with the axis backwards; A1 is 0
    m B0 … B(m−1)       its inverse, which is not read: it is a fit, and the camera inverts f itself
    row column          the center, with pixel centers at integers
    c d e               (row, column) = [[c, d], [e, 1]] (row′, column′), from the ideal to the real image
    height width
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.ocam import OCam
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import NUMBERS_START, ParsedFile, describe, parse_number, parse_positive_int
from g_ray.runtime.files import write_atomically

TITLE_LINE = f"{NUMBERS_START} for the DIRECT mapping function"
ORDERS = (2, 3, 4, 5, 6)
"""Powers of the radius that the camera has coefficients for."""


class OCamCalibSource(CalibrationSource):
    """One camera. The name of the file, without `calib_results`, is a folder of photos, or it serves all of its
    size."""

    NAME, TITLE, CENTER, PER_PHOTO = "ocamcalib", "OCamCalib", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.is_list_of_numbers and file.text.startswith(TITLE_LINE)

    @classmethod
    def open(cls, file: ParsedFile) -> "OCamCalibSource":
        lines = [line.split() for line in file.text.splitlines() if line.strip() and line.strip()[0] != "#"]
        try:
            size, build = _parse_lines(lines, 0.5 - cls.CENTER)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        label = file.path.stem.removeprefix("calib_results").strip("_-. ")
        return cls(file.path, [Lens(label, build, size)])

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = f"""{TITLE_LINE} (ocam_model.ss in MATLAB). These are used by cam2world

5 -2.0e+02 0.0e+00 1.6e-03 -1.0e-06 2.5e-09

#polynomial coefficients for the inverse mapping function (ocam_model.invpol in MATLAB). These are used by world2cam

3 300.0 150.0 -10.0

#center: "row" and "column", starting from 0 (C convention)

239.5 319.5

#affine parameters "c", "d", "e"

0.99 0.0002 0.0001

#image size: "height" and "width"

480 640
"""
        write_atomically(folder / "calib_results_cam1.txt", text)
        camera = OCam.make(
            640,
            480,
            fx=200.0,
            fy=198.0,
            cx=320.0,
            cy=240.0,
            a2=-0.32,
            a3=0.04,
            a4=-0.02,
            a5=0.0,
            a6=0.0,
            s=0.0001,
            t=0.0002 / 0.99,
            dtype=torch.float64,
        )
        return Example(folder / "calib_results_cam1.txt", "cam1/0001.png", camera)


def _parse_lines(
    lines: Sequence[Sequence[str]], shift: float
) -> tuple[tuple[int, int], Callable[[int, int], Camera]]:
    names = ("polynomial", "inverse polynomial", "center", "affine parameters", "image size")
    if len(lines) < len(names):
        raise ValueError(f"it ends before the {names[len(lines)]}; export it again with OCamCalib")
    count, *polynomial = (parse_number(_to_float(word), "a coefficient") for word in lines[0])
    if count != len(polynomial):
        raise ValueError(f"a polynomial of {count:g} coefficients has {len(polynomial)} of them")
    row, column = _parse_numbers(lines[2], 2, "the center")
    c, d, e = _parse_numbers(lines[3], 3, "the affine parameters")
    height, width = (
        parse_positive_int(int(n), "the image size") for n in _parse_numbers(lines[4], 2, "the image size")
    )
    # Rows come first in the file: c belongs to the height, e shears columns.
    affine = ((1.0, e), (d, c))
    return (width, height), make_ocam_builder(polynomial, affine, (column + shift, row + shift))


def make_ocam_builder(
    polynomial: Sequence[float], affine: Sequence[Sequence[float]], center: tuple[float, float]
) -> Callable[[int, int], Camera]:
    """Return a function that makes the camera for a width and a height.

    `polynomial` has A0, A1, …; `affine` maps ideal to real (column, row), `center` is (column, row) with our pixel
    convention.
    """
    first, second, *rest = (*polynomial, 0.0, 0.0)[: max(2, len(polynomial))]
    if not first < 0:
        raise ValueError(
            f"A0 = {first:g}: the polynomial must begin with a negative number, minus the focal length"
        )
    if second != 0:
        raise ValueError(f"A1 = {second:g}: it must be 0, or the image would have a tip in its center")
    if any(rest[len(ORDERS) :]):
        raise ValueError(
            f"a polynomial of more than {max(ORDERS) + 1} coefficients is not read; fit a smaller one"
        )
    (a, b), (c, d) = affine
    if min(a, d) <= 0:
        raise ValueError(f"affine parameters {a:g} and {d:g} mirror the image; expected about 1")
    values = {"fx": -first * a, "fy": -first * d, "cx": center[0], "cy": center[1], "s": b / a, "t": c / d}
    padded = [*rest, *(0.0 for _ in ORDERS)]
    values |= {f"a{n}": -padded[i] * (-first) ** (n - 1) for i, n in enumerate(ORDERS)}
    return lambda width, height: OCam.make(width, height, dtype=torch.float64, **values)


def _parse_numbers(words: Sequence[str], count: int, what: str) -> list[float]:
    if len(words) != count:
        raise ValueError(f"{what} should be {count} numbers, not {describe(' '.join(words))}")
    return [parse_number(_to_float(word), what) for word in words]


def _to_float(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word
