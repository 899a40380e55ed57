"""Measure what ray angles cost: paired trials of one checkpoint with ray angles and grid indices (fig:runtime_memory).

All modes share weights, heads, pre- and post-processing; only the positions in attention differ. A trial runs every
mode once, and trials go through all orders of the modes: a machine that warms up or slows down favors none.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, permutations
from typing import Any

import torch
from torch import Tensor

from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_config import get_reconstruction_method
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import find_file, load_reconstruction
from g_ray_lab.bench.bench_reconstruction import (
    BenchmarkCase,
    ResidentMemory,
    copy_with_method,
    run_in_subprocess,
)
from g_ray_lab.metrics.intervals import compute_run_interval
from g_ray_lab.scoring.store import Store, hash_file

OURS = "gray"
MODES = (OURS, "rope_vo", "rope")
"""Ray angles; grid indices in the same operator, as the paper compares; grid RoPE, which leaves v and o alone."""
GIB = 2**30


@dataclass(frozen=True)
class RuntimeCase:
    """Inference with some views of one size, half of them fisheyes."""

    weights: str | None
    """A file or a name of shipped weights; None for random weights of `model`."""
    model: str
    views: int
    size: int
    precision: str = "fp32"
    device: str = "cpu"

    def build_network(self) -> ReconstructionModel:
        """Load or draw the weights that all modes share."""
        if self.weights is None:
            return BenchmarkCase(self.model, self.views, self.size).build_network(OURS).to(self.device)
        network = load_reconstruction(self.weights)
        if get_reconstruction_method(network.config.method).camray:
            raise ValueError(
                f"{self.weights} takes rays as input channels, which no other mode has: give weights of {OURS} or rope"
            )
        return network.to(self.device)

    def identify(self) -> dict[str, Any]:
        """Return everything that a measurement depends on but the machine."""
        digest = None if self.weights is None else hash_file(find_file(self.weights))
        return {**asdict(self), "weights": digest, "modes": MODES, "torch": torch.__version__}

    def run(self, network: ReconstructionModel) -> None:
        """Run end to end: images are framed, rays cast, and results brought back to the images' pixels."""
        cameras = BenchmarkCase(self.model, self.views, self.size).make_cameras()
        run_inference(
            network, self.make_images(), cameras, size=self.size, precision=self.precision
        ).to_original()

    def make_images(self) -> list[Tensor]:
        """Draw noise: what an image shows does not change what is computed."""
        generator = torch.Generator().manual_seed(1)
        return [torch.rand(3, self.size, self.size, generator=generator) for _ in range(self.views)]


def measure_runtime(
    weights: str | None,
    views: Sequence[int],
    *,
    model: str,
    size: int,
    trials: int,
    precision: str,
    device: str,
    store: Store,
    progress: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Return a row per number of views: seconds of every trial and mode, paired differences and peak memory."""
    if trials < 2 or not views or min(views) < 1:
        raise ValueError(
            f"--trials {trials}, --views {list(views)}: give two trials or more, and positive numbers"
        )
    rows = []
    for count in views:
        case = RuntimeCase(weights, model, count, size, precision, device)
        progress(f"{count} views: {trials} trials of {len(MODES)} modes")
        key = {**case.identify(), "trials": trials}
        measured = store.measure(f"views-{count}", key, lambda case=case: measure_case(case, trials))
        rows.append({"views": count, **summarize_trials(measured["seconds"]), **measured})
    return rows


def measure_case(case: RuntimeCase, trials: int) -> dict[str, Any]:
    """Return seconds per mode and trial, and peak memory per mode, of one number of views."""
    if torch.device(case.device).type == "cpu":
        # A process of its own: memory that an earlier case has freed would hide a peak.
        seconds = run_in_subprocess(time_trials, case, trials)
        return {
            "seconds": seconds,
            "peak_gib": {mode: run_in_subprocess(measure_peak, case, mode) for mode in MODES},
        }
    return {
        "seconds": time_trials(case, trials),
        "peak_gib": {mode: measure_peak(case, mode) for mode in MODES},
    }


def time_trials(case: RuntimeCase, trials: int) -> dict[str, list[float]]:
    """Return the seconds of each mode in each trial, after a round that is not counted.

    CPU seconds on one thread of a CPU, which other programs disturb less than they disturb a clock; seconds of a clock
    between synchronizations on a GPU.
    """
    if torch.device(case.device).type == "cpu":
        torch.set_num_threads(1)
    first = case.build_network()
    networks = {mode: copy_with_method(first, mode) for mode in MODES}
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for mode in MODES:
        case.run(networks[mode])
    # Every order in turn: what runs after another finds warm or cold caches, and must not always be the same mode.
    for order in islice(cycle(permutations(MODES)), trials):
        for mode in order:
            start = _read_clock(case.device)
            case.run(networks[mode])
            seconds[mode].append(_read_clock(case.device) - start)
    return seconds


def measure_peak(case: RuntimeCase, mode: str) -> float | None:
    """Return GiB at the peak of one run: all that a GPU holds, or resident memory of a process, weights included."""
    network = copy_with_method(case.build_network(), mode)
    if torch.device(case.device).type != "cpu":
        torch.cuda.reset_peak_memory_stats(case.device)
        case.run(network)
        torch.cuda.synchronize(case.device)
        return torch.cuda.max_memory_allocated(case.device) / GIB
    torch.set_num_threads(1)
    if not ResidentMemory.is_available():
        return None
    memory = ResidentMemory()
    memory.reset()
    case.run(network)
    return memory.read_peak() / GIB


def _read_clock(device: str) -> float:
    if torch.device(device).type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def summarize_trials(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return mean and deviation of each mode, and the mean of ours − other per trial with Student's 95 % interval."""
    times = {mode: torch.tensor(values, dtype=torch.float64) for mode, values in seconds.items()}
    differences = {}
    for mode in MODES[1:]:
        # Per trial: drifts of the machine move both times alike and cancel, as they would not between means.
        paired = times[OURS] - times[mode]
        interval = compute_run_interval(paired[:, None])
        differences[mode] = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {
        "mean": {mode: float(values.mean()) for mode, values in times.items()},
        "deviation": {mode: float(values.std()) for mode, values in times.items()},
        "difference": differences,
    }


def format_runtime(rows: Sequence[dict[str, Any]]) -> str:
    """Format seconds (mean ± deviation), paired differences with their intervals in milliseconds, and memory."""
    lines = [
        f"| views | {' | '.join(f'{mode}, s' for mode in MODES)} | "
        f"{' | '.join(f'{OURS} − {mode}, ms [95 %]' for mode in MODES[1:])} | "
        f"{' | '.join(f'{mode}, GiB' for mode in MODES)} |",
        "|---|" + "---|" * (3 * len(MODES) - 1),
    ]
    for row in rows:
        cells = [f"{row['mean'][mode]:.3f} ± {row['deviation'][mode]:.3f}" for mode in MODES]
        for mode in MODES[1:]:
            cell = row["difference"][mode]
            low, high = 1e3 * cell["low"], 1e3 * cell["high"]
            cells.append(f"{1e3 * cell['mean']:+.1f} [{low:+.1f}, {high:+.1f}]")
        peaks = [row["peak_gib"][mode] for mode in MODES]
        cells += ["–" if peak is None else f"{peak:.3f}" for peak in peaks]
        lines.append(f"| {row['views']} | {' | '.join(cells)} |")
    return "\n".join(lines)
