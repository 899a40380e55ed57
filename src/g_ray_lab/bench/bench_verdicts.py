"""Benchmark the verdict against the truth: rendered rooms with right and wrong lenses, poses, steps and mixtures.

Every case is a set of photographs with exact depth, and what a user gives with them. `run_case` reconstructs it and
puts the grade beside the true error. A "good" above a wrong depth is a false good; another grade above a right one,
where nothing that was given is wrong, is a false alarm.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import reconstruct_views
from g_ray.runtime.files import write_atomically
from g_ray.stereo import StereoOptions

WIDTH, HEIGHT = 256, 192
LONG_SIDE = 128
"""Smallest sizes at which features and stereo still work in these rooms."""
RIGHT_DEPTH = 0.05
"""Largest median error of depth, after one scale, that a good result may have."""
CLEARLY_RIGHT = 0.02
"""Median error up to which a result should be called good."""
CENTER = {"cx": WIDTH / 2, "cy": HEIGHT / 2, "dtype": torch.float64}
LENSES: dict[str, Camera] = {
    "pinhole": Pinhole.make(WIDTH, HEIGHT, fx=200.0, fy=200.0, **CENTER),
    "distorted": OpenCV.make(WIDTH, HEIGHT, fx=180.0, fy=180.0, k1=-0.15, k2=0.02, **CENTER),
    "fisheye": OpenCVFisheye.make(WIDTH, HEIGHT, fx=105.0, fy=105.0, k1=0.02, k2=-0.003, **CENTER),
}


@dataclass(frozen=True)
class Case:
    """What is photographed through which lens, and what is given instead of the truth."""

    name: str
    kind: str
    seed: int = 0
    lens: str = "pinhole"
    step: float = 0.25
    """Meters between views; distances in the room are 2 to 4 m."""
    views: int = 4
    given: Camera | None = None
    """Another lens than the true one."""
    pose_noise: float | None = None
    """Poses are given, turned by this many degrees and moved by two centimeters per degree; None: not given."""
    mirrored: bool = False
    strangers: int = 0
    """Photographs of another room among them."""

    @property
    def is_flawed(self) -> bool:
        """Whether something that is given is wrong."""
        return self.given is not None or bool(self.pose_noise) or self.strangers > 0


def list_cases() -> Iterator[Case]:
    """Yield the cases of the table."""
    for lens in LENSES:
        for seed in range(6):
            yield Case(f"{lens}, room {seed}", "right", seed, lens, (0.25, 0.35)[seed % 2], 4 + seed % 2)
    for step in (0.1, 0.05, 0.02, 0.014, 0.01, 0.005, 0.002):
        for seed in (0, 3):
            yield Case(f"steps of {1000 * step:.0f} mm, room {seed}", "small parallax", seed, step=step)
    focal = 200.0
    for seed in (0, 1, 3):
        for factor in (0.7, 0.85, 1.15, 1.3):
            wrong = Pinhole.make(WIDTH, HEIGHT, fx=factor * focal, fy=factor * focal, **CENTER)
            yield Case(f"focal length × {factor}, room {seed}", "wrong lens", seed, views=5, given=wrong)
        for k1 in (-0.25, 0.25):
            wrong = OpenCV.make(WIDTH, HEIGHT, fx=focal, fy=focal, k1=k1, **CENTER)
            yield Case(f"k1 = {k1}, room {seed}", "wrong lens", seed, views=5, given=wrong)
        wrong = Pinhole.make(WIDTH, HEIGHT, fx=focal, fy=focal, **(CENTER | {"cx": WIDTH / 2 + 25}))
        yield Case(f"center off by 25 px, room {seed}", "wrong lens", seed, views=5, given=wrong)
        yield Case(f"mirrored, room {seed}", "mirrored", seed, mirrored=True)
        for noise in (0.0, 0.3, 1.0, 4.0):
            yield Case(f"poses off by {noise}°, room {seed}", "given poses", seed, pose_noise=noise)
    for seed, strangers in ((0, 1), (1, 2), (3, 4)):
        yield Case(
            f"{strangers} photographs of another room, room {seed}", "mixture", seed, strangers=strangers
        )


def render_case(case: Case) -> list[View]:
    """Render photographs with true cameras, poses and depth."""
    shots = _render(case, case.seed, case.views)
    strange = _render(case, case.seed + 100, case.strangers)
    return [replace(view, name=f"v{number:02d}.png") for number, view in enumerate([*shots, *strange])]


def _render(case: Case, seed: int, count: int) -> list[View]:
    if not count:
        return []
    room, camera = make_random_room(seed), LENSES[case.lens]
    shots = []
    for number in range(count):
        # Not on a line: the views of a hand-held camera.
        wobble = 0.3 * math.sin(2.3 * number + seed)
        offset = torch.tensor([0.75 * number, wobble, -0.6 * number + wobble], dtype=torch.float64)
        eye = torch.tensor([1.0, -0.2, 1.5], dtype=torch.float64) + case.step * offset
        pose = Pose.look_at(eye, torch.tensor([-0.6, 0.4, -0.6], dtype=torch.float64))
        seen = room.render(camera.to(torch.float32), pose.to(torch.float32))
        image = (255 * seen.rgb.permute(2, 0, 1)).round() / 255
        depth = seen.ray_depth
        if case.mirrored:
            image, depth = image.flip(-1), depth.flip(-1)
        shots.append(View("", camera, pose, "rendered", image.float(), depth=depth.float()))
    return shots


def run_case(case: Case) -> dict[str, Any]:
    """Reconstruct a case; returns its grade, the worst limit, and the true error of depth."""
    row = {"name": case.name, "kind": case.kind, "flawed": case.is_flawed}
    truth = render_case(case)
    given = case.given or LENSES[case.lens]
    views = [replace(view, camera=given, pose=None, depth=None) for view in truth]
    known = None
    if case.pose_noise is not None:
        known = KnownGeometry(poses=_disturb([view.get_pose() for view in truth], case.pose_noise))
    predictor = StereoPredictor(stereo=StereoOptions(long_side=LONG_SIDE))
    try:
        result = reconstruct_views(SceneInput(views), predictor, known=known)
    except ValueError as error:
        return row | {"grade": "refused", "limit": str(error)}
    quality = result.quality
    exact = {view.name: view for view in truth[: case.views]}
    error, samples = measure_true_error(result.views, exact)
    return row | {
        "grade": quality["grade"],
        "limit": quality["limit"],
        "placed": quality["placed"] / quality["views"],
        "share_with_depth": quality["share_with_depth"],
        "expected_error": quality["expected_error"],
        "true_error": error,
        "samples": samples,
        "lens": quality.get("lens"),
        "pose_excess_px": quality.get("pose_excess_px"),
    }


def measure_true_error(views: Sequence[Any], truth: dict[str, View]) -> tuple[float, list[list[float]]]:
    """Return the median relative error after one scale, and expected and true errors of a few hundred pixels."""
    estimated, exact, expected = [], [], []
    for view in views:
        true = truth.get(view.name)
        if true is None:
            continue
        depth = true.load_ray_depth()
        height, width = view.ray_depth.shape
        small = depth[_sample(height, depth.shape[0])][:, _sample(width, depth.shape[1])]
        valid = view.valid & (small > 0)
        estimated.append(view.ray_depth[valid])
        exact.append(small[valid])
        expected.append(view.expected_error[valid])
    ours, true = torch.cat(estimated).double(), torch.cat(exact).double()
    if not len(ours):
        return math.inf, []
    error = (ours * (true / ours).median() / true - 1).abs()
    step = max(1, len(error) // 300)
    pairs = torch.stack([torch.cat(expected).double(), error], -1)[::step]
    return float(error.median()), pairs.tolist()


def _sample(count: int, total: int) -> Tensor:
    return ((torch.arange(count) + 0.5) * total / count).long()


def _disturb(poses: Sequence[Pose], degrees: float) -> list[Pose]:
    generator = torch.Generator().manual_seed(1)
    disturbed = []
    for pose in poses:
        turn, shift = torch.randn(2, 3, generator=generator, dtype=torch.float64)
        axis = math.radians(degrees) / math.sqrt(3) * turn
        skew = torch.zeros(3, 3, dtype=torch.float64)
        skew[0, 1], skew[0, 2], skew[1, 2] = -axis[2], axis[1], -axis[0]
        rotation = pose.rotation.double() @ torch.linalg.matrix_exp(skew - skew.mT)
        place = pose.translation.double() + 0.02 * degrees / math.sqrt(3) * shift
        disturbed.append(Pose.from_parts(rotation, place))
    return disturbed


def is_false_good(row: dict[str, Any]) -> bool:
    return row["grade"] == "good" and not row["true_error"] <= RIGHT_DEPTH


def is_false_alarm(row: dict[str, Any]) -> bool:
    """Whether a right result, of right inputs, is not called good."""
    if row["flawed"] or row["grade"] in ("good", "refused"):
        return False
    right = row["true_error"] <= CLEARLY_RIGHT and row["placed"] == 1 and row["share_with_depth"] >= 0.2
    return right


# The table and the diagram


def benchmark_verdicts(out: Path, progress: Callable[[str], None]) -> None:
    """Run the cases that `out` does not have yet, and write the table and the reliability diagram."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {row["name"] for row in rows}
    for case in list_cases():
        if case.name in done:
            continue
        row = run_case(case)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        rows.append(row)
        progress(f"{case.name}: {row['grade']}, {row['limit']}")
    write_atomically(out / "verdicts.md", format_verdicts(rows) + "\n" + format_reliability(rows))
    draw_reliability(rows, out / "reliability.png")


