"""The face of every encoding, and what it prepares once per forward pass."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from g_ray.encodings.token_map import IDENTITY, TokenMap
from g_ray.rays.layout import Layout
from g_ray.rays.views import Tokens


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

    def prepare(self, queries: Tokens, keys: Tokens | None = None) -> Prepared:
        """Everything about positions that does not depend on features; `keys` for cross-attention.

        In the precision of the cameras, at least float32, whatever autocast says.
        """
        if keys is not None and keys.views.batch != queries.views.batch:
            raise ValueError(
                f"queries have batch size {queries.views.batch} but keys {keys.views.batch}: make them equal"
            )
        with torch.autocast(queries.device.type, enabled=False):
            return self._prepare(queries, keys or queries)

    @abstractmethod
    def _prepare(self, queries: Tokens, keys: Tokens) -> Prepared:
        """The same; for self-attention `keys` is `queries`."""


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
