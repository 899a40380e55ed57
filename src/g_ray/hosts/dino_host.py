"""DINOv3, DINOv2 and DINOv2 with registers in transformers: images that do not see each other, one camera each."""

from abc import abstractmethod
from math import pi
from typing import Any, ClassVar

from torch import Tensor, nn

from g_ray.encodings import Prepared
from g_ray.hosts.host_base import Host, HostCall, attend, check_plain
from g_ray.hosts.shared_modules import replace_modules, share_module
from g_ray.nn.attention import is_private

MODULES = "transformers.models"


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


class ImageHost(Host):
    """Networks whose images do not see each other, with special tokens before the patches.

    `cameras` has one camera for all images of the batch, or one per image.
    """

    IMAGES: ClassVar[str]
    """The network's name for its first argument."""
    LAYERS: ClassVar[tuple[str, ...]]
    """Names of the classes of its attention layers, which have a `head_dim`."""
    ATTENTION: ClassVar[type[nn.Module]]
    """What stands in their place."""
    VERSION: ClassVar[str]

    @abstractmethod
    def get_patches(self, model: Any) -> tuple[tuple[int, int], int]:
        """Get the size of a patch (height, width) and the number of special tokens."""

    def find_head_dims(self, model: nn.Module) -> set[int]:
        layers = self._find_attention(model)
        if not layers:
            raise ValueError(
                f"{type(model).__name__} has none of the attention layers that are known "
                f"({', '.join(self.LAYERS)}): use those of {self.VERSION}"
            )
        return {layer.head_dim for layer in layers.values()}

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        images = call.get_images(self.IMAGES, "batch 3 h w")
        single = len(call.views) == 1
        call.check_cameras(1 if single else len(images), images.shape[3], images.shape[2])
        patch, special = self.get_patches(model)
        across = call.prepare(call.views.tokens(patch, special=special))
        positions = across if single else call.prepare_frames(across, 1)
        changed = {
            path: share_module(layer, self.ATTENTION, position=positions[layer.head_dim])
            for path, layer in self._find_attention(model).items()
        }
        return replace_modules(model, changed)

    def _find_attention(self, model: nn.Module) -> dict[str, Any]:
        # By class: versions of a package differ in where they keep the list of layers.
        return {path: layer for path, layer in model.named_modules() if type(layer).__name__ in self.LAYERS}


class DINOHost(ImageHost):
    """A class token and registers stand before the patches of every image.

    DINOv3 turns patches by their normalized
    position; DINOv2 adds learned positions to its input instead, which stay, so its own encoding is "none".
    """

    TITLE = "DINOv3 and DINOv2 of transformers"
    CLASSES = (
        f"{MODULES}.dinov3_vit.modeling_dinov3_vit.DINOv3ViTPreTrainedModel",
        f"{MODULES}.dinov2.modeling_dinov2.Dinov2PreTrainedModel",
        f"{MODULES}.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersPreTrainedModel",
    )

    IMAGES = "pixel_values"
    LAYERS = ("DINOv3ViTAttention", "Dinov2Attention", "Dinov2WithRegistersAttention")
    ATTENTION = TransformersAttention
    VERSION = "transformers 5"

    def get_options(self, model: Any, name: str) -> dict[str, Any]:
        layout = {"y_first": True, "pairing": "half"}
        theta = getattr(model.config, "rope_theta", None)
        if name != "rope" or theta is None:
            return layout
        # Phases 2π c ω with c in [−1, 1] over each side of the image; ours run from −½ to ½.
        own = {"coordinate": "normalized_grid", "scale": 4 * pi, "base": float(theta)}
        return {**layout, "rotate_values": False, **own}

    def get_patches(self, model: Any) -> tuple[tuple[int, int], int]:
        size = model.config.patch_size
        patch = (size, size) if isinstance(size, int) else tuple(size)
        return patch, 1 + getattr(model.config, "num_register_tokens", 0)
