"""Foreign checkpoints become ours: VGGT a whole model to start from, DINOv2 an encoder."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from g_ray.models.checkpoint import find_file, save_reconstruction
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2
from g_ray.models.foreign import (
    LoadReport,
    detect_kind,
    load_matching,
    read_foreign,
    rename_from_hub,
    rename_from_transformers,
    rename_from_vggt,
)
from g_ray.models.reconstruction_config import ReconstructionConfig
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.runtime.files import atomic_path

ENCODER = "encoder."
SEED = 0
"""Of the heads that VGGT does not have."""


def convert_checkpoint(
    state: Mapping[str, Tensor],
    out: Path,
    *,
    method: str,
    taps: tuple[int, int, int, int] = (4, 11, 17, 23),
    dtype: torch.dtype | None = None,
) -> tuple[str, LoadReport]:
    """Write the tensors of VGGT or DINOv2 as ours; returns what it was and what found a place."""
    kind = detect_kind(state)
    if kind == "vggt":
        torch.manual_seed(SEED)
        model = ReconstructionModel(read_vggt_config(state, method, taps))
        report = load_matching(model, rename_from_vggt(state))
        # Parts that VGGT does not have, or has for another purpose, must be trained before they predict anything.
        untrained = {name.split(".")[0] for name in report.missing}
        save_reconstruction(model, out, dtype, sorted(untrained))
        return kind, report
    encoder, report = build_encoder(state)
    weights = {ENCODER + name: value.to(dtype).contiguous() for name, value in encoder.state_dict().items()}
    with atomic_path(out) as scratch:
        save_file(weights, scratch, metadata={"format": "pt"})
    return kind, report


def read_vggt_config(
    state: Mapping[str, Tensor], method: str, taps: tuple[int, int, int, int] = (4, 11, 17, 23)
) -> ReconstructionConfig:
    """Read the sizes of a VGGT checkpoint off its shapes; its taps cannot be read."""
    pairs = len({name.split(".")[2] for name in state if name.startswith("aggregator.frame_blocks.")})
    dim = state["aggregator.camera_token"].shape[-1]
    plain = "aggregator.patch_embed.proj.weight" in state
    stem = state["aggregator.patch_embed." + ("proj.weight" if plain else "patch_embed.proj.weight")]
    channels = tuple(len(state[f"point_head.projects.{level}.weight"]) for level in range(4))
    return ReconstructionConfig(
        method=method,
        encoder="patch" if plain else find_encoder_size(dim, registers=True),
        dim=dim,
        pairs=pairs,
        heads=dim // len(state["aggregator.frame_blocks.0.attn.q_norm.weight"]),
        patch=stem.shape[-1],
        taps=taps,
        dpt_features=state["point_head.scratch.output_conv1.weight"].shape[1],
        dpt_channels=(channels[0], channels[1], channels[2], channels[3]),
        pose_dim=dim // 2,
    )


def find_encoder_size(dim: int, registers: bool) -> str:
    for name, size in DINOV2_SIZES.items():
        if size.dim == dim and (size.registers > 0) == registers:
            return name
    widths = ", ".join(f"{name} {size.dim}" for name, size in DINOV2_SIZES.items())
    raise ValueError(f"an encoder of width {dim} is not one of ours: {widths}")


def build_encoder(state: Mapping[str, Tensor]) -> tuple[DINOv2, LoadReport]:
    """Build DINOv2 from a state with its own names, those of transformers, or ours."""
    if ENCODER + "pos_embed" in state:  # a file of ours; transformers' names begin with "encoder." too
        state = {name.removeprefix(ENCODER): v for name, v in state.items() if name.startswith(ENCODER)}
    named = (
        rename_from_transformers(state) if detect_kind(state) == "transformers" else rename_from_hub(state)
    )
    size = find_encoder_size(named["pos_embed"].shape[-1], "register_tokens" in named)
    encoder = DINOv2(DINOV2_SIZES[size])
    report = load_matching(encoder, named)
    if report.missing:
        raise ValueError(f"not a whole encoder; {report.format_lines()[1]}")
    return encoder, report


def load_encoder(model: ReconstructionModel, source: str | Path) -> LoadReport:
    """Put pretrained DINOv2 weights below a trunk: from the hub's, transformers' or our own file."""
    ours = model.encoder
    if not isinstance(ours, DINOv2):
        raise ValueError(f"encoder {model.config.encoder!r} takes no DINOv2 weights: choose a size with one")
    encoder, report = build_encoder(read_foreign(find_file(source)))
    if ours.config != encoder.config:
        size = find_encoder_size(encoder.config.dim, encoder.config.registers > 0)
        advice = ""
        if encoder.config.dim == ours.config.dim:
            advice = f"; for this file set registers to {encoder.config.registers > 0}"
        raise ValueError(f"{source} is {size}, but the network's encoder is {model.config.encoder}{advice}")
    load_matching(ours, encoder.state_dict())  # blocks behind the network's last tap find no place
    return report
