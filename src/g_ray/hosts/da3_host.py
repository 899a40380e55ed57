"""Depth Anything 3: a DINOv2 whose later layers have 2D RoPE and attend inside views and across them in turn."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from g_ray.coordinates import RayCoordinate, get_coordinate
from g_ray.encodings import Encoding, NoPosition, Prepared, Rotary, Rotation, Tokenwise
from g_ray.hosts.host_base import Host, HostCall, JointAttention, bind_layers, find_layers, get_head_dim
from g_ray.hosts.shared_modules import replace_modules

MAX_UNSORTED = 2
"""Views up to which the network keeps their order; of more it chooses a first one, unless it is told which."""


class DA3Host(Host):
    """One class or camera token stands before the patches of every view. Layers without RoPE stay as they are.

    The network's own coordinates ("rope") are grid positions inside views; across views all patches share one. Other
    encodings are used in both.
    """

    TITLE = "Depth Anything 3"
    CLASSES = (
        "depth_anything_3.model.da3.DepthAnything3Net",
        "depth_anything_3.model.da3.NestedDepthAnything3Net",
        "depth_anything_3.api.DepthAnything3",
    )

    def find_head_dims(self, model: nn.Module) -> set[int]:
        trunks = _find_trunks(model)
        if not trunks:
            raise ValueError(
                "this Depth Anything 3 sees one view at a time and has no RoPE: nothing to adapt"
            )
        layers = [part for path in trunks for part in _find_attention(model, path)]
        return {get_head_dim(layer) for part in layers for layer in part.values()}

    def get_options(self, model: nn.Module, name: str) -> dict[str, Any]:
        if name != "rope":
            return {"y_first": True}
        rope = next(iter(_find_trunks(model).values())).rope
        own = {"base": float(rope.base_frequency), "scale": float(rope.scaling_factor)}
        return {"y_first": True, "coordinate": "grid_from_one", "rotate_values": False, **own}

    def bind(self, model: nn.Module, call: HostCall) -> nn.Module:
        images = call.get_images("image" if hasattr(model, "inference") else "x", "batch view 3 h w")
        call.check_cameras(images.shape[1], images.shape[4], images.shape[3])
        _check_order(call)
        changed = {}
        for path, trunk in _find_trunks(model).items():
            across = call.prepare(call.views.tokens(trunk.patch_size, special=trunk.patch_start_idx))
            inside = call.prepare_frames(across, len(images))
            if call.name == "rope":
                across = {size: _gather_patches(position) for size, position in across.items()}
            local_layers, global_layers = _find_attention(model, path)
            changed |= bind_layers(local_layers, JointAttention, inside)
            changed |= bind_layers(global_layers, JointAttention, across)
        return replace_modules(model, changed)


def _find_trunks(model: nn.Module) -> dict[str, Any]:
    return {
        path: trunk
        for path, trunk in model.named_modules()
        if type(trunk).__name__ == "DinoVisionTransformer" and trunk.rope is not None
    }


def _find_attention(model: nn.Module, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the attention with RoPE inside views, and across them: every second layer from `alt_start` on."""
    trunk: Any = model.get_submodule(path)
    inside, across = {}, {}
    for index, (name, layer) in enumerate(find_layers(model, f"{path}.blocks", "attn").items()):
        if layer.rope is not None:
            crossing = trunk.alt_start != -1 and index >= trunk.alt_start and index % 2 == 1
            (across if crossing else inside)[name] = layer
    return inside, across


def _gather_patches(position: Prepared) -> Prepared:
    """Put all patches where the first one is."""
    if not isinstance(position, Tokenwise) or not isinstance(position.query, Rotation):
        return position
    turn = position.query
    places = torch.arange(len(position.queries), device=turn.cos.device)
    is_patch = position.queries.get_patch_mask(turn.cos.device)
    places = torch.where(is_patch, places[is_patch][0], places)
    same = Rotation(turn.cos[:, :, places], turn.sin[:, :, places])
    rotates_values = isinstance(position.value, Rotation)
    moved = replace(position, query=same, key=same)
    return replace(moved, value=same, output=same.inverse()) if rotates_values else moved


def _check_order(call: HostCall) -> None:
    """Refuse a call in which the network changes the order of views, if tokens of views differ in their positions."""
    count, given = len(call.views), call.get_argument("extrinsics", 1) is not None
    strategy = call.get_argument("ref_view_strategy", 6, "saddle_balanced")
    if count > MAX_UNSORTED and not given and strategy != "first":
        if all(_is_same_in_all_views(one) for one in call.encodings.values()):
            return
        raise ValueError(
            f"Depth Anything 3 would reorder {count} views while cameras keep their order: "
            "pass ref_view_strategy='first'"
        )


def _is_same_in_all_views(one: Encoding) -> bool:
    if isinstance(one, NoPosition):
        return True
    turns = isinstance(one, Rotary) and not isinstance(get_coordinate(one.coordinate), RayCoordinate)
    return turns and not one.compares_poses
