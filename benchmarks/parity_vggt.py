"""Official VGGT and ours with the same random weights: every stage compared, from the encoder to poses and depth.

    PYTHONPATH=folder/with/vggt python benchmarks/parity_vggt.py --size tiny small --json out/parity_vggt.json

Needs the `vggt` package to be importable; nothing of it is part of g-ray. All parameters are random, gains of norms and
layer scales too: VGGT initializes gates near zero, where they hide what lies behind them. Numbers are the largest
difference over the largest value of a stage. Size "full" is VGGT-1B's architecture and takes 11 GB of memory.
`--vectors FILE` stores what official code makes of a tiny network, for the tests.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from g_ray.models.vggt import VGGT, build_vggt

# embed width, pairs, heads, encoder, DPT features and channels, camera-head blocks, image (h, w)
SIZES: dict[str, dict[str, Any]] = {
    "vectors": {
        "dim": 32,
        "pairs": 4,
        "heads": 2,
        "encoder": "conv",
        "dpt": (8, (4, 4, 8, 8)),
        "image": (28, 42),
    },
    "tiny": {
        "dim": 64,
        "pairs": 8,
        "heads": 2,
        "encoder": "conv",
        "dpt": (32, (16, 32, 64, 64)),
        "image": (42, 56),
    },
    "small": {
        "dim": 384,
        "pairs": 4,
        "heads": 6,
        "encoder": "dinov2_vits14_reg",
        "dpt": (64, (48, 96, 192, 384)),
        "image": (70, 98),
    },
    "full": {
        "dim": 1024,
        "pairs": 24,
        "heads": 16,
        "encoder": "dinov2_vitl14_reg",
        "dpt": (256, (256, 512, 1024, 1024)),
        "image": (70, 98),
    },
}
VIEWS = 3
STEP = 5
"""Stored maps keep every fifth pixel along each side."""


class Official(nn.Module):
    """VGGT's parts at any size; its own class fixes depth and encoder."""

    def __init__(self, size: dict[str, Any], taps: tuple[int, ...]) -> None:
        from vggt.heads.camera_head import CameraHead  # pyright: ignore[reportMissingImports]
        from vggt.heads.dpt_head import DPTHead  # pyright: ignore[reportMissingImports]
        from vggt.models.aggregator import Aggregator  # pyright: ignore[reportMissingImports]

        super().__init__()
        self.aggregator = Aggregator(
            img_size=518,
            embed_dim=size["dim"],
            depth=size["pairs"],
            num_heads=size["heads"],
            patch_embed=size["encoder"],
            cached_layer_indices=taps,
        )
        features, channels = size["dpt"]
        self.camera_head = CameraHead(dim_in=2 * size["dim"])
        self.depth_head = DPTHead(
            dim_in=2 * size["dim"],
            output_dim=2,
            activation="exp",
            features=features,
            out_channels=list(channels),
            intermediate_layer_idx=list(taps),
        )

    def forward(self, images: Tensor) -> dict[str, Any]:
        from vggt.utils.pose_enc import pose_encoding_to_extri_intri  # pyright: ignore[reportMissingImports]

        tokens, start = self.aggregator(images)
        codes = self.camera_head(tokens)
        depth, confidence = self.depth_head(tokens, images=images, patch_start_idx=start)
        extrinsics, intrinsics = pose_encoding_to_extri_intri(codes[-1], tuple(images.shape[-2:]))
        return {
            "codes": codes,
            "depth": depth[..., 0],
            "confidence": confidence,
            "extrinsics": extrinsics,
            "intrinsics": intrinsics,
        }


def draw_weights(name: str, shape: tuple[int, ...]) -> Tensor:
    """Draw a parameter by its name in VGGT's checkpoint, the same on every machine.

    All layers matter: gains are near 1 (never near 0, as layer scales and gates are initialized), activations too.
    """
    noise = torch.from_numpy(np.random.RandomState(crc32(name.encode())).standard_normal(shape)).float()
    if name.endswith("gamma") or (name.endswith("weight") and len(shape) == 1):
        return 0.7 + 0.3 * noise
    if len(shape) < 2 or "token" in name or name.endswith("pos_embed"):
        return 0.3 * noise
    # e^x follows the last layer of the depth head: keep depths between about e^-2 and e^2.
    gain = 0.5 if name == "depth_head.scratch.output_conv2.2.weight" else 1.0
    return gain * noise / noise[0].numel() ** 0.5


