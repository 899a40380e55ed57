"""Weights of others: VGGT and DINOv2 become a reconstruction network or its encoder, and LVSM as released with RayRoPE
(Lucas-707/RayRoPE) becomes ours.

Sizes are read off the shapes of tensors, names are translated by patterns.
"""

import re
from collections.abc import Iterable, Mapping
from math import isqrt
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from g_ray.encodings import ENCODINGS
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2
from g_ray.models.lvsm_config import METHODS, Conditioning, EncodingOptions, LVSMConfig, Method
from g_ray.models.reconstruction_config import ReconstructionConfig
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import LoadReport, find_file, load_matching, save_reconstruction
from g_ray.nn.conditioning import CHANNELS
from g_ray.runtime.files import atomic_path

VGGT_PARTS = {
    "aggregator.patch_embed.": "encoder.",
    "aggregator.": "aggregator.",
    "point_head.": "camera_head.",
}
"""Beginnings of VGGT's names and of ours. Its point head starts our DPT head; its camera, depth and track heads, and
the token that masked its training images, have no counterpart."""

TRANSFORMERS = (
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"embeddings\.", ""),
    (r"encoder\.layer\.", "blocks."),
    (r"attention\.(output\.dense|o_proj)\.", "attn.out."),
    (r"attention\.(attention\.query|q_proj)\.", "attn.query."),
    (r"attention\.(attention\.key|k_proj)\.", "attn.key."),
    (r"attention\.(attention\.value|v_proj)\.", "attn.value."),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"mlp\.weights_in\.", "mlp.w12."),
    (r"mlp\.(weights_out|down_proj)\.", "mlp.w3."),
    (r"^layernorm\.", "norm."),
)

JOINED = {"qkv": ("query", "key", "value"), "w12": ("gate_proj", "up_proj")}
"""Projections that are one here and several there."""


def read_foreign(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file or a torch checkpoint, without running code from it."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # of pickle, zip and torch, whose own words advise to open it all the same
        raise ValueError(
            f"{path} holds more than tensors, or is damaged, and is not opened: download it again, or save its "
            "state dict alone"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}: give a checkpoint with named tensors")
    for wrapper in ("model", "state_dict"):
        content = content[wrapper] if isinstance(content.get(wrapper), dict) else content
    return {
        name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)
    }


def detect_kind(names: Iterable[str]) -> str:
    """Detect "vggt", "dinov2" (its hub's names), "transformers" (DINOv2 there) or "lvsm" (as RayRoPE has it)."""
    names = {re.sub(r"^(module\.|_orig_mod\.)+", "", name) for name in names}
    for kind, mark in (
        ("vggt", "aggregator.camera_token"),
        ("dinov2", "pos_embed"),
        ("transformers", "embeddings.position_embeddings"),
        ("lvsm", RELEASED_LVSM_TENSOR),
    ):
        if mark in names:
            return kind
    some = ", ".join(sorted(names)[:3]) or "no tensors"
    raise ValueError(
        f"neither VGGT, DINOv2 nor RayRoPE's LVSM: it has {some}, …; give a checkpoint of facebook/VGGT-1B, of DINOv2's"
        " hub (dinov2_vit*14, dinov2_vit*14_reg4), of transformers (facebook/dinov2-*) or of Lucas-707/RayRoPE"
    )


