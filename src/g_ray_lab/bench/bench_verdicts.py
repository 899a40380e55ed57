"""Benchmark the verdict against the truth, and the errors that a reconstruction expects against the true ones.

`run_case` reconstructs a case (`g_ray_lab.bench.verdict_cases`) and puts the grade beside the true error. A "good"
above a wrong depth or a wrong lens is a false good; another grade above a right one, where nothing that was given is
wrong, is a false alarm.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.media.view import View
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import reconstruct_views
from g_ray.runtime.files import write_atomically
from g_ray.stereo import StereoOptions
from g_ray_lab.bench.verdict_cases import REAL_SIDE, Case, list_cases

STEREO_SHARE = 0.35
"""Long side of the depth maps, as a share of that of the photographs: the sweep is most of the time."""
RIGHT_DEPTH = 0.05
"""Largest median error of depth, after one scale, that a good result may have."""
CLEARLY_RIGHT = 0.02
"""Median error up to which a result should be called good."""
MIN_SHARE = 0.2
"""Share of pixels with depth from which a result should be called good."""
SAMPLES = 200
"""Pixels per run that the reliability diagram takes."""


def run_case(case: Case) -> dict[str, Any]:
    """Reconstruct a case; returns its grade, the worst limit, and the true error of depth."""
    truth = case.load()
    start = time.process_time()
    row: dict[str, Any] = {"name": case.name, "kind": case.kind, "chosen_on": case.chosen_on}
    row |= {"flawed": case.is_flawed, "wrong_lens": case.change_lens is not None}
    lenses = {id(view.camera): case.give_lens(view.camera) for view in truth}
    views = [replace(view, camera=lenses[id(view.camera)], pose=None, depth=None) for view in truth]
    poses = case.give_poses([view.get_pose() for view in truth])
    side = max(view.camera.width for view in truth)
    predictor = StereoPredictor(stereo=StereoOptions(long_side=round(STEREO_SHARE * min(side, REAL_SIDE))))
    try:
        known = None if poses is None else KnownGeometry(poses=poses)
        result = reconstruct_views(SceneInput(views), predictor, known=known)
    except ValueError as error:
        return row | {"grade": "refused", "limit": str(error), "cpu_s": time.process_time() - start}
    row["cpu_s"] = time.process_time() - start
    error, samples = compare_depth(result.views, {view.name: view for view in truth})
    quality = result.quality
    names = ("grade", "limit", "share_with_depth", "expected_error", "long_side_px", "relative_error")
    row |= {name: quality.get(name) for name in (*names, "lens", "pose_excess_px", "verdict")}
    row["placed"] = quality["placed"] / quality["views"]
    return row | {"true_error": error, "samples": samples}


def compare_depth(views: Sequence[Any], truth: dict[str, View]) -> tuple[float, list[list[float]]]:
    """Return the median relative error after one scale, and expected and true errors of some pixels."""
    found = torch.cat([_pair_depths(view, truth[view.name].load_ray_depth()) for view in views])
    if not len(found):
        return math.inf, []
    estimated, exact, expected = found.unbind(-1)
    error = (estimated * (exact / estimated).median() / exact - 1).abs()
    pairs = torch.stack([expected, error], -1)[:: max(1, len(error) // SAMPLES)]
    return float(error.median()), [[round(x, 5) for x in pair] for pair in pairs.tolist()]


def _pair_depths(view: Any, depth: Float[Tensor, "h w"]) -> Float[Tensor, "pixel 3"]:
    """Estimated and true depth and the expected error, where the truth is known; it may be sparse."""
    row, column = (depth > 0).nonzero(as_tuple=True)
    height, width = view.ray_depth.shape
    at = row * height // depth.shape[0], column * width // depth.shape[1]
    known = view.valid[at]
    columns = view.ray_depth[at], depth[row, column], view.expected_error[at]
    return torch.stack([values[known].double() for values in columns], -1)


def is_false_good(row: dict[str, Any]) -> bool:
    """Whether a result is called good whose depth, or whose lens, is wrong."""
    return row["grade"] == "good" and (row["wrong_lens"] or not row["true_error"] <= RIGHT_DEPTH)


def is_right(row: dict[str, Any]) -> bool:
    """Whether a result is right, of right inputs, so that it should be called good."""
    if row["flawed"] or row["grade"] == "refused":
        return False
    return row["true_error"] <= CLEARLY_RIGHT and row["placed"] == 1 and row["share_with_depth"] >= MIN_SHARE


def is_false_alarm(row: dict[str, Any]) -> bool:
    return is_right(row) and row["grade"] != "good"


# The table and the diagram


def benchmark_verdicts(out: Path, data: Path | None, progress: Callable[[str], None]) -> None:
    """Run the cases that `out` does not have yet, and write the table and the reliability diagram."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {row["name"] for row in rows}
    for case in list_cases(data):
        if case.name in done:
            continue
        row = run_case(case)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows.append(row)
        progress(f"{case.name}: {row['grade']}, {row['limit']}")
    write_results(out, rows)


