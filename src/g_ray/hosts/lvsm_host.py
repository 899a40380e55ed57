"""LVSM in RayRoPE's repository: context and target views in one sequence, with any encoding around its attention."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from g_ray.encodings import ENCODINGS, Prepared
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.geometry.pose import Pose
from g_ray.hosts.host_base import Encodings, Host, HostCall, check_plain
from g_ray.hosts.shared_modules import replace_modules, share_module
from g_ray.nn.attention import attention
from g_ray.rays.views import Views


class LVSMHost(Host):
    """Call: `adapted(images, ref_cams, tar_cams, cameras=…, poses=…)`, context views first, then targets.

    Every target is rendered in a sequence of its own. Rotations have the sign of the released code, so that
    `encoding="gta"` and `"prope"` compute what a model with that `pos_enc` does. RayRoPE's encodings take the depths
    that the model's layers predict, where it has such layers.
    """

    TITLE = "LVSM of RayRoPE"
    CLASSES = ("nvs.lvsm.LVSMDecoderOnlyModel",)
    ENCODINGS = tuple(ENCODINGS)

    def find_head_dims(self, model: Any) -> set[int]:
        layer = model.config.encoder.layer
        return {layer.d_model // layer.nhead}

    def get_options(self, model: Any, name: str) -> dict[str, Any]:
        # Narrow depth intervals are points in the released code.
        return {"sign": -1, "expectation": "threshold"}

    def build_encodings(self, model: Any, name: str, options: dict[str, Any]) -> Encodings:
        built = super().build_encodings(model, name, options)
        predicted = model.config.encoder.layer.predict_d
        if any(one.needs_depth for one in built.values()) and predicted != "predict_dsig":
            raise ValueError(
                f"encoding {name!r} needs layers that predict depths: this LVSM has depth_type "
                f"{model.config.depth_type!r}, make it with 'predict_dsig'"
            )
        return built

    def bind(self, model: Any, call: HostCall) -> nn.Module:
        images = call.get_images("ref_imgs", "batch view h w 3")
        targets = call.get_argument("tar_cams", 2).camtoworld.shape[1]
        call.check_cameras(images.shape[1] + targets, images.shape[3], images.shape[2])
        views = _give_targets_sequences(call.views, images.shape[1])
        position = next(iter(call.encodings.values())).prepare(views.tokens(model.config.patch_size))
        changed: dict[str, nn.Module] = {"encoder": FixedAttention(model.encoder, position)}
        if hasattr(model.attention, "_precompute_and_cache_apply_fns"):
            # Positions of the model's own encoding, which nothing would use.
            changed["attention"] = share_module(
                model.attention, _precompute_and_cache_apply_fns=lambda **kwargs: None
            )
        return replace_modules(model, changed)


class FixedAttention(nn.Module):
    """The model's encoder with an attention function of ours instead of the one that the model passes."""

    def __init__(self, encoder: nn.Module, position: Prepared) -> None:
        super().__init__()
        self.encoder, self.position = encoder, position

    def forward(self, x: Tensor, sdpa_fn: Any = None) -> Tensor:
        return self.encoder(x, sdpa_fn=partial(attend_with_depths, self.position))


def attend_with_depths(
    position: Prepared,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    predicted_d: Tensor | None = None,
    predicted_d_kv: Tensor | None = None,
) -> Tensor:
    """Attend as the model's layers ask, with the depths that they predict if the encoding uses them."""
    check_plain("attention", dropout_p)
    if isinstance(position, PerCamera) and predicted_d is not None:
        position = position.with_depth(predicted_d, predicted_d if predicted_d_kv is None else predicted_d_kv)
    return attention(q, k, v, position)


def _give_targets_sequences(views: Views, context: int) -> Views:
    """Make a batch with one target each from views with several targets."""
    targets = views.cameras[context:]
    if len(targets) == 1:
        return views
    kind = type(targets[0])
    if views.batch > 1 or any(type(camera) is not kind or camera.batch_shape for camera in targets):
        raise ValueError(
            "several targets must have cameras of one model and without a batch axis: render one target per call"
        )
    cameras = [*views.cameras[:context], kind.stack(targets)]
    if views.poses is None:
        return Views(cameras)
    poses = views.poses.world_from_cam.reshape(-1, 4, 4)
    last = poses[context:, None]
    return Views(cameras, Pose(torch.cat([poses[:context].expand(len(last), -1, -1, -1), last], 1)))