def name_stages(size: dict[str, Any]) -> dict[str, str]:
    """Modules whose outputs are compared: VGGT's name → ours."""
    stages = {"aggregator.patch_embed": "encoder"}
    for pair in range(size["pairs"]):
        for kind in ("frame", "global"):
            stages[f"aggregator.{kind}_blocks.{pair}"] = f"aggregator.{kind}_blocks.{pair}"
    same = ["camera_head.token_norm", "camera_head.poseLN_modulation", "camera_head.trunk_norm"]
    same += [f"camera_head.trunk.{block}" for block in range(4)] + ["camera_head.pose_branch"]
    same += ["depth_head.norm"] + [f"depth_head.projects.{level}" for level in range(4)]
    same += [f"depth_head.resize_layers.{level}" for level in range(4)]
    same += [f"depth_head.scratch.refinenet{level}" for level in (4, 3, 2, 1)]
    same += ["depth_head.scratch.output_conv1", "depth_head.scratch.output_conv2"]
    return stages | {name: name for name in same}


def record(model: nn.Module, names: list[str]) -> dict[str, list[Tensor]]:
    """Keep what the named modules put out at each call."""
    kept: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            tensor = output["x_norm_patchtokens"] if isinstance(output, dict) else output
            kept[name].append(tensor.detach().clone())

        return hook

    for name in names:
        model.get_submodule(name).register_forward_hook(keep(name))
    return kept


def difference(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference over the largest value; shapes may differ by how views are folded."""
    wanted = wanted.reshape(found.shape)
    return float((found - wanted).abs().max() / wanted.abs().max())


def make_pair(name: str) -> tuple[Official, VGGT, dict[str, Any]]:
    size = SIZES[name]
    pairs = size["pairs"]
    taps = (4, 11, 17, 23) if pairs == 24 else tuple((part * pairs + 3) // 4 - 1 for part in (1, 2, 3, 4))
    official = Official(size, taps).eval()
    with torch.no_grad():
        for key, value in official.state_dict().items():
            value.copy_(draw_weights(key, tuple(value.shape)))
    return official, build_vggt(official.state_dict()), size


@torch.no_grad()
def compare(name: str) -> dict[str, float]:
    official, ours, size = make_pair(name)
    images = make_images(size, VIEWS)
    stages = name_stages(size)
    theirs_kept, ours_kept = record(official, list(stages)), record(ours, list(stages.values()))
    codes: list[Tensor] = []
    ours.camera_head.register_forward_hook(lambda _, __, output: codes.extend(output))
    wanted, found = official(images), ours(images)
    result = {}
    for theirs, own in stages.items():
        pairs = list(zip(ours_kept[own], theirs_kept[theirs], strict=True))
        result[theirs] = max(difference(mine, other) for mine, other in pairs)
    for step, (mine, other) in enumerate(zip(codes, wanted["codes"], strict=True), 1):
        result[f"camera after step {step}"] = difference(mine, other)
    result["depth"] = difference(found.depth, wanted["depth"])
    result["confidence"] = difference(found.confidence, wanted["confidence"])
    poses = found.cameras.poses.cam_from_world[..., :3, :]
    result["cam_from_world"] = difference(poses, wanted["extrinsics"])
    seen = (wanted["codes"][-1][..., 7:] > 0.05).all(-1)  # random weights may give no field of view at all
    intrinsics = found.cameras.compute_intrinsics(size["image"][1], size["image"][0])
    if bool(seen.any()):
        result["intrinsics"] = difference(intrinsics[seen], wanted["intrinsics"][seen])
    return result


def make_images(size: dict[str, Any], views: int) -> Tensor:
    """Make images that are the same on every machine."""
    noise = np.random.RandomState(0).uniform(size=(1, views, 3, *size["image"]))
    return torch.from_numpy(noise).float()


@torch.no_grad()
def store_vectors(path: Path) -> None:
    """Store what official code makes of the "vectors" network, whose weights are drawn by name: a few kilobytes."""
    official, _, size = make_pair("vectors")
    kept = record(official, ["camera_head.trunk.3", "depth_head.scratch.refinenet1"])
    out = official(make_images(size, 2))
    arrays = {
        "codes": torch.stack(out["codes"]),
        "depth": out["depth"][..., ::STEP, ::STEP],
        "confidence": out["confidence"][..., ::STEP, ::STEP],
        "extrinsics": out["extrinsics"],
        "trunk": torch.stack(kept["camera_head.trunk.3"])[..., ::STEP],
        "refined": kept["depth_head.scratch.refinenet1"][0][..., ::STEP, ::STEP],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{name: value.numpy() for name, value in arrays.items()})
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["tiny", "small"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--vectors", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.vectors:
        store_vectors(asked.vectors)
        return
    results = {name: compare(name) for name in asked.size}
    for name, stages in results.items():
        print(f"{name}: {len(stages)} stages, largest relative difference {max(stages.values()):.2e}")
        for stage, value in stages.items():
            print(f"  {stage}: {value:.2e}")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps({"torch": torch.__version__, "stages": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
