"""What an adapter to a released network has to say, and the attention that its layers run instead of their own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from g_ray.encodings import ENCODINGS, Encoding, Prepared, Rotation, Tokenwise, encoding
from g_ray.encodings.camera_transform import CameraBlock, TokenBlock
from g_ray.encodings.encoding_base import DirectSum, Identity, TokenMap
from g_ray.hosts.shared_modules import share_module
from g_ray.nn.attention import attention, is_private
from g_ray.rays.layout import Layout
from g_ray.rays.views import Tokens, Views

Encodings = Mapping[int, Encoding]
"""The chosen encoding by head dimension: encoder and decoder of a network may differ in it."""


@dataclass(frozen=True)
class HostCall:
    """A call of an adapted network: its encoding, built for each head dimension, the views, the arguments."""

    name: str
    encodings: Encodings
    views: Views
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def get_argument(self, name: str, place: int, default: Any = None) -> Any:
        """Get an argument that may be given by place or by name."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if place < len(self.args) else default

    def get_images(self, name: str, axes: str) -> Tensor:
        """Get the first argument, images whose axes are written as in "batch view 3 h w"."""
        images = self.get_argument(name, 0)
        if not isinstance(images, Tensor) or images.ndim != len(axes.split()):
            raise ValueError(f"{name} must be a tensor [{axes}], as the network itself takes it")
        return images

    def check_cameras(self, count: int, width: int, height: int) -> None:
        """Refuse cameras that do not belong to the images."""
        cameras = self.views.cameras
        if len(cameras) != count:
            raise ValueError(f"{count} images, but {len(cameras)} cameras: give one camera per image")
        for view, camera in enumerate(cameras):
            if (camera.width, camera.height) != (width, height):
                raise ValueError(
                    f"camera {view} is {camera.width}×{camera.height} px, but its image {width}×{height}: "
                    "resize and crop image and camera together"
                )

    def prepare(self, queries: Tokens, keys: Tokens | None = None) -> dict[int, Prepared]:
        """Prepare the encoding for every head dimension."""
        return {size: one.prepare(queries, keys) for size, one in self.encodings.items()}

    def prepare_frames(self, across: Mapping[int, Prepared], batch: int) -> dict[int, Prepared]:
        """Make positions for attention inside views from those across them; views become samples of a batch."""
        return {size: fold_views(position, len(self.views), batch) for size, position in across.items()}


class Host(ABC):
    """A family of released networks. Stateless: everything is read from the network at every call."""

    CLASSES: ClassVar[tuple[str, ...]]
    """Qualified names of the networks' classes, from the package on; copies inside other packages are found too."""
    TITLE: ClassVar[str]
    ENCODINGS: ClassVar[tuple[str, ...]] = tuple(
        name for name, build in ENCODINGS.items() if not build.func.needs_depth
    )
    """Encodings that need no parameters of their own. RayRoPE's predict a depth per token, with a layer of theirs."""

    @abstractmethod
    def find_head_dims(self, model: nn.Module) -> set[int]:
        """Find the head dimensions of all layers that are adapted."""

    @abstractmethod
    def bind(self, model: nn.Module, call: HostCall) -> nn.Module:
        """Rebuild the network for one call: its attention knows where tokens look."""

    def get_options(self, model: nn.Module, name: str) -> dict[str, Any]:
        """Get the options that make an encoding fit the network's channels; with "rope", its own coordinates."""
        return {}

    def build_encodings(self, model: nn.Module, name: str, options: dict[str, Any]) -> Encodings:
        """Build the encoding of that name for every head dimension; refuse what the network cannot take."""
        if name in ENCODINGS and name not in self.ENCODINGS:
            raise ValueError(
                f"{self.TITLE} cannot take encoding {name!r}: choose one of {', '.join(self.ENCODINGS)}"
            )
        own = self.get_options(model, name)
        known = signature(ENCODINGS[name]).parameters if name in ENCODINGS else {}
        fitting = {key: value for key, value in own.items() if key in known}
        return {size: encoding(name, size, **{**fitting, **options}) for size in self.find_head_dims(model)}


def find_layers(model: nn.Module, prefix: str, *names: str) -> dict[str, Any]:
    """Find the modules `prefix.0.name`, `prefix.1.name`, … of a list of blocks, by their full names."""
    count = len(model.get_submodule(prefix))  # pyright: ignore[reportArgumentType]
    paths = [f"{prefix}.{index}.{name}" for index in range(count) for name in names]
    return {path: model.get_submodule(path) for path in paths}


