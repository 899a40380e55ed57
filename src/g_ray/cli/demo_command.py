"""`g-ray demo`: write a page that shows what the library does, and reconstruct a room."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g_ray.cli.text import format_table


@dataclass(frozen=True)
class Demo:
    """Make a page that shows one room through three lenses and what position means in each, and reconstruct a room."""

    out: Path = Path("out/demo")
    """Folder for the page (index.html), the figures (PNG), the numbers (JSON) and the reconstruction."""

    def run(self) -> None:
        started = time.monotonic()
        print("g-ray demo: loading torch", flush=True)
        import torch

        from g_ray.demo.demo_page import collect_numbers, write_demo
        from g_ray.runtime.out_folder import claim_out

        claim_out(self.out, "demo")
        torch.set_num_threads(1)  # tensors this small only lose time to threads waiting for each other
        result = write_demo(self.out, progress=lambda step: print(f"  {step}", flush=True))
        print("\n" + format_mismatch(collect_numbers(result)))
        print(
            "\n  reconstructing a room from a pinhole, three fisheyes and a tele lens by stereo", flush=True
        )
        folder = self.out / "reconstruction"
        print("\n" + write_reconstruction(folder))
        pages = f"{result.page} and {folder / 'report.html'}"
        print(f"\n{pages} are ready ({time.monotonic() - started:.0f} s); open them in a browser")


def write_reconstruction(folder: Path) -> str:
    """Write the reconstruction; return its scores and its verdict as text."""
    from g_ray.demo.demo_scene import write_reconstruction_demo

    demo = write_reconstruction_demo(folder)
    return "\n".join(
        [
            "Against the room's exact geometry (lenses given, poses estimated; depth over the pixels that have one):",
            "",
            format_scores(demo.scores),
            "",
            *demo.result.quality["verdict"],
            f"points: {folder / 'points.ply'}, depth: {folder / 'depths.png'}",
        ]
    )


def format_scores(scores: dict[str, dict[str, float]]) -> str:
    """Format the scores as a table with a row per model."""
    rows = [
        {
            "model": model,
            "positions off": f"{row['positions']:.1%} of extent",
            "rotations off": f"{row['rotations_deg']:.2f}°",
            "pixels with depth": f"{row['with_depth']:.0%}",
            "depth error": f"{row['depth_rel']:.3f}",
            "within 3 %": f"{row['depth_inlier']:.0%}",
        }
        for model, row in scores.items()
    ]
    return format_table(rows)


def format_mismatch(numbers: dict[str, Any]) -> str:
    """Format the phase mismatch as a table: ray pairs, relative phase per camera, spread over cameras."""
    short = [name.split()[0].rstrip(",") for name in numbers["cameras"]]
    rows = []
    for pair in numbers["pairs"]:
        row = {"Δθx, Δθy": "{:+.1f}°, {:+.1f}°".format(*pair["delta_theta_deg"])}
        row |= {f"grid {n}": f"{p:+.3f}" for n, p in zip(short, pair["grid_phase_rad"], strict=True)}
        row |= {"spread": f"{pair['grid_spread_rad']:.2f}"}
        row |= {f"ray {n}": f"{p:+.6f}" for n, p in zip(short, pair["ray_phase_rad"], strict=True)}
        rows.append(row | {"spread ": f"{pair['ray_spread_rad']:.0e}"})
    return "\n".join(
        [
            "Relative phase of the same ray pair through each lens, in radians (first frequency of the bank;",
            "spread: largest difference between lenses over both axes and the whole bank):",
            "",
            format_table(rows),
            "",
            f"grid index: lenses disagree by up to {numbers['grid_spread_rad']:.2f} rad",
            f"ray angle:  lenses agree to {numbers['ray_spread_rad']:.0e} rad "
            f"(float32: {numbers['ray_spread_float32_rad']:.0e})",
        ]
    )