def format_verdicts(rows: Sequence[dict[str, Any]]) -> str:
    """Format a line per case, and the counts above them."""
    counted = [row for row in rows if not row["flawed"]]
    right = [row for row in counted if is_false_alarm(row) or row["grade"] == "good"]
    lines = [
        f"{len(rows)} runs: {sum(map(is_false_good, rows))} false good, "
        f"{sum(map(is_false_alarm, rows))} false alarms of {len(right)} right results.",
        "",
        "| case | kind | grade | true error | expected | pixels | what the user reads |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["kind"], row["name"])):
        figures = ["–"] * 3
        if "true_error" in row:
            figures = [
                f"{100 * row[key]:.2g} %" for key in ("true_error", "expected_error", "share_with_depth")
            ]
        mark = " **(false)**" if is_false_good(row) else " (false alarm)" if is_false_alarm(row) else ""
        cells = (row["name"], row["kind"], row["grade"] + mark, *figures, row["limit"])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


EDGES = tuple(10 ** (exponent / 4) for exponent in range(-12, 1))
"""Bins of the expected error, four per decade from 0.1 % to 100 %."""


def collect_reliability(rows: Sequence[dict[str, Any]]) -> list[tuple[float, float, int]]:
    """Return the median expected and true error, and the pixels, of each bin of runs whose inputs are right."""
    samples = [sample for row in rows if not row["flawed"] for sample in row.get("samples", ())]
    table = torch.tensor(samples, dtype=torch.float64).reshape(-1, 2)
    bins = []
    for low, high in pairwise(EDGES):
        chosen = table[(table[:, 0] >= low) & (table[:, 0] < high)]
        if len(chosen) >= 50:
            expected, true = chosen.median(0).values.tolist()
            bins.append((expected, true, len(chosen)))
    return bins


def format_reliability(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| expected error | true error, median | ratio | pixels |", "|---|---|---|---|"]
    for expected, true, count in collect_reliability(rows):
        lines.append(f"| {100 * expected:.2g} % | {100 * true:.2g} % | {true / expected:.2f} | {count} |")
    return "\n".join(lines) + "\n"


def draw_reliability(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw expected against true error, with the band of a factor 1.5."""
    from matplotlib.figure import Figure

    expected, true, _ = zip(*collect_reliability(rows), strict=True)
    figure = Figure(figsize=(4.5, 4.0), layout="constrained")
    axes = figure.subplots()
    ends = (min(expected) / 1.5, max(expected) * 1.5)
    axes.fill_between(ends, [x / 1.5 for x in ends], [x * 1.5 for x in ends], alpha=0.15, label="factor 1.5")
    axes.plot(ends, ends, linewidth=0.8)
    axes.plot(expected, true, "o-", label="rendered rooms")
    axes.set(
        xscale="log", yscale="log", xlabel="expected relative error", ylabel="true relative error, median"
    )
    axes.legend()
    figure.savefig(path, dpi=110)
