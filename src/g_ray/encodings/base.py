"""The face of every encoding, and what it prepares once per forward pass."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from g_ray.encodings.token_map import Identity, TokenMap
from g_ray.rays.views import Tokens


class Prepared(ABC):
    """An encoding for one set of views: made once per forward pass and shared by all layers."""


@dataclass(frozen=True)
class Tokenwise(Prepared):
    """An encoding that maps each token by itself: o = O⁻¹ softmax((Eq)ᵀ(Ek)) (Ev)  (paper, eq:qkv to eq:output)."""

    query: TokenMap = Identity()
    key: TokenMap = Identity()
    value: TokenMap = Identity()
    output: TokenMap = Identity()


@dataclass(frozen=True)
class Encoding(ABC):
    """A relative position encoding: an immutable recipe without parameters or state."""

    head_dim: int

    needs_depth: ClassVar[bool] = False
    """Whether every layer must supply predicted depths (RayRoPE)."""

    @abstractmethod
    def prepare(self, queries: Tokens, keys: Tokens | None = None) -> Prepared:
        """Everything about positions that does not depend on features; `keys` for cross-attention."""


@dataclass(frozen=True)
class NoPosition(Encoding):
    """Attention that does not know where its tokens are."""

    def prepare(self, queries: Tokens, keys: Tokens | None = None) -> Tokenwise:
        return Tokenwise()


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
