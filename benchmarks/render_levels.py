"""Images per second from levels of an installed game: views of random walks, one after the other, on one core.

    python benchmarks/render_levels.py [--from FOLDER] [--size 224] [--levels 6]

Only the rendering is timed (`MeshScene.view`, in CPU seconds of this process): rays of the camera, ray casting,
textures at the resolution of each pixel, light maps, further rays at edges, depth and normals.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from g_ray_lab.textured import OPENARENA, LensKind, LevelSource, draw_cameras, draw_walk, list_levels

KINDS: tuple[LensKind, ...] = ("pinhole", "fisheye", "mixed")
VIEWS = 8


def time_level(source: LevelSource, size: int) -> list[dict[str, Any]]:
    """Time the views of one walk for each kind of lens; kinds whose walk gets stuck are left out."""
    space = source.open()
    rows = []
    for kind in KINDS:
        random = np.random.default_rng(0)
        cameras = draw_cameras(kind, random, VIEWS, size, size)
        poses = draw_walk(space, cameras, random)
        if poses is None:
            continue
        start = time.process_time()
        for camera, pose in zip(cameras, poses, strict=True):
            space.scene.view(camera, pose)
        seconds = (time.process_time() - start) / VIEWS
        rows.append(
            {"level": source.name, "triangles": len(space.scene.faces), "lenses": kind, "ms": 1e3 * seconds}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Images per second from levels of an installed game.")
    parser.add_argument("--from", dest="folder", type=Path, default=OPENARENA)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--levels", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sources = list_levels(options.folder, "train")
    chosen = sources[:: max(1, len(sources) // options.levels)][: options.levels]
    rows = [row for source in chosen for row in time_level(source, options.size)]
    for row in rows:
        print(json.dumps(row))
    for kind in KINDS:
        ms = [float(row["ms"]) for row in rows if row["lenses"] == kind]
        if ms:
            mean = sum(ms) / len(ms)
            print(
                f"{kind}: {mean:.1f} ms per image of {options.size}×{options.size} px, {1e3 / mean:.1f} per core-second"
            )


if __name__ == "__main__":
    main()
