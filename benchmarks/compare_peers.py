"""Adapters of `g_ray.predictors.peers` compared with the official code that they call, with random weights.

    PYTHONPATH=folders/of/clones python benchmarks/compare_peers.py vggt pi3 pi3x omnivggt vggt-omega da3 mapanything

(or worldmirror, moge, unik3d.)

Needs the packages of the named peers to be importable; nothing of them is part of g-ray. For each peer

- its own loader reads photographs of several shapes from files, and the images are compared with ours;
- one network with random weights runs twice on the same images, called as its documents say and by our adapter, without
  priors and, if it takes any, with calibration and poses; poses, depth and lenses are compared after conversion.

All weights are random, gates and adapters that start at zero too: otherwise priors would change nothing. "priors change
the depth by" states how much they matter; without it, agreement means little.
"""

import argparse
import gc
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from official_peers.comparison import compare_loader, compare_outputs
from official_peers.registry import OFFICIAL


def allow_torchvision() -> None:
    """Let torchvision be imported where its compiled operators do not load (a CUDA build with a CPU torch)."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for file in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(file)
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="+", choices=OFFICIAL)
    parser.add_argument("--loaders-only", action="store_true", help="do not run networks")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    allow_torchvision()
    results = {}
    for name in asked.peers:
        peer = OFFICIAL[name]
        result: dict[str, float] = {}
        for fit, load in peer.load_images.items():
            result |= {f"loader, {key}": value for key, value in compare_loader(name, fit, load).items()}
        if not asked.loaders_only:
            result |= compare_outputs(name, peer.build, peer.call)
            gc.collect()
        results[name] = result
        print(name)
        for key, value in result.items():
            print(f"  {key}: {value:.2e}", flush=True)
        if asked.json:
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps({"torch": torch.__version__, "peers": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
