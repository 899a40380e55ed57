"""What every relative encoding is made of: linear maps of queries, keys, values and outputs, and its interface."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.rays.layout import Layout
from g_ray.rays.views import Tokens


class TokenMap(ABC):
    """A linear map of each token's channels that is the same for all heads; its entries are float32 or better."""

    @abstractmethod
    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        """Apply the map in plain differentiable operations, for tokens in the map's precision."""

    @abstractmethod
    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        """Write the same numbers into a buffer, with few passes over memory and nothing kept for backward."""

    @abstractmethod
    def adjoint(self) -> "TokenMap":
        """Return the transposed map: the inverse of a rotation, and the backward pass of any linear map."""

    @abstractmethod
    def entries(self) -> tuple[Tensor, ...]:
        """Return the tensors that the map is made of."""

    def apply(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        """Map tokens of any precision; computed in the map's precision, returned in the tokens'."""
        entries = self.entries()
        if not entries:
            return x
        # Rotate in float32, then cast once: cos and sin in bf16 are off by up to 0.2 %.
        lifted = x.to(torch.promote_types(x.dtype, entries[0].dtype))
        # Inductor fuses the plain form by itself; gradients for the cameras need it too.
        if torch.compiler.is_compiling() or x.ndim == 1 or any(entry.requires_grad for entry in entries):
            return self.apply_plain(lifted).to(x.dtype)
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


IDENTITY = Identity()


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


# The interface of every encoding, and what it prepares once per forward pass.


@dataclass(frozen=True)
class Prepared(ABC):
    """An encoding for one set of views: made once per forward pass and shared by all layers."""

    head_dim: int
    batch: int
    queries: Layout
    keys: Layout


@dataclass(frozen=True)
class Tokenwise(Prepared):
    """An encoding that maps each token by itself: o = E⁻¹ softmax((Eq)ᵀ(Ek)) (Ev)  (paper, eq:qkv to eq:output)."""

    query: TokenMap = IDENTITY
    key: TokenMap = IDENTITY
    value: TokenMap = IDENTITY
    output: TokenMap = IDENTITY


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
        return Tokenwise(self.head_dim, queries.views.batch, queries.layout, keys.layout)


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
