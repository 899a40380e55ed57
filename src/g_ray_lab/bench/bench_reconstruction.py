"""Benchmark reconstruction: CPU seconds and memory of each part of the network, ray angles against grid RoPE.

`PartMeter` attributes time and resident memory to named, possibly nested parts of a program;
`benchmark_reconstruction` uses it on networks with random weights.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.views import Views

OURS, PLAIN = "gray", "rope"
PARTS = ("encoder", "phases", "trunk", "camera head", "world head", "pose head", "rest")
ALL = "all"
KILOBYTE, MEGABYTE = 2**10, 2**20
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # written to clear_refs, it sets VmHWM to the current VmRSS (man 5 proc)


class ResidentMemory:
    """Resident memory of this process in bytes, current and at its peak since the last reset; Linux only."""

    @staticmethod
    def is_available() -> bool:
        try:
            CLEAR.write_text(RESET_PEAK)
            return "VmHWM" in STATUS.read_text()
        except OSError:
            return False

    def read_current(self) -> int:
        return self._read("VmRSS:")

    def read_peak(self) -> int:
        return self._read("VmHWM:")

    def reset(self) -> None:
        CLEAR.write_text(RESET_PEAK)

    def _read(self, name: str) -> int:
        (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) * KILOBYTE


class PartMeter:
    """Measure CPU seconds per part, without nested parts, and peak resident memory per part, including them.

    Memory is relative to its value at the start of the outermost part.
    """

    def __init__(self, memory: ResidentMemory | None = None) -> None:
        self.memory = memory
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self._open: list[str] = []
        self._last, self._base = 0.0, 0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure the block as part `name`."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def enter(self, name: str) -> None:
        self._account()
        if not self._open and self.memory is not None:
            self._base = self.memory.read_current()
        self._open.append(name)
        self.seconds.setdefault(name, 0.0)

    def leave(self) -> None:
        self._account()
        self._open.pop()

    def watch_module(self, name: str, module: nn.Module) -> None:
        """Measure every forward call of the module as part `name`."""

        def before(*_: object) -> None:
            self.enter(name)

        def after(*_: object) -> None:
            self.leave()

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, always_call=True)

    def wrap_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that measures each call of `call` as part `name`."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            with self.measure(name):
                return call(*args, **kwargs)

        return measured

    def _account(self) -> None:
        """Attribute the time since the last event to the innermost open part, and the peak to all open parts."""
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        if self.memory is not None:
            for name in self._open:
                self.peaks[name] = max(self.peaks.get(name, 0), self.memory.read_peak() - self._base)
            self.memory.reset()
        self._last = time.process_time()  # after reading /proc, so that the meter's own time counts nowhere


@dataclass(frozen=True)
class BenchmarkCase:
    """A network with random weights on random images, half of them fisheyes whose every pixel has a ray."""

    model: str
    views: int
    size: int
    precision: str = "fp32"

    def build_network(self, method: str) -> ReconstructionModel:
        torch.manual_seed(0)
        return ReconstructionModel(RECONSTRUCTION_SIZES[self.model](method)).eval()

    def make_cameras(self) -> list[Camera]:
        f, c = 0.45 * self.size, 0.5 * self.size
        fisheye = OpenCVFisheye.make(self.size, self.size, fx=f, fy=f, cx=c, cy=c, k1=0.01, k2=-0.005)
        fields = torch.linspace(40.0, 80.0, self.views)
        return [
            fisheye if view % 2 else Pinhole.from_fov(float(degrees), self.size, self.size)
            for view, degrees in enumerate(fields)
        ]

    @torch.no_grad()
    def run(self, network: ReconstructionModel, meter: PartMeter) -> None:
        images = torch.rand(
            1, self.views, 3, self.size, self.size, generator=torch.Generator().manual_seed(1)
        )
        views = Views(self.make_cameras())
        with meter.measure(ALL), torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            network(images, views)


def benchmark_reconstruction(
    views: Sequence[int],
    size: int = 224,
    model: str = "small",
    *,
    repeats: int = 5,
    precision: str = "fp32",
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Return a row per number of views and part: seconds, their ratio, and peak memory above the weights.

    Both methods have the same weights and alternate in one process, on one thread; ratios are between runs that
    follow each other. Memory is measured in a separate process per case, because freed memory of an earlier case
    would otherwise hide a peak.
    """
    _check(views, size, model, repeats, precision)
    rows, peaks = [], {OURS: [], PLAIN: []}
    for count in views:
        case = BenchmarkCase(model, count, size, precision)
        progress(f"{count} views: {repeats} rounds")
        seconds = run_in_subprocess(time_case, case, repeats)
        memory = {}
        for method in (OURS, PLAIN):
            progress(f"{count} views: memory of {method}")
            memory[method] = run_in_subprocess(measure_memory, case, method)
            peaks[method].append(memory[method].get(ALL))
        rows += [_make_row(count, part, seconds, memory) for part in (*PARTS, ALL)]
    parameters = _count_parameters(model)
    settings = {
        "model": model, "views": list(views), "size": size, "repeats": repeats, "precision": precision, "threads": 1,
        "methods": [OURS, PLAIN], "parameters": parameters, "weights_mb": parameters * 4 / MEGABYTE,
        "unit": "CPU seconds of a forward pass, median over rounds in which both methods take turns; "
        "ratio = ours / grid RoPE, its median and quartiles; MB of resident memory above the loaded weights, at most",
        "growth": {method: compute_memory_growth(views, values) for method, values in peaks.items()},
    }  # fmt: skip
    return {"settings": settings, "rows": rows}


