"""DINOv3, DINOv2 and DINOv2 with registers in transformers: images that do not see each other, one camera each."""

from math import pi
from typing import Any

from torch import Tensor, nn

from g_ray.encodings import Prepared
from g_ray.hosts.host_base import Host, HostCall, attend, check_plain
from g_ray.hosts.shared_modules import replace_modules, share_module
from g_ray.nn.attention import is_private

MODULES = "transformers.models"
ATTENTION = ("DINOv3ViTAttention", "Dinov2Attention", "Dinov2WithRegistersAttention")


class TransformersAttention(nn.Module):
    """Self-attention with the names of transformers: `q_proj`, `k_proj`, `v_proj`, `o_proj`."""

    head_dim: int
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    o_proj: nn.Module
    position: Prepared

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        dropout = getattr(self, "attention_dropout", None) or getattr(self, "dropout", 0.0)
        check_plain("attention", dropout if self.training else 0.0, attention_mask=attention_mask)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (
            project(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in projections
        )
        return self.o_proj(attend(q, k, v, self.position, is_private(projections))), None


class DINOHost(Host):
    """A class token and registers stand before the patches of every image.

    `cameras` has one camera for all images of the batch, or one per image. DINOv3 turns patches by their normalized
    position; DINOv2 adds learned positions to its input instead, which stay, so its own encoding is "none".
    """

    TITLE = "DINOv3 and DINOv2 of transformers"
    CLASSES = (
        f"{MODULES}.dinov3_vit.modeling_dinov3_vit.DINOv3ViTPreTrainedModel",
        f"{MODULES}.dinov2.modeling_dinov2.Dinov2PreTrainedModel",
        f"{MODULES}.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersPreTrainedModel",
    )

    def find_head_dims(self, model: nn.Module) -> set[int]:
        layers = _find_attention(model)
        if not layers:
            raise ValueError(f"{type(model).__name__} has no attention that is known: install transformers 5")
        return {layer.head_dim for layer in layers.values()}

    def get_options(self, model: Any, name: str) -> dict[str, Any]:
        layout = {"y_first": True, "pairing": "half"}
        theta = getattr(model.config, "rope_theta", None)
        if name != "rope" or theta is None:
            return layout
        # Phases 2π c ω with c in [−1, 1] over each side of the image; ours run from −½ to ½.
        own = {"coordinate": "normalized_grid", "scale": 4 * pi, "base": float(theta)}
        return {**layout, "rotate_values": False, **own}

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        images = call.get_images("pixel_values", "batch 3 h w")
        single = len(call.views) == 1
        call.check_cameras(1 if single else len(images), images.shape[3], images.shape[2])
        special = 1 + getattr(model.config, "num_register_tokens", 0)
        across = call.prepare(call.views.tokens(_get_patch(model.config.patch_size), special=special))
        positions = across if single else call.prepare_frames(across, 1)
        changed = {
            path: share_module(layer, TransformersAttention, position=positions[layer.head_dim])
            for path, layer in _find_attention(model).items()
        }
        return replace_modules(model, changed)


def _get_patch(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _find_attention(model: nn.Module) -> dict[str, Any]:
    # By class: versions of transformers differ in where they keep the list of layers.
    return {path: layer for path, layer in model.named_modules() if type(layer).__name__ in ATTENTION}
