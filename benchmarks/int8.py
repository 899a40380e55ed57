"""Time and accuracy of `--precision int8` and `bf16` against fp32, in turns, in CPU seconds of one thread.

    python benchmarks/int8.py --photos 7scenes_redkitchen100 --tests levels=levels-test-mixed --json FILE

Times are of whole forward passes of the shipped network, heads included, and of one transformer block of VGGT's size
with random weights. Scores are those of the shipped network on sets of overlapping views; `change` is the relative
difference of the mean from fp32's.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from g_ray.cameras.pinhole import Pinhole
from g_ray.models.reconstruction_config import get_reconstruction_method
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import load_reconstruction
from g_ray.nn.int8 import quantize_blocks
from g_ray.nn.transformer import Block
from g_ray.predictors.model_settings import WEIGHTS
from g_ray.rays.views import Views
from g_ray.runtime.files import write_json
from g_ray.runtime.provenance import collect_provenance
from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer, PhotosScorer

CASES = ((112, 5), (112, 16), (224, 5))
"""Long side in pixels, and views, of 4:3 photographs."""
VGGT_DIM, VGGT_HEAD, VGGT_GRID = 1024, 64, (28, 37)
METRICS = ("depth_rel", "points_rel", "rays_deg", "pose_ate")


def time_in_turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each; the first round warms up, and the order alternates."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            started = time.process_time()
            runs[name]()
            if number:
                seconds[name].append(time.process_time() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def make_row(what: str, tokens: int, seconds: dict[str, float]) -> dict[str, Any]:
    faster = {f"{name}_faster": seconds["fp32"] / seconds[name] for name in ("bf16", "int8")}
    return {"what": what, "tokens": tokens, **{f"{k}_s": v for k, v in seconds.items()}, **faster}


def make_runs(
    plain: Callable[..., Any], rough: Callable[..., Any], *inputs: Any
) -> dict[str, Callable[[], Any]]:
    def run(network: Callable[..., Any], low: bool) -> Any:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if low else nullcontext():
            return network(*inputs)

    return {
        "fp32": lambda: run(plain, False),
        "bf16": lambda: run(plain, True),
        "int8": lambda: run(rough, False),
    }


def time_network(plain: ReconstructionModel, rough: ReconstructionModel, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for width, count in CASES:
        height = width * 3 // 4 // plain.config.patch * plain.config.patch
        views = Views([Pinhole.from_fov(60.0, width, height)] * count)
        images = torch.rand(1, count, 3, height, width)
        seconds = time_in_turns(make_runs(plain, rough, images, views), rounds)
        tokens = len(views.tokens(plain.config.patch, special=plain.aggregator.special))
        rows.append(make_row(f"{WEIGHTS}, {count} views of {width}×{height}", tokens, seconds))
        print(rows[-1], flush=True)
    return rows


def time_block(rounds: int) -> list[dict[str, Any]]:
    """Time one frame block and one global block of VGGT's size over two views."""
    rows, patch, (rows_of_patches, columns) = [], 14, VGGT_GRID
    views = Views([Pinhole.from_fov(60.0, columns * patch, rows_of_patches * patch)] * 2)
    tokens = views.tokens(patch, special=5)
    frame, across = get_reconstruction_method("gray").build_encodings(VGGT_HEAD, {})
    windows = [span for _, span in tokens.layout.find_runs()]
    for name, encoding, inside in (("frame", frame, windows), ("global", across, None)):
        plain = Block(VGGT_DIM, encoding, qk_norm=True).eval()
        rough = quantize_blocks(nn.Sequential(copy.deepcopy(plain)))[0]
        position, x = encoding.prepare(tokens), torch.randn(1, len(tokens), VGGT_DIM)

        seconds = time_in_turns(
            make_runs(partial(plain, windows=inside), partial(rough, windows=inside), x, position), rounds
        )
        rows.append(make_row(f"{name} block of VGGT's size, 2 views of 518×392", len(tokens), seconds))
        print(rows[-1], flush=True)
    return rows


def score(
    networks: dict[str, ReconstructionModel], scorers: dict[str, tuple[Any, str]]
) -> list[dict[str, Any]]:
    rows = []
    for name, (scorer, setting) in scorers.items():
        scores = {key: scorer.score_network(network, setting) for key, network in networks.items()}
        for metric in METRICS:
            means = {key: statistics.fmean(values[metric]) for key, values in scores.items()}
            rows.append(
                {"test": name, "metric": metric, **means, "change": means["int8"] / means["fp32"] - 1}
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="int8 and bf16 against fp32.")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--tests", nargs="*", default=[], help="NAME=FOLDER")
    parser.add_argument("--sets", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = load_reconstruction(WEIGHTS)
    rough = copy.deepcopy(plain).quantize()
    times = [*time_network(plain, rough, options.rounds), *time_block(options.rounds)]
    side, patch = plain.config.long_side, plain.config.patch
    scorers: dict[str, tuple[Any, str]] = {}
    if options.photos is not None:
        photos = PhotosScorer(options.photos, side, patch, sets=options.sets, views=5)
        scorers |= {"photographs": (photos, "pinhole"), "photographs as fisheyes": (photos, "fisheye")}
    if options.tests:
        folders = {name: (Path(folder),) for name, folder in (pair.split("=", 1) for pair in options.tests)}
        tests = FoldersScorer(folders, side, patch, sets=options.sets)
        scorers |= {name: (tests, name) for name in folders}
    scores = score({"fp32": plain, "int8": rough}, scorers)
    if options.json is not None:
        settings = {"rounds": options.rounds, "sets": options.sets, "threads": 1, **collect_provenance()}
        write_json(options.json, {"settings": settings, "times": times, "scores": scores}, indent=2)


if __name__ == "__main__":
    main()