def compute_memory_growth(views: Sequence[int], peaks: Sequence[float | None]) -> list[dict[str, Any]] | None:
    """Return MB per additional view between successive numbers of views; non-increasing if memory is at most linear."""
    pairs = sorted((count, peak) for count, peak in zip(views, peaks, strict=True) if peak is not None)
    if len(pairs) < 2:
        return None
    return [
        {"from": a, "to": b, "mb_per_view": (high - low) / (b - a)}
        for (a, low), (b, high) in pairwise(pairs)
        if b > a
    ]


def time_case(case: BenchmarkCase, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Return the seconds of each part per method and round, without a warm-up round; the order alternates."""
    torch.set_num_threads(1)
    ours = case.build_network(OURS)
    plain = copy_with_method(ours, PLAIN)
    seconds: dict[str, list[dict[str, float]]] = {OURS: [], PLAIN: []}
    networks = {OURS: ours, PLAIN: plain}
    meters = {method: attach_meter(PartMeter(), network) for method, network in networks.items()}
    for repeat in range(repeats + 1):
        for method in (OURS, PLAIN) if repeat % 2 else (PLAIN, OURS):
            meters[method].seconds.clear()
            case.run(networks[method], meters[method])
            if repeat:
                seconds[method].append(_complete_parts(meters[method].seconds))
    return seconds


def measure_memory(case: BenchmarkCase, method: str) -> dict[str, float]:
    """Return the peak resident memory of each part in MB above that before the forward pass; empty if unknown."""
    torch.set_num_threads(1)
    if not ResidentMemory.is_available():
        return {}
    network = case.build_network(method)
    meter = attach_meter(PartMeter(ResidentMemory()), network)
    case.run(network, meter)
    return {name: peak / MEGABYTE for name, peak in meter.peaks.items()}


def attach_meter(meter: PartMeter, network: ReconstructionModel) -> PartMeter:
    """Make the meter measure every part of a network, and return it."""
    trunk = network.aggregator
    meter.watch_module("encoder", network.encoder)
    meter.watch_module("trunk", trunk)
    meter.watch_module("camera head", network.camera_head)
    meter.watch_module("world head", network.world_head)
    meter.watch_module("pose head", network.pose_head)
    trunk.prepare_positions = meter.wrap_call("phases", trunk.prepare_positions)
    return meter


def copy_with_method(network: ReconstructionModel, method: str) -> ReconstructionModel:
    """Build a network with another method and the same weights; all but those of attention share their memory."""
    with torch.device("meta"):
        other = ReconstructionModel(replace(network.config, method=method))
    other.load_state_dict(network.state_dict(), assign=True)
    return other.eval()


def _complete_parts(seconds: dict[str, float]) -> dict[str, float]:
    """Add missing parts as 0, `rest` as the time outside all parts, and `all` as the sum."""
    parts = {name: seconds.get(name, 0.0) for name in PARTS} | {"rest": seconds[ALL]}
    return {**parts, ALL: sum(seconds.values())}


def _make_row(
    views: int,
    part: str,
    seconds: dict[str, list[dict[str, float]]],
    memory: dict[str, dict[str, float]],
) -> dict[str, Any]:
    ours, plain = ([one[part] for one in seconds[method]] for method in (OURS, PLAIN))
    ratios = [a / b for a, b in zip(ours, plain, strict=True) if b > 0]
    low, middle, high = compute_quartiles(ratios)
    return {
        "part": part,
        "views": views,
        "gray_s": statistics.median(ours),
        "rope_s": statistics.median(plain),
        "ratio": middle,
        "ratio_low": low,
        "ratio_high": high,
        "gray_mb": memory[OURS].get(part),
        "rope_mb": memory[PLAIN].get(part),
    }


def compute_quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the quartiles; None for an empty sequence."""
    if not values:
        return None, None, None
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def run_in_subprocess(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a fresh process; raise ValueError if the process is killed, most likely for lack of memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(task, *arguments).result()
        except BrokenProcessPool:
            case = arguments[0]
            raise ValueError(
                f"{case.views} views with the {case.model} network ended the process that measured them, most likely "
                "for lack of memory: use fewer views or a smaller model"
            ) from None


def _count_parameters(model: str) -> int:
    with torch.device("meta"):
        network = ReconstructionModel(RECONSTRUCTION_SIZES[model](OURS))
    return sum(parameter.numel() for parameter in network.parameters())


def _check(views: Sequence[int], size: int, model: str, repeats: int, precision: str) -> None:
    if model not in RECONSTRUCTION_SIZES:
        raise ValueError(f"unknown model {model!r}: choose one of {', '.join(RECONSTRUCTION_SIZES)}")
    patch = RECONSTRUCTION_SIZES[model](OURS).patch
    if size < patch or size % patch:
        near = max(1, round(size / patch)) * patch
        raise ValueError(f"--size {size} is not a multiple of the patch of {patch} px: choose {near}")
    if not views or min(views) < 1:
        raise ValueError(
            f"--views {' '.join(map(str, views))}: give numbers of at least 1, e.g. --views 2 4 8"
        )
    if repeats < 1:
        raise ValueError(f"--repeats must be at least 1, got {repeats}")
    if precision not in ("fp32", "bf16"):
        raise ValueError(f"unknown precision {precision!r}: choose fp32 or bf16")
