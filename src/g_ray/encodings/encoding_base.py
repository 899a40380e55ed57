"""What every relative encoding is made of: linear maps of queries, keys, values and outputs, and its interface."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.parameters import checks_enabled
from g_ray.geometry.pose import warn_of_large_translations
from g_ray.rays.layout import Layout
from g_ray.rays.views import Tokens


class TokenMap(ABC):
    """A linear map of each token's channels that is the same for all heads; its entries are float32 or better."""

    @abstractmethod
    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        """Apply the map in plain differentiable operations, for tokens in the map's precision."""

    @abstractmethod
    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        """Write the same numbers into `out`, with few passes over memory and nothing kept for backward.

        `out` may be `x` itself.
        """

    @abstractmethod
    def adjoint(self) -> "TokenMap":
        """Return the transposed map: the inverse of a rotation, and the backward pass of any linear map."""

    @abstractmethod
    def entries(self) -> tuple[Tensor, ...]:
        """Return the tensors that the map is made of."""

    def cos_sin(self) -> tuple[Float[Tensor, "*shape pair"], Float[Tensor, "*shape pair"]]:
        """Return cosine and sine of all channel pairs, block after block."""
        raise ValueError(
            f"{type(self).__name__} has no cosine and sine, as it does not rotate pairs of channels: "
            "use attention(q, k, v, position)"
        )

    def apply(
        self, x: Float[Tensor, "*shape dim"], *, overwrite: bool = False
    ) -> Float[Tensor, "*shape dim"]:
        """Map tokens of any precision; computed in the map's precision, returned in the tokens'.

        With `overwrite` nobody needs the tokens afterwards: without gradients the result takes their place.
        """
        entries = self.entries()
        if not entries:
            return x
        # Rotate in float32, then cast once: cos and sin in bf16 are off by up to 0.2 %.
        lifted = x.to(torch.promote_types(x.dtype, entries[0].dtype))
        # Inductor fuses the plain form by itself; gradients for the cameras need it too.
        if torch.compiler.is_compiling() or x.ndim == 1 or any(entry.requires_grad for entry in entries):
            return self.apply_plain(lifted).to(x.dtype)
        if overwrite and not (torch.is_grad_enabled() and x.requires_grad):
            # Fresh memory costs a CPU as much as the arithmetic.
            self.apply_into(lifted, lifted)
            return lifted.to(x.dtype)
        mapped = _Apply.apply(lifted, self)
        return mapped.to(x.dtype)  # pyright: ignore[reportOptionalMemberAccess]


class _Apply(torch.autograd.Function):
    """A linear map whose backward pass is its adjoint: saves no token."""

    @staticmethod
    def forward(x: Tensor, token_map: TokenMap) -> Tensor:
        out = torch.empty_like(x)
        token_map.apply_into(x, out)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, TokenMap], output: Tensor) -> None:
        ctx.token_map = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _Apply.apply(gradients[0], ctx.token_map.adjoint()), None  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Identity(TokenMap):
    """Leaves every token as it is."""

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        return x

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        out.copy_(x)

    def adjoint(self) -> "Identity":
        return self

    def entries(self) -> tuple[Tensor, ...]:
        return ()


@dataclass(frozen=True)
class DirectSum(TokenMap):
    """Maps side by side: the first `widths[0]` channels through the first map, and so on."""

    parts: tuple[TokenMap, ...]
    widths: tuple[int, ...]

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        pieces = x.split(self.widths, -1)
        return torch.cat(
            [part.apply_plain(piece) for part, piece in zip(self.parts, pieces, strict=True)], -1
        )

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        for part, piece, target in zip(
            self.parts, x.split(self.widths, -1), out.split(self.widths, -1), strict=True
        ):
            part.apply_into(piece, target)

    def adjoint(self) -> "DirectSum":
        return DirectSum(tuple(part.adjoint() for part in self.parts), self.widths)

    def entries(self) -> tuple[Tensor, ...]:
        return tuple(entry for part in self.parts for entry in part.entries())

    def cos_sin(self) -> tuple[Float[Tensor, "*shape pair"], Float[Tensor, "*shape pair"]]:
        cosines, sines = zip(*(part.cos_sin() for part in self.parts), strict=True)
        return torch.cat(cosines, -1), torch.cat(sines, -1)


# The interface of every encoding, and what it prepares once per forward pass.


