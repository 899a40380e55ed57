"""The demo's page: one HTML file that needs no network, with the figures and a probe to click on inside it."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from g_ray.viewer.angle_maps import LensView
from g_ray.viewer.colours import CAMERA_COLORS
from g_ray.viewer.embed import encode_jpeg, make_data_uri, read_asset
from g_ray.viewer.priors import Bank, make_token_grids


def write_page(
    out: Path,
    views: Sequence[LensView],
    patch: int,
    query: tuple[int, int, int],
    banks: Sequence[Bank],
    numbers: dict[str, Any],
) -> Path:
    """Fill the template from the figures already in `out` and the numbers."""
    page = Template(read_asset("demo.html")).substitute(
        style=read_asset("page.css"),
        angle_maps=_format_picture(
            out, "angle-maps", "Image, horizontal and vertical ray angle for each of the lenses"
        ),
        phases=_format_picture(
            out, "phases", "One ray pair in three images; grid-index dials differ, ray-angle dials agree"
        ),
        priors=_format_picture(
            out, "priors", "Position-only prior of grid RoPE and of G-ray for one token in three views"
        ),
        phase_table=_format_phase_table(numbers),
        peak_table=_format_peak_table(numbers),
        pairs=len(numbers["pairs"]),
        grid_spread=f"{numbers['grid_spread_rad']:.1f}",
        ray_spread=_format_power(numbers["ray_spread_rad"]),
        ray_spread_float32=_format_power(numbers["ray_spread_float32_rad"]),
        probe=json.dumps(_build_probe(views, patch, query, banks)),
    )
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def _format_picture(out: Path, name: str, alt: str) -> str:
    """A figure that follows the reader's light or dark setting."""
    light, dark = (
        make_data_uri((out / f"{name}{suffix}.png").read_bytes(), "png") for suffix in ("", "-dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(alt)}"></picture>'
    )


def _format_power(value: float) -> str:
    """2e-15 as 2·10⁻¹⁵."""
    mantissa, exponent = f"{value:.0e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "0" if value == 0 else f"{mantissa}·10{raised}"


def _format_signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _format_phase_table(numbers: dict[str, Any]) -> str:
    short = [name.split()[0].rstrip(",") for name in numbers["cameras"]]
    cameras = "".join(f"<th scope='col'>{escape(name)}</th>" for name in short)
    head = (
        "<tr><th scope='col' rowspan='2'>Δθx, Δθy</th>"
        f"<th scope='colgroup' colspan='{len(numbers['cameras']) + 1}'>grid index: Δφ = ω₀ Δm, ω₀ = 1 / patch</th>"
        f"<th scope='colgroup' colspan='{len(numbers['cameras']) + 1}'>ray angle: Δφ = ω₀ Δθx, ω₀ = 10 / rad</th></tr>"
        f"<tr>{cameras}<th scope='col'>spread</th>{cameras}<th scope='col'>spread</th></tr>"
    )
    rows = []
    for pair in numbers["pairs"]:
        x, y = (_format_signed(angle, 1) for angle in pair["delta_theta_deg"])
        grid = "".join(f"<td>{_format_signed(phase, 2)}</td>" for phase in pair["grid_phase_rad"])
        ray = "".join(f"<td>{_format_signed(phase, 6)}</td>" for phase in pair["ray_phase_rad"])
        rows.append(
            f"<tr><th scope='row'>{x}°, {y}°</th>{grid}<td class='bad'>{pair['grid_spread_rad']:.2f}</td>"
            f"{ray}<td class='good'>{_format_power(pair['ray_spread_rad'])}</td></tr>"
        )
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _format_peak_table(numbers: dict[str, Any]) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in numbers["cameras"])
    rows = "".join(
        f"<tr><th scope='row'>{escape(title)}</th>"
        + "".join(f"<td>{error:.1f}°</td>" for error in errors)
        + "</tr>"
        for title, errors in numbers["peak_error_deg"].items()
    )
    return f"<table><thead><tr><th scope='col'>encoding</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _build_probe(
    views: Sequence[LensView], patch: int, query: tuple[int, int, int], banks: Sequence[Bank]
) -> dict[str, Any]:
    """What the script needs to evaluate the score itself: pictures, token positions, frequencies."""
    cameras = [view.camera for view in views]
    names = sorted({bank.coordinate for bank in banks} | {"tangent"})
    grids = {name: make_token_grids(cameras, patch, name) for name in names}
    return {
        "patch": patch,
        "query": list(query),
        "views": [
            {
                "name": view.name,
                "width": view.camera.width,
                "height": view.camera.height,
                "colour": CAMERA_COLORS[i],
                "image": make_data_uri(_encode_view(view), "jpeg"),
                "positions": {
                    n: [round(x, 5) for x in grids[n][i].positions.flatten().tolist()] for n in names
                },
                "rays": [round(x, 5) for x in grids["tangent"][i].directions.flatten().tolist()],
            }
            for i, view in enumerate(views)
        ],
        "banks": [
            {"title": b.title, "coordinate": b.coordinate, "frequencies": b.make_frequencies().tolist()}
            for b in banks
        ],
    }


def _encode_view(view: LensView) -> bytes:
    if view.image is None:
        raise ValueError(f"view {view.name!r} has no image to put on the page")
    return encode_jpeg((255 * view.image.clamp(0, 1)).round().byte().numpy(), quality=90)
