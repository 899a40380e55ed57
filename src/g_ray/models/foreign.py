"""Weights of others: names in the checkpoints of VGGT and DINOv2, and what they are called here.

Those of synthesis networks are in `released_lvsm`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from g_ray.models.released_lvsm import MARK as RELEASED_LVSM

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
        from safetensors import SafetensorError
        from safetensors.torch import load_file

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
        ("lvsm", RELEASED_LVSM),
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


@dataclass(frozen=True)
class LoadReport:
    """Which tensors found each other, and which did not."""

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    """Ours that the file does not have: they keep the values they had."""
    unused: tuple[str, ...]
    """The file's that we have no place for."""

    def format_lines(self) -> list[str]:
        """Format for people: tensors counted by the part they belong to."""
        groups = {"loaded": self.loaded, "not in the file": self.missing, "not used": self.unused}
        return [f"{what}: {_format_counts(names)}" for what, names in groups.items() if names]


def load_matching(module: nn.Module, state: Mapping[str, Tensor]) -> LoadReport:
    """Copy tensors of equal names; unequal shapes are refused, all other differences reported."""
    own = module.state_dict()
    check_shapes(own, state)
    shared = [name for name in own if name in state]
    module.load_state_dict({name: state[name] for name in shared}, strict=False)
    missing = tuple(name for name in own if name not in state)
    return LoadReport(tuple(shared), missing, tuple(name for name in state if name not in own))


def check_shapes(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raise ValueError if tensors of equal names have other shapes, or no names are equal."""
    shared = [name for name in own if name in state]
    wrong = [name for name in shared if own[name].shape != state[name].shape]
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"{len(wrong)} tensors have other shapes, e.g. {name}: {list(state[name].shape)} in the file, "
            f"{list(own[name].shape)} in the network; choose the size that the file was trained at"
        )
    if not shared:
        raise ValueError("no tensor of the file belongs to this network: wrong file or wrong size?")


def _format_counts(names: Iterable[str]) -> str:
    def part(name: str) -> str:
        pieces = name.split(".")
        return ".".join(pieces[: 2 if pieces[0] in ("vggt", "aggregator") else 1])

    counts = Counter(part(name) for name in names)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
