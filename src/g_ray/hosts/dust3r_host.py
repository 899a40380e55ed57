"""DUSt3R and MASt3R: CroCo's encoder, and two decoders that attend to each other."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from g_ray.geometry.pose import Pose
from g_ray.hosts.host_base import (
    CrossAttention,
    Host,
    HostCall,
    JointAttention,
    bind_layers,
    find_layers,
    get_head_dim,
)
from g_ray.hosts.shared_modules import replace_modules, share_module
from g_ray.rays.views import Tokens, Views


class CroCoCrossAttention(CrossAttention):
    PROJECTIONS = ("projq", "projk", "projv")


class DUSt3RHost(Host):
    """Call: `adapted(view1, view2, cameras=(camera1, camera2))`. There are no special tokens.

    Each decoder attends to its own image, then to the other one: queries and keys have different cameras there.
    """

    TITLE = "DUSt3R / MASt3R"
    CLASSES = ("dust3r.model.AsymmetricCroCo3DStereo",)

    def find_head_dims(self, model: nn.Module) -> set[int]:
        layers = [find_layers(model, name, "attn") for name in ("enc_blocks", "dec_blocks")]
        return {get_head_dim(layer) for part in layers for layer in part.values()}

    def get_options(self, model: nn.Module, name: str) -> dict[str, Any]:
        if name != "rope":
            return {"y_first": True}
        rope: Any = model.rope
        if rope is None:
            raise ValueError("this CroCo has no RoPE of its own: choose another encoding than 'rope'")
        own = {"base": float(rope.base), "scale": float(rope.F0)}
        return {"y_first": True, "coordinate": "grid", "rotate_values": False, **own}

    def bind(self, model: nn.Module, call: HostCall) -> nn.Module:
        shown = [call.get_argument(f"view{number + 1}", number) for number in (0, 1)]
        _check_views(call.views, shown)
        sides = _split_sides(model, call.views)
        inside = [call.prepare(side) for side in sides]
        across = [call.prepare(sides[0], sides[1]), call.prepare(sides[1], sides[0])]
        changed = {}
        for name, own, other in zip(("dec_blocks", "dec_blocks2"), inside, across, strict=True):
            changed |= bind_layers(find_layers(model, name, "attn"), JointAttention, own)
            changed |= bind_layers(find_layers(model, name, "cross_attn"), CroCoCrossAttention, other)
        # Every sample is encoded, or every second one of a batch that has every pair in both orders.
        every = _bind_encoders(model, call, 1)
        second = every if call.views.batch == 1 else _bind_encoders(model, call, 2)
        encode = partial(_encode_pairs, {1: every, 2: second}, len(shown[0]["img"]))
        return share_module(replace_modules(model, changed), _encode_image_pairs=encode)


def _bind_encoders(model: nn.Module, call: HostCall, step: int) -> list[Any]:
    """Rebuild the encoder for each side of the pair, for every `step`-th sample of the batch."""
    sides = _split_sides(model, _take_samples(call.views, step))
    layers = find_layers(model, "enc_blocks", "attn")
    return [replace_modules(model, bind_layers(layers, JointAttention, call.prepare(side))) for side in sides]


def _encode_pairs(
    encoders: Mapping[int, list[Any]],
    batch: int,
    img1: Tensor,
    img2: Tensor,
    true_shape1: Tensor,
    true_shape2: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Encode both images, each with its own camera, in place of the network's joint pass."""
    first, second = encoders[batch // len(img1)]
    features1, pos1, _ = first._encode_image(img1, true_shape1)
    features2, pos2, _ = second._encode_image(img2, true_shape2)
    return features1, features2, pos1, pos2


def _split_sides(model: Any, views: Views) -> list[Tokens]:
    tokens = views.tokens(tuple(model.patch_embed.patch_size))
    return [tokens.select([view]) for view in (0, 1)]


def _take_samples(views: Views, step: int) -> Views:
    if step == 1 or views.batch == 1:
        return views
    cameras = [camera[::step] if camera.batch_shape else camera for camera in views.cameras]
    poses = views.poses
    if poses is not None and poses.world_from_cam.ndim == 4:
        poses = Pose(poses.world_from_cam[::step])
    return Views(cameras, poses)


def _check_views(views: Views, shown: list[Any]) -> None:
    if len(views) != 2:
        raise ValueError(f"two images, but {len(views)} cameras: give one camera per image")
    for camera, view in zip(views.cameras, shown, strict=True):
        sizes = [list(view["img"].shape[-2:])]
        if "true_shape" in view:
            # Portrait images are stored lying on their side; `true_shape` is that of the camera's image.
            sizes = view["true_shape"].tolist()
        if any(size != [camera.height, camera.width] for size in sizes):
            found = ", ".join(sorted({f"{width}×{height}" for height, width in sizes}))
            raise ValueError(
                f"a camera is {camera.width}×{camera.height} px, but its images {found}: resize and crop image and "
                "camera together; a batch has images of one size and orientation"
            )
