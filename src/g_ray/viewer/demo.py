"""The demo: one room, one pose, three lenses, and what position means in each."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import radians, tan
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.data.rooms import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.viewer.angle_maps import LensView, draw_angle_maps
from g_ray.viewer.page import write_page
from g_ray.viewer.phase_figure import DialRow, draw_phase_figure
from g_ray.viewer.phases import PhaseComparison, compare_phases, compute_spread, draw_shared_ray_pairs
from g_ray.viewer.prior_figure import draw_prior_figure
from g_ray.viewer.priors import BANKS, G_RAY_FINE, GRID_ROPE, compute_peak_error_deg
from g_ray.viewer.theme import DARK, LIGHT, write_png

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
    """A wide pinhole, a tele pinhole and a four-coefficient fisheye, images still to come."""
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
    """Render, measure, draw; leaves index.html, PNGs and numbers.json in `out`."""
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
    """Everything that the page and the terminal say, as plain data."""
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