def rename_from_hub(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename DINOv2's own names, which are ours but for the output projection."""
    return {name.replace(".attn.proj.", ".attn.out."): value for name, value in state.items()}


def rename_from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename transformers' Dinov2Model and Dinov2WithRegistersModel, of their files and of version 5 in memory.

    Projections of queries, keys and values become one.
    """
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        for pattern, ours in TRANSFORMERS:
            name = re.sub(pattern, ours, name)
        renamed[name] = value
    for ours, parts in JOINED.items():
        for name in [name for name in renamed if f".{parts[0]}." in name]:
            values = [renamed.pop(name.replace(f".{parts[0]}.", f".{part}.")) for part in parts]
            renamed[name.replace(f".{parts[0]}.", f".{ours}.")] = torch.cat(values)
    return renamed


def rename_from_vggt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename VGGT's names to those of ReconstructionModel; what has no counterpart gets the prefix `vggt.`."""
    renamed = {}
    for name, value in rename_from_hub(state).items():
        for theirs, ours in VGGT_PARTS.items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
                break
        else:
            name = f"vggt.{name}"  # its camera_head is not ours
        renamed[name] = value
    return renamed


# LVSM as released with RayRoPE. What no tensor shows (input channels, the encoding where no depth is predicted,
# RayRoPE's depth coordinate) is given by the caller.


RELEASED_LVSM_TENSOR = "query_tokenizer.weight"
"""A tensor that every such checkpoint has, and no other that we read."""

RELEASED_LVSM_NAMES = (
    (r"^(module\.|_orig_mod\.)+", ""),  # of DistributedDataParallel and torch.compile
    (r"^input_tokenizer\.", "context_tokens."),
    (r"^query_tokenizer\.", "target_tokens."),
    (r"^output_layer\.", "pixels."),
    (r"^shared_rays$", "ray_channels.noise"),
    (r"^encoder\.in_norm\.", "input_norm."),
    (r"^encoder\.out_norm\.", "output_norm."),
    (r"^encoder\.layers\.(\d+)\.", r"blocks.\1."),
    (r"\.norm1\.", ".attention_norm."),
    (r"\.norm2\.", ".ffn_norm."),
    (r"\.linear1\.", ".widen."),
    (r"\.linear2\.", ".narrow."),
    (r"\.self_attn\.in_proj_weight$", ".attention.qkv.weight"),
    (r"\.self_attn\.out_proj\.", ".attention.out."),
    (r"\.self_attn\.d_proj_(weight|bias)$", r".attention.depth.linear.\1"),
    (r"\.self_attn\.", ".attention."),
)
"""Patterns of their names and ours, applied in this order."""

COLORS = 3
DEPTH_OUTPUTS = 2
"""Logarithm of the depth and half the width of its interval."""


def rename_from_released(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a released LVSM to ours."""
    renamed = {}
    for name, value in state.items():
        for pattern, ours in RELEASED_LVSM_NAMES:
            name = re.sub(pattern, ours, name)
        renamed[name] = value
    return renamed


def read_released_config(state: Mapping[str, Tensor], method: str | None, depth: str) -> LVSMConfig:
    """Return the config of renamed tensors, or raise ValueError for a variant that has no counterpart here.

    `method` is a row of METHODS or CONDITIONING+ENCODING, e.g. plucker+none; None only where depths are predicted,
    which is RayRoPE.
    """
    layers = count_layers(state, "blocks.")
    dim, inputs = state["context_tokens.weight"].shape
    patch = isqrt(state["pixels.weight"].shape[0] // COLORS)
    if inputs != (COLORS + CHANNELS) * patch**2:
        raise ValueError(
            f"its context tokens take {inputs / patch**2:g} channels of {patch}×{patch} patches, not "
            f"{COLORS + CHANNELS}: networks with depth among their inputs cannot be converted"
        )
    biased = [name for name in state if name.endswith("bias") and ".depth." not in name]
    if biased or "blocks.0.attention.q_norm.weight" not in state:
        raise ValueError(
            "it has biases, or no norm of queries and keys: networks of scripts/nvs.sh have none, and one"
        )
    conditioning, encoding = choose_method(state, method)
    heads = dim // len(state["blocks.0.attention.q_norm.weight"])
    ffn = state["blocks.0.widen.weight"].shape[0]
    options = make_released_options(encoding, depth)
    return LVSMConfig(dim, layers, heads, ffn, patch, conditioning, encoding, options)


def choose_method(state: Mapping[str, Tensor], method: str | None) -> Method:
    """Return the input channels and the encoding, checked against what the tensors show of them."""
    predicted = state.get("blocks.0.attention.depth.linear.weight")
    if predicted is not None and len(predicted) != DEPTH_OUTPUTS:
        raise ValueError("it predicts a depth without an interval: only predict_dsig can be converted")
    if method is None:
        if predicted is None:
            raise ValueError(
                f"its tensors do not show how it uses cameras: give --method, one of {', '.join(METHODS)} or "
                "CONDITIONING+ENCODING, e.g. plucker+none"
            )
        method = "rayrope"
    chosen = METHODS[method] if method in METHODS else parse_method(method)
    if (chosen.encoding in ("rayrope", "rayrope_gray")) != (predicted is not None):
        has = "predicts depths, which RayRoPE does" if predicted is not None else "predicts no depths"
        raise ValueError(f"--method {method}: the network {has}; give the method it was trained with")
    if (chosen.conditioning == "none") != ("ray_channels.noise" in state):
        raise ValueError(f"--method {method}: input channels none and a tensor shared_rays go together")
    return chosen


def parse_method(text: str) -> Method:
    """Parse CONDITIONING+ENCODING."""
    for conditioning in get_args(Conditioning):
        for encoding in ENCODINGS:
            if text == f"{conditioning}+{encoding}":
                return Method(conditioning, encoding)
    raise ValueError(
        f"--method {text}: give one of {', '.join(METHODS)}, or CONDITIONING+ENCODING with one of "
        f"{', '.join(get_args(Conditioning))} and one of {', '.join(ENCODINGS)}"
    )


def make_released_options(encoding: str, depth: str) -> EncodingOptions:
    """Return the options with which an encoding computes what released code does."""
    if encoding == "none":
        return {}
    if not encoding.startswith("rayrope"):
        return {"sign": -1}  # released code rotates the other way
    # Narrow intervals are points in released code; our default has no such threshold.
    return {"sign": -1, "expectation": "threshold", "depth": depth}


# Conversion: VGGT becomes a whole model to start from, DINOv2 an encoder.


ENCODER = "encoder."
SEED = 0
"""Seed of the heads that VGGT does not have."""


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
    """Read the config of a network to start from VGGT off its shapes; its taps cannot be read."""
    sizes = read_vggt_sizes(state, "point_head")
    return ReconstructionConfig(method=method, taps=taps, pose_dim=sizes["dim"] // 2, **sizes)


def read_vggt_sizes(state: Mapping[str, Tensor], head: str) -> dict[str, Any]:
    """Read the sizes of encoder, trunk and a DPT head off the shapes of a VGGT checkpoint."""
    plain = "aggregator.patch_embed.proj.weight" in state
    try:
        dim = state["aggregator.camera_token"].shape[-1]
        stem = state["aggregator.patch_embed." + ("proj.weight" if plain else "patch_embed.proj.weight")]
        head_dim = len(state["aggregator.frame_blocks.0.attn.q_norm.weight"])
        features = state[f"{head}.scratch.output_conv1.weight"].shape[1]
        channels = tuple(len(state[f"{head}.projects.{level}.weight"]) for level in range(4))
    except KeyError as error:
        raise ValueError(
            f"tensors of the encoder, the trunk or the dense head are missing ({error}): download the file again"
        ) from None
    if dim % head_dim:
        raise ValueError(f"width {dim} is not a multiple of the head dimension {head_dim}")
    return {
        "encoder": "patch" if plain else find_encoder_size(dim, registers=True),
        "dim": dim,
        "pairs": count_layers(state, "aggregator.frame_blocks."),
        "heads": dim // head_dim,
        "patch": stem.shape[-1],
        "dpt_features": features,
        "dpt_channels": channels,
    }


def count_layers(state: Mapping[str, Tensor], prefix: str) -> int:
    return len({name.removeprefix(prefix).split(".")[0] for name in state if name.startswith(prefix)})


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
