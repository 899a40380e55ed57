"""Render, measure and draw the demo, and write its page: one HTML file with the figures and a probe to click on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import radians, tan
from pathlib import Path
from string import Template
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.phases import (
    DialRow,
    PhaseComparison,
    compare_phases,
    compute_spread,
    draw_phase_figure,
    draw_shared_ray_pairs,
)
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.viewer.angle_maps import LensView, draw_angle_maps
from g_ray.viewer.colors import CAMERA_COLORS
from g_ray.viewer.embed import encode_jpeg, make_data_uri, read_asset
from g_ray.viewer.priors import (
    BANKS,
    G_RAY_FINE,
    GRID_ROPE,
    Bank,
    compute_peak_error_deg,
    draw_prior_figure,
    make_token_grids,
)
from g_ray.viewer.theme import DARK, LIGHT, write_png


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
    """Format a figure that follows the reader's light or dark setting."""
    light, dark = (
        make_data_uri((out / f"{name}{suffix}.png").read_bytes(), "png") for suffix in ("", "-dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(alt)}"></picture>'
    )


def _format_power(value: float) -> str:
    """Format 2e-15 as 2·10⁻¹⁵."""
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
    """Collect what the script needs to evaluate the score: pictures, token positions, frequencies."""
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
                "color": CAMERA_COLORS[i],
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


# The demo: one room, one pose, three lenses, and what position means in each.


PATCH = 16
SEED = 3
PAIRS = 6
QUERY = (0, 10, 16)  # view, row, column of the token that the prior is shown for
FIGURE_PAIR_DEG = ((-6.5, 3.5), (6.5, 3.5))  # (θx, θy) of the two rays in the picture


@dataclass(frozen=True)
class DemoResult:
    """Numbers behind the page: relative phases per pair and camera, and how far each prior's peak is off."""

    page: Path
    cameras: tuple[str, ...]
    phases: PhaseComparison  # float64, the drawn pair first
    float32_spread_rad: float  # of the ray phases when everything runs in float32
    peak_error_deg: dict[str, list[float]]  # per encoding, per view


def make_demo_views() -> list[LensView]:
    """Make a wide pinhole, a tele pinhole and a four-coefficient fisheye, without images yet."""
    wide = Pinhole.from_fov(80.0, 384, 288)
    tele = Pinhole.from_fov(38.0, 384, 288)
    fisheye = OpenCVFisheye.make(
        384, 288, fx=158.0, fy=158.0, cx=192.0, cy=144.0, k1=0.012, k2=-0.006, k3=0.001, k4=-0.0001
    )
    return [
        LensView(f"{name}, {float(camera.fov().horizontal_deg):.0f}°", camera)
        for name, camera in (("wide pinhole", wide), ("tele pinhole", tele), ("fisheye", fisheye))
    ]


def write_demo(out: Path, progress: Callable[[str], None]) -> DemoResult:
    """Render, measure and draw; writes index.html, PNGs and numbers.json to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    progress("rendering the room through three lenses")
    views = _render_views(make_demo_views())
    progress("comparing phases of shared ray pairs")
    phases = _compare_cameras([view.camera.to(dtype=torch.float64) for view in views])
    single = _compare_cameras([view.camera for view in views])
    progress("drawing")
    _draw_figures(out, views, phases)
    cameras = [view.camera for view in views]
    result = DemoResult(
        page=out / "index.html",
        cameras=tuple(view.name for view in views),
        phases=phases,
        float32_spread_rad=float(compute_spread(single.ray).max()),
        peak_error_deg={bank.title: compute_peak_error_deg(cameras, PATCH, QUERY, bank) for bank in BANKS},
    )
    progress("writing the page")
    (out / "numbers.json").write_text(
        json.dumps(collect_numbers(result), indent=2, ensure_ascii=False) + "\n"
    )
    write_page(out, views, PATCH, QUERY, BANKS, collect_numbers(result))
    return result


def collect_numbers(result: DemoResult) -> dict[str, object]:
    """Collect all numbers of the page and the terminal as plain data."""
    phases = result.phases
    return {
        "cameras": list(result.cameras),
        "patch_px": PATCH,
        "frequencies_grid": GRID_ROPE.make_frequencies().tolist(),
        "frequencies_ray": G_RAY_FINE.make_frequencies().tolist(),
        "pairs": [
            {
                "delta_theta_deg": torch.rad2deg(phases.angles[i, 0, 1] - phases.angles[i, 0, 0]).tolist(),
                "grid_phase_rad": phases.grid[i, :, 0, 0].tolist(),
                "ray_phase_rad": phases.ray[i, :, 0, 0].tolist(),
                "grid_spread_rad": float(compute_spread(phases.grid)[i]),
                "ray_spread_rad": float(compute_spread(phases.ray)[i]),
            }
            for i in range(len(phases.pixels))
        ],
        "grid_spread_rad": float(compute_spread(phases.grid).max()),
        "ray_spread_rad": float(compute_spread(phases.ray).max()),
        "ray_spread_float32_rad": result.float32_spread_rad,
        "peak_error_deg": result.peak_error_deg,
    }


def _render_views(views: Sequence[LensView]) -> list[LensView]:
    room = make_random_room(SEED)
    eye = room.half_size * torch.tensor([-0.72, -0.12, -0.78])
    pose = Pose.look_at(eye, torch.tensor([0.25, 0.45, 0.35]))
    return [LensView(v.name, v.camera, room.render(v.camera, pose, antialias=2).rgb) for v in views]


def _compare_cameras(cameras: Sequence[Camera]) -> PhaseComparison:
    drawn_pair = torch.stack([_make_ray(*angles) for angles in FIGURE_PAIR_DEG])[None].to(cameras[0].dtype)
    pairs = torch.cat([drawn_pair, draw_shared_ray_pairs(cameras, PAIRS - 1, seed=SEED)])
    return compare_phases(cameras, pairs, PATCH, GRID_ROPE.make_frequencies(), G_RAY_FINE.make_frequencies())


def _make_ray(theta_x_deg: float, theta_y_deg: float) -> Float[Tensor, "3"]:
    ray = torch.tensor([tan(radians(theta_x_deg)), tan(radians(theta_y_deg)), 1.0], dtype=torch.float64)
    return ray / ray.norm()


def _draw_figures(out: Path, views: Sequence[LensView], phases: PhaseComparison) -> None:
    grid, ray = 4, 0  # frequencies at which one turn of the dial holds the phases
    grid_omega, ray_omega = GRID_ROPE.make_frequencies()[grid], G_RAY_FINE.make_frequencies()[ray]
    rows = [
        DialRow(f"grid-index phase\nω = {grid_omega:.2f} / patch", phases.grid[0, :, 0, grid].tolist(), 2),
        DialRow(f"ray-angle phase\nω = {ray_omega:.0f} / rad", phases.ray[0, :, 0, ray].tolist(), 6),
    ]
    for theme in (LIGHT, DARK):
        suffix = "" if theme is LIGHT else "-dark"
        write_png(draw_angle_maps(views, theme), out / f"angle-maps{suffix}.png")
        write_png(draw_phase_figure(views, phases, 0, PATCH, rows, theme), out / f"phases{suffix}.png")
        write_png(draw_prior_figure(views, PATCH, QUERY, BANKS, theme), out / f"priors{suffix}.png")