def fold_views(position: Prepared, views: int, batch: int) -> Prepared:
    """Turn positions of a sequence of equal views into those of a batch with `batch · views` sequences of one."""
    assert isinstance(position, Tokenwise)
    names = ("query", "key", "value", "output")
    maps = {name: _fold_map(getattr(position, name), views, batch) for name in names}
    segments = [replace(part, view=0) for part in position.queries.segments if part.view == 0]
    layout = Layout(tuple(segments))
    return replace(position, batch=batch * views, queries=layout, keys=layout, **maps)


def _fold_map(part: TokenMap, views: int, batch: int) -> TokenMap:
    if isinstance(part, DirectSum):
        return replace(part, parts=tuple(_fold_map(one, views, batch) for one in part.parts))
    if isinstance(part, Rotation):
        return Rotation(*(_fold_tokens(one, 2, views, batch) for one in (part.cos, part.sin)))
    if isinstance(part, TokenBlock):
        return TokenBlock(_fold_tokens(part.matrices, 1, views, batch))
    if isinstance(part, CameraBlock):
        first = Layout(tuple(one for one in part.layout.segments if one.view == 0))
        return CameraBlock(_fold_tokens(part.matrices, 1, views, batch), first)
    assert isinstance(part, Identity)
    return part


def _fold_tokens(tensor: Tensor, axis: int, views: int, batch: int) -> Tensor:
    """Move the views of an axis of tokens, or of views, into the batch: [batch … (view token) …]."""
    split = tensor.unflatten(axis, (views, -1)).movedim(axis, 1)  # [batch view … token …]
    return split.expand(batch, *split.shape[1:]).flatten(0, 1)


def get_head_dim(layer: Any) -> int:
    """Get the head dimension of an attention layer with the names `num_heads` and `proj`."""
    return layer.proj.in_features // layer.num_heads


def bind_layers(
    layers: Mapping[str, nn.Module], kind: type[nn.Module], positions: Mapping[int, Prepared]
) -> dict[str, nn.Module]:
    """Make the attention that knows positions for some layers, over the same parameters."""
    return {
        path: share_module(layer, kind, position=positions[get_head_dim(layer)])
        for path, layer in layers.items()
    }


# Attention layers.


def attend(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    v: Float[Tensor, "batch head key dim"],
    position: Prepared,
    overwrite: bool = False,
) -> Float[Tensor, "batch query channel"]:
    """Attend with the encoding, and join the heads; with `overwrite` nobody else needs q, k and v."""
    return attention(q, k, v, position, overwrite=overwrite).transpose(1, 2).flatten(2)


def check_plain(layer: str, dropout: float, **unsupported: Any) -> None:
    """Refuse what the operator does not compute: dropout of attention weights, and masks."""
    given = [name for name, value in unsupported.items() if value is not None]
    if given:
        raise ValueError(f"{layer}: {', '.join(given)} cannot be combined with a position encoding here")
    if dropout:
        raise ValueError(f"{layer}: dropout of attention weights ({dropout}) is not supported: set it to 0")


class HostAttention(nn.Module):
    """Multi-head attention over the parameters of a network's layer, with the names that VGGT, π³, DA3 and CroCo share.

    Positions that the network passes itself are not used.
    """

    num_heads: int
    q_norm: nn.Module
    k_norm: nn.Module
    proj: nn.Module
    proj_drop: nn.Module
    attn_drop: nn.Dropout
    position: Prepared

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *projections: nn.Module, **unsupported: Any) -> Tensor:
        """Attend with the outputs of projections, which are normalized first where the layer does so."""
        check_plain("attention", self.attn_drop.p if self.training else 0.0, **unsupported)
        norms = [self.q_norm, self.k_norm] if "q_norm" in self._modules else []
        if norms:
            q, k = self.q_norm(q), self.k_norm(k)
        out = attend(q, k, v, self.position, is_private(projections, norms))
        return self.proj_drop(self.proj(out))


class JointAttention(HostAttention):
    """Self-attention with one projection `qkv`: VGGT, π³, DA3, CroCo, DINOv2."""

    qkv: nn.Module

    def forward(
        self, x: Tensor, pos: Any = None, *, xpos: Any = None, attn_bias: Any = None, attn_mask: Any = None
    ) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.attend(q, k, v, self.qkv, attn_bias=attn_bias, attn_mask=attn_mask)


class CrossAttention(HostAttention):
    """Attention of queries to other tokens, with a projection each; `PROJECTIONS` are their names in the network."""

    PROJECTIONS: ClassVar[tuple[str, str, str]]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        qpos: Any = None,
        kpos: Any = None,
        *,
        attn_bias: Any = None,
    ) -> Tensor:
        projections = [self.get_submodule(name) for name in self.PROJECTIONS]
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project, x in zip(projections, (query, key, value), strict=True)
        )
        return self.attend(q, k, v, *projections, attn_bias=attn_bias)