def write_results(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the counts, a line per case, and the reliability of expected errors as a table and as a picture."""
    write_atomically(out / "counts.md", format_counts(rows))
    write_atomically(out / "verdicts.md", format_verdicts(rows))
    write_atomically(out / "reliability.md", format_reliability(rows))
    draw_reliability(rows, out / "reliability.png")


def format_counts(rows: Sequence[dict[str, Any]]) -> str:
    """Format the counts of the cases on which limits were chosen, and of the others."""
    lines = [
        "| cases | runs | false good | right results | false alarms | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for title, chosen in (("limits chosen on", True), ("others", False)):
        part = [row for row in rows if row["chosen_on"] == chosen]
        counts = (len(part), *(sum(map(test, part)) for test in (is_false_good, is_right, is_false_alarm)))
        seconds = f"{sum(row['cpu_s'] for row in part):.0f}"
        lines.append("| " + " | ".join((title, *map(str, counts), seconds)) + " |")
    return "\n".join(lines) + "\n"


def format_verdicts(rows: Sequence[dict[str, Any]]) -> str:
    """Format a line per case."""
    lines = [
        "| case | kind | grade | true error | expected | pixels | CPU s | what the user reads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_format_row(row) for row in sorted(rows, key=lambda row: (row["kind"], row["name"]))]
    return "\n".join(lines) + "\n"


def _format_row(row: dict[str, Any]) -> str:
    values = [row.get(key) for key in ("true_error", "expected_error", "share_with_depth")]
    # Without any depth there is no error either.
    figures = [
        "–" if value is None or not math.isfinite(value) else f"{100 * value:.2g} %" for value in values
    ]
    mark = " **(false)**" if is_false_good(row) else " (false alarm)" if is_false_alarm(row) else ""
    text = row["limit"]
    if "does not fit" in text:  # the sentence that names the lens
        text = next(line for line in row["verdict"] if "does not fit" in line)
    cells = (row["name"], row["kind"], row["grade"] + mark, *figures, f"{row['cpu_s']:.1f}", text)
    return "| " + " | ".join(cells) + " |"


EDGES = tuple(10 ** (exponent / 4) for exponent in range(-12, 1))
"""Bins of the expected error, four per decade from 0.1 % to 100 %."""
SETS = {"rooms": "room", "kitchen": "kitchen", "Sceaux": "Sceaux", "all": ""}
"""What the names of cases have in them."""
MIN_PIXELS = 50


def collect_reliability(rows: Sequence[dict[str, Any]], word: str = "") -> list[tuple[float, float, int]]:
    """Return the median expected and true error, and the pixels, of each bin of runs whose inputs are right."""
    named = [row for row in rows if word in row["name"] and not row["flawed"]]
    samples = [sample for row in named for sample in row.get("samples", ())]
    table = torch.tensor(samples, dtype=torch.float64).reshape(-1, 2)
    bins = []
    for low, high in pairwise(EDGES):
        chosen = table[(table[:, 0] >= low) & (table[:, 0] < high)]
        if len(chosen) >= MIN_PIXELS:
            expected, true = chosen.median(0).values.tolist()
            bins.append((expected, true, len(chosen)))
    return bins


def format_reliability(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| sets | expected error | true error, median | ratio | pixels |", "|---|---|---|---|---|"]
    for title, word in SETS.items():
        for expected, true, count in collect_reliability(rows, word):
            figures = f"{100 * expected:.2g} % | {100 * true:.2g} % | {true / expected:.2f} | {count}"
            lines.append(f"| {title} | {figures} |")
    return "\n".join(lines) + "\n"


def draw_reliability(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw expected against true error, with the band of a factor 1.5."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.0), layout="constrained")
    axes = figure.subplots()
    ends = (1e-3, 0.3)
    axes.fill_between(ends, [x / 1.5 for x in ends], [x * 1.5 for x in ends], alpha=0.15, label="factor 1.5")
    axes.plot(ends, ends, linewidth=0.8)
    for title, word in SETS.items():
        if bins := collect_reliability(rows, word):
            expected, true, _ = zip(*bins, strict=True)
            axes.plot(expected, true, "ko-" if title == "all" else "o--", markersize=4, label=title)
    axes.set(
        xscale="log", yscale="log", xlabel="expected relative error", ylabel="true relative error, median"
    )
    axes.legend()
    figure.savefig(path, dpi=110)