@dataclass(frozen=True)
class Prepared(ABC):
    """An encoding for one set of views: made once per forward pass and shared by all layers."""

    head_dim: int
    batch: int
    queries: Layout
    keys: Layout

    def cos_sin(
        self, layout: str = "half", *, keys: bool = False
    ) -> tuple[Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]]:
        """Return cosine and sine of every token for another library's rotary function, in float32 or better.

        `layout` says which channels that function turns together, and how long the last axis is:

        - `"half"`, D: channel i with i + D/2 (transformers, xformers; diffusers with `use_real_unbind_dim=-2`),
        - `"interleaved"`, D: channel 2i with 2i + 1 (diffusers' default, Wan, Flux),
        - `"pairs"`, D/2: one number per pair (flash-attention; `torch.complex(cos, sin)` is diffusers' `freqs_cis`).

        Pairs stand in the order of the axis blocks: time if there is one, then the angles. `keys` gives those of the
        keys in cross-attention. Rotary functions turn queries and keys; an encoding with `rotate_values` also turns
        values, and outputs back, by the same cosine and minus the sine.
        """
        raise ValueError(
            "this encoding has no cosine and sine per token, as its keys look different from every camera: "
            "use attention(q, k, v, position)"
        )


CHANNEL_LAYOUTS = ("half", "interleaved", "pairs")


@dataclass(frozen=True)
class Tokenwise(Prepared):
    """An encoding that maps each token by itself: o = E⁻¹ softmax((Eq)ᵀ(Ek)) (Ev)  (paper, eq:qkv to eq:output)."""

    query: TokenMap
    key: TokenMap
    value: TokenMap
    output: TokenMap

    def cos_sin(
        self, layout: str = "half", *, keys: bool = False
    ) -> tuple[Float[Tensor, "batch token dim"], Float[Tensor, "batch token dim"]]:
        check_choice("channel layout", layout, CHANNEL_LAYOUTS)
        cos, sin = (
            part[:, 0] for part in (self.key if keys else self.query).cos_sin()
        )  # without the head axis
        if layout == "pairs":
            return cos, sin
        if layout == "half":
            return torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)


@dataclass(frozen=True)
class Encoding(ABC):
    """A relative position encoding: an immutable recipe without parameters or state."""

    head_dim: int

    needs_depth: ClassVar[bool] = False
    """Whether every layer must supply predicted depths (RayRoPE)."""
    compares_poses: ClassVar[bool] = False
    """Whether views must have poses (GTA, PRoPE, RayRoPE)."""

    def prepare(self, queries: Tokens, keys: Tokens | None = None) -> Prepared:
        """Compute everything about positions that does not depend on features; `keys` for cross-attention.

        In the precision of the cameras, at least float32, also under autocast.
        """
        if keys is not None and keys.views.batch != queries.views.batch:
            raise ValueError(
                f"queries have batch size {queries.views.batch} but keys {keys.views.batch}: make them equal"
            )
        if self.compares_poses and queries.views.poses is not None and checks_enabled():
            warn_of_large_translations(queries.views.poses, type(self).__name__)
        # Relative poses are matrix products, which autocast would compute in bf16, with 8 bits per number.
        with torch.autocast(queries.device.type, enabled=False):
            return self._prepare(queries, keys or queries)

    @abstractmethod
    def _prepare(self, queries: Tokens, keys: Tokens) -> Prepared:
        """Implement `prepare`; for self-attention `keys` is `queries`."""


@dataclass(frozen=True)
class NoPosition(Encoding):
    """Attention that does not know where its tokens are."""

    def _prepare(self, queries: Tokens, keys: Tokens) -> Tokenwise:
        maps = (Identity(), Identity(), Identity(), Identity())
        return Tokenwise(self.head_dim, queries.views.batch, queries.layout, keys.layout, *maps)


def check_split(encoding: Encoding, multiple: int, why: str) -> None:
    """Refuse a head that cannot be divided as the encoding needs."""
    if encoding.head_dim < multiple or encoding.head_dim % multiple:
        raise ValueError(
            f"head dimension {encoding.head_dim} cannot be split for {type(encoding).__name__}: "
            f"it must be a multiple of {multiple} ({why})"
        )


def check_choice(what: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{what} {value!r} is unknown: choose one of {', '.join(map(str, choices))}")
