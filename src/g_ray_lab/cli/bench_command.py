"""`g-ray bench`: speed and memory on this machine, recorded with what is needed to compare it later."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from g_ray.cli.text import format_table
from g_ray.runtime.files import write_json


@dataclass(frozen=True)
class Encodings:
    """Attention with each encoding, as a ratio to plain scaled_dot_product_attention; one thread, interleaved."""

    views: int = 3
    """Number of views."""
    grid: int = 32
    """Tokens per side of a view: 32 means 1024 tokens."""
    batch: int = 2
    """Batch size."""
    repeats: int = 9
    """Rounds; every round times each encoding once, and the median counts."""
    json: Path | None = None
    """Write settings and rows to this file."""

    def run(self) -> None:
        require_positive(views=self.views, grid=self.grid, batch=self.batch, repeats=self.repeats)
        from g_ray_lab.bench.bench_encodings import benchmark_encodings

        report_result(
            benchmark_encodings(self.views, self.grid, self.batch, self.repeats, progress=print_progress),
            self.json,
        )


@dataclass(frozen=True)
class RayMaps:
    """Unit-ray maps of every lens, large ones and batches, against OpenCV on the same points; one thread each."""

    repeats: int = 3
    """Rounds; every round times OpenCV and both precisions once, and the median counts."""
    json: Path | None = None
    """Write settings and rows to this file."""

    def run(self) -> None:
        require_positive(repeats=self.repeats)
        from g_ray_lab.bench.bench_opencv import benchmark_rays

        report_result(benchmark_rays(self.repeats, progress=print_progress), self.json)


@dataclass(frozen=True)
class Stereo:
    """Stereo of a fisheye photograph: CPU seconds by pixels, hypotheses and sources; rectified pairs against OpenCV."""

    repeats: int = 1
    """Rounds; the fastest counts."""
    pairs: tuple[Path, ...] = ()
    """Folders of rectified pairs with true disparity (Middlebury), compared with OpenCV's StereoSGBM."""
    json: Path | None = None
    """Write settings and rows to this file."""

    def run(self) -> None:
        require_positive(repeats=self.repeats)
        from g_ray_lab.bench.bench_opencv import benchmark_stereo

        report_result(benchmark_stereo(self.repeats, self.pairs), self.json)


@dataclass(frozen=True)
class RayCoordinates:
    """How well each ray coordinate orders ray pairs by angle, and how hard it jumps, up to 240° of field of view."""

    json: Path | None = None
    """Write settings and rows to this file."""

    def run(self) -> None:
        from g_ray_lab.bench.bench_encodings import compare_coordinates

        report_result(compare_coordinates(), self.json)


@dataclass(frozen=True)
class ReconstructionBench:
    """A whole reconstruction, part by part: CPU seconds and peak memory, G-ray against grid RoPE in the same run."""

    views: tuple[int, ...] = (2, 4, 8)
    """Numbers of views, each a case of its own."""
    size: int = 224
    """Side of the square images in pixels."""
    model: Literal["tiny", "rooms", "small", "paper"] = "small"
    """Size of the network; paper takes 4 GB and minutes."""
    repeats: int = 5
    """Rounds; every round times both methods once, and the median counts."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 runs the trunk under autocast, as reconstruct(precision="bf16") does."""
    json: Path | None = None
    """Write settings and rows to this file."""

    def run(self) -> None:
        from g_ray_lab.bench.bench_reconstruction import benchmark_reconstruction

        result = benchmark_reconstruction(
            self.views,
            self.size,
            self.model,
            repeats=self.repeats,
            precision=self.precision,
            progress=print_progress,
        )
        report_result(result, self.json)
        for method, steps in result["settings"]["growth"].items():
            for step in steps or []:
                print(
                    f"{method}: {step['mb_per_view']:.1f} MB per view from {step['from']} to {step['to']} views"
                )


@dataclass(frozen=True)
class Verdicts:
    """Verdicts against the truth: rooms and real photographs with right and wrong lenses, poses, steps and mixtures."""

    out: Path
    """Folder for rows.jsonl, tables and reliability.png; finished cases there are not run again."""
    data: Path | None = None
    """Folder of the dataset real-small; without it there are rendered rooms alone."""

    def run(self) -> None:
        from g_ray_lab.bench.bench_verdicts import benchmark_verdicts

        benchmark_verdicts(self.out, self.data, print_progress)


@dataclass(frozen=True)
class Meshes:
    """Textured meshes of rooms and scanned objects: surface against Poisson of true points, texture against warps."""

    out: Path
    """Folder for rows.jsonl and table.md; finished scenes there are not run again."""
    objects: Path | None = None
    """Folder of scanned meshes (npz); without it there are rendered rooms alone."""

    def run(self) -> None:
        from g_ray_lab.bench.bench_meshes import benchmark_meshes

        benchmark_meshes(self.out, self.objects, print_progress)


@dataclass(frozen=True)
class AnyLens:
    """Depth from posed photographs through twelve lenses, also mixed, with exact truth: our methods, and yours."""

    out: Path
    """Folder for rows.jsonl and the tables; what is there is not computed again."""
    method: Path | None = None
    """Python file with a function estimate(images, cameras, poses, near, far) that returns ray distances."""
    depths: Path | None = None
    """Folder with ray distances SET/0.npy … of the photographs that --export writes."""
    only: tuple[str, ...] = ()
    """Methods of ours that are run, by words of their names; all by default."""
    weights: Path | None = None
    """Weights of learned stereo, instead of those that come with g-ray."""
    sets: int | None = None
    """The first sets only, of 24."""
    export: Path | None = None
    """Write photographs, cameras, poses and ranges to this folder, and run nothing."""

    def run(self) -> None:
        from g_ray_lab.bench import bench_any_lens as bench

        if self.sets is not None:
            require_positive(sets=self.sets)
        if self.export is not None:
            bench.export_any_lens(self.export, self.sets, print_progress)
            return
        own = {} if self.method is None else {self.method.stem: bench.load_method(self.method)}
        methods = {**own, **bench.make_methods(self.weights, self.only)}
        print(bench.benchmark_any_lens(self.out, methods, self.depths, self.sets, print_progress))


@dataclass(frozen=True)
class Bench:
    """Measure: encodings, ray maps, reconstruction, stereo, verdicts and meshes, and what coordinates are worth."""

    what: (
        Annotated[Encodings, tyro.conf.subcommand("encodings")]
        | Annotated[RayMaps, tyro.conf.subcommand("rays")]
        | Annotated[ReconstructionBench, tyro.conf.subcommand("reconstruction")]
        | Annotated[Stereo, tyro.conf.subcommand("stereo")]
        | Annotated[AnyLens, tyro.conf.subcommand("any-lens")]
        | Annotated[Verdicts, tyro.conf.subcommand("verdicts")]
        | Annotated[Meshes, tyro.conf.subcommand("meshes")]
        | Annotated[RayCoordinates, tyro.conf.subcommand("coordinates")]
    )

    def run(self) -> None:
        self.what.run()


def require_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"--{name} must be at least 1, got {count}")


def print_progress(step: str) -> None:
    print(f"  {step}", flush=True)


def report_result(result: dict[str, Any], path: Path | None) -> None:
    """Print the rows; with a path, keep them together with machine, date, commit and versions."""
    from g_ray.runtime.provenance import collect_provenance

    recorded = {**result, "settings": {**result["settings"], **collect_provenance()}}
    for table in (part for name, part in result.items() if name != "settings" and part):
        print("\n" + format_table(table))
    if path is not None:
        write_json(path, recorded, indent=2)
        print(f"\nwrote {path}")
