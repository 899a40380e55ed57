"""Wan's video transformer in diffusers: time and two angles, one camera per frame."""

from typing import Any

from torch import Tensor, nn

from g_ray.encodings import Prepared
from g_ray.hosts.host_base import Host, HostCall, attend, check_plain, find_layers
from g_ray.hosts.shared_modules import replace_modules, share_module
from g_ray.nn.attention import is_private
from g_ray.rays.layout import Layout
from g_ray.rays.views import Tokens


class WanSelfAttention(nn.Module):
    """Self-attention of a video, with the names of diffusers; q and k are normalized over all heads together."""

    heads: int
    to_qkv: nn.Module
    to_q: nn.Module
    to_k: nn.Module
    to_v: nn.Module
    norm_q: nn.Module
    norm_k: nn.Module
    to_out: nn.ModuleList
    position: Prepared

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: Any = None,
    ) -> Tensor:
        check_plain(
            "attention", 0.0, encoder_hidden_states=encoder_hidden_states, attention_mask=attention_mask
        )
        if getattr(self, "fused_projections", False):
            projections = [self.to_qkv]
            q, k, v = self.to_qkv(hidden_states).chunk(3, -1)
        else:
            projections = [self.to_q, self.to_k, self.to_v]
            q, k, v = (project(hidden_states) for project in projections)
        q, k = self.norm_q(q), self.norm_k(k)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        overwrite = is_private(projections, [self.norm_q, self.norm_k])
        out = attend(q, k, v, self.position, overwrite).type_as(q)
        return self.to_out[1](self.to_out[0](out))


class WanHost(Host):
    """`cameras` has one camera per frame of the latents, at the size of the video or of the latents.

    The video's autoencoder joins frames: pass the camera of the middle one. Time keeps the network's own frequencies
    and channels; without times, frames are counted 0, 1, 2, …
    """

    TITLE = "Wan of diffusers"
    CLASSES = ("diffusers.models.transformers.transformer_wan.WanTransformer3DModel",)
    # Half of a head for camera matrices would leave time no channels of its own.
    ENCODINGS = ("none", "rope", "gray")

    def find_head_dims(self, model: Any) -> set[int]:
        return {model.config.attention_head_dim}

    def get_options(self, model: Any, name: str) -> dict[str, Any]:
        split = (model.rope.t_dim, model.rope.h_dim, model.rope.w_dim)
        layout = {"time": True, "split": split, "pairing": "interleaved", "y_first": True, "base": 10_000.0}
        return {**layout, "rotate_values": False} if name == "rope" else layout

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        latents = call.get_images("hidden_states", "batch channel frame h w")
        frames, rows, columns = (
            size // patch for size, patch in zip(latents.shape[2:], model.config.patch_size, strict=True)
        )
        _check_frames(call, frames, latents.shape[4], latents.shape[3])
        tokens = Tokens(call.views, Layout.from_grids([(rows, columns)] * frames))
        (position,) = call.prepare(tokens).values()
        changed = {
            path: share_module(layer, WanSelfAttention, position=position)
            for path, layer in find_layers(model, "blocks", "attn1").items()
        }
        return replace_modules(model, changed)


def _check_frames(call: HostCall, frames: int, width: int, height: int) -> None:
    cameras = call.views.cameras
    if len(cameras) != frames:
        raise ValueError(
            f"{frames} frames of latents, but {len(cameras)} cameras: give one camera per frame of latents"
        )
    for frame, camera in enumerate(cameras):
        factor = camera.width // width
        if factor < 1 or (camera.width, camera.height) != (factor * width, factor * height):
            raise ValueError(
                f"camera {frame} is {camera.width}×{camera.height} px, no multiple of the latents' {width}×{height}: "
                "resize and crop video and camera together"
            )
