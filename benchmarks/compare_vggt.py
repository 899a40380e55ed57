"""Official VGGT and ours with the same weights on the same images: CPU seconds in turn, memory, and whether they agree.

    PYTHONPATH=folder/with/vggt python benchmarks/compare_vggt.py --views 2 --rounds 3 --json out/compare_vggt.json

Needs the `vggt` package to be importable; nothing of it is part of g-ray. Weights are random unless --weights names
VGGT-1B. "trunk" is everything before the heads: DINOv2 encoder and alternating attention. VGGT runs its camera, depth
and point heads, ours its DPT, world and pose heads. Memory is what a forward pass adds to the resident weights at its
peak, each in a process of its own.
"""

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras import Pinhole
from g_ray.models.foreign_weights import read_foreign, read_vggt_config, rename_from_vggt
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import load_matching
from g_ray.rays.views import Views


class Stop(Exception):
    """Raised where the heads would begin."""


def official(weights: Path | None) -> Any:
    from vggt.models.vggt import VGGT  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    model = VGGT(enable_track=False).eval()
    if weights is not None:
        state = read_foreign(weights)
        model.load_state_dict(
            {name: value for name, value in state.items() if not name.startswith("track_head")}
        )
    return model


def ours(state: dict[str, torch.Tensor], method: str) -> ReconstructionModel:
    model = ReconstructionModel(read_vggt_config(state, method)).eval()
    load_matching(model, rename_from_vggt(state))
    return model


def cpu_seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    with torch.inference_mode():
        call()
    return time.process_time() - start


def trunk_of(model: ReconstructionModel, images: torch.Tensor, views: Views) -> dict[int, torch.Tensor]:
    """What the trunk hands to the heads."""
    found: dict[int, torch.Tensor] = {}

    def caught(_: Any, __: Any, output: dict[int, torch.Tensor]) -> None:
        found.update(output)
        raise Stop

    hook = model.aggregator.register_forward_hook(caught)
    with contextlib.suppress(Stop):
        model(images, views)
    hook.remove()
    return found


def setting(count: int, size: int) -> tuple[torch.Tensor, Views]:
    torch.manual_seed(1)
    return torch.rand(1, count, 3, size, size), Views([Pinhole.from_fov(60, size, size)] * count)


def compare(count: int, size: int, rounds: int, weights: Path | None) -> dict[str, Any]:
    images, views = setting(count, size)
    theirs = official(weights)
    state = theirs.state_dict()
    grid, gray = ours(state, "rope"), ours(state, "gray")
    calls = {
        "vggt_trunk": lambda: theirs.aggregator(images),
        "rope_trunk": lambda: trunk_of(grid, images, views),
        "gray_trunk": lambda: trunk_of(gray, images, views),
        "vggt": lambda: theirs(images),
        "rope": lambda: grid(images, views),
        "gray": lambda: gray(images, views),
    }
    with torch.inference_mode():  # also the first, slow call of each
        tokens, _ = theirs.aggregator(images)
        same = trunk_of(grid, images, views)
        trunk_of(gray, images, views)
    last = max(same)
    expected = tokens[last].flatten(1, 2)
    difference = float((same[last] - expected).abs().max() / expected.abs().max())
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        order = list(calls) if number % 2 == 0 else list(calls)[::-1]
        for name in order:
            seconds[name].append(cpu_seconds(calls[name]))
            print(f"round {number + 1} of {rounds}: {name} {seconds[name][-1]:.1f} CPU s", flush=True)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {
        f"{name} / vggt{part}": statistics.median(
            a / b for a, b in zip(seconds[f"{name}{part}"], seconds[f"vggt{part}"], strict=True)
        )
        for part in ("_trunk", "")
        for name in ("rope", "gray")
    }
    parameters = {
        name: sum(p.numel() for p in model.parameters()) for name, model in (("vggt", theirs), ("ours", gray))
    }
    return {
        "views": count,
        "size": size,
        "rounds": rounds,
        "tokens, largest relative difference": difference,
        "CPU seconds": median,
        "all seconds": seconds,
        "ratios": ratios,
        "parameters": parameters,
    }


def added_memory(which: str, count: int, size: int) -> float:
    """MB above the weights at the peak of one forward pass, in this process."""
    images, views = setting(count, size)
    if which == "vggt":
        model, inputs = official(None), (images,)
    else:
        model, inputs = ReconstructionModel(RECONSTRUCTION_SIZES["paper"]("gray")).eval(), (images, views)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    with torch.inference_mode():
        model(*inputs)
    return (_status("VmHWM") - before) / 1e3


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-of", choices=("vggt", "gray"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.memory_of:
        print(added_memory(asked.memory_of, asked.views, asked.size))
        return
    words = [sys.executable, __file__, "--views", str(asked.views), "--size", str(asked.size), "--memory-of"]
    memory = {
        which: float(subprocess.run([*words, which], check=True, capture_output=True, text=True).stdout)
        for which in ("vggt", "gray")
    }
    result = {**compare(asked.views, asked.size, asked.rounds, asked.weights), "MB above the weights": memory}
    result["torch"] = torch.__version__
    result["resident, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({name: value for name, value in result.items() if name != "all seconds"}, indent=1))
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
