"""Attention whose keys look different from every query camera (RayRoPE), in the memory of one camera."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from g_ray.encodings.per_camera import PerCamera
from g_ray.encodings.rotation import Rotation
from g_ray.geometry.precision import at_least_float32
from g_ray.nn import sdpa
from g_ray.nn.pairs import halves_of_pairs, neighbours_of_pairs, pairs_of_halves, pairs_of_neighbours, turn_of


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, position: PerCamera, bias: Tensor | None, chunk: int | None
) -> Tensor:
    """In plain operations: gradients reach the cameras too, but backward keeps the keys of every camera."""
    query_ends, key_ends = position.depth_ends()
    turn = position.query_rotation(query_ends)
    rotated = turn.apply(q)
    parts = []
    for view, span in position.queries.runs():
        keys, values = k, v
        if view is not None:
            seen = position.key_rotation(view, key_ends)
            keys, values = seen.apply(k), seen.apply(v) if position.rotate_values else v
        parts.append(sdpa.attend(rotated[..., span, :], keys, values, bias, chunk))
    out = torch.cat(parts, -2)
    return turn.adjoint().apply(out) if position.rotate_values else out


class PerCameraAttention(torch.autograd.Function):
    """The same numbers; backward keeps q, k, v, the depths and the output, and rotates the keys again."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "batch head query dim"],
        k: Float[Tensor, "batch head key dim"],
        v: Float[Tensor, "batch head key dim"],
        query_ends: Float[Tensor, "batch query 2"],
        key_ends: Float[Tensor, "batch key 2"],
        position: PerCamera,
        bias: Tensor | None,
        chunk: int | None,
    ) -> Float[Tensor, "batch head query dim"]:
        turn = turn_of(position.query_rotation(query_ends))
        rotated = neighbours_of_pairs(pairs_of_halves(q) * turn, q.dtype)
        keys, values = _Seen(k, rotate=True), _Seen(v, rotate=position.rotate_values)
        out, sums = torch.empty_like(rotated), []
        for view, span in position.queries.runs():
            seen = None if view is None else turn_of(position.key_rotation(view, key_ends))
            own_keys, own_values = keys.through(seen), values.through(seen)
            for part in _stretches(span, chunk):
                out[..., part, :], logsumexp = sdpa.forward(rotated[..., part, :], own_keys, own_values, bias)
                sums.append(logsumexp)
        ctx.save_for_backward(q, k, v, query_ends, key_ends, out, *sums)
        ctx.position, ctx.bias, ctx.chunk = position, bias, chunk
        if not position.rotate_values:
            return out.clone()
        return halves_of_pairs(pairs_of_neighbours(out) * turn.conj(), q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, query_ends, key_ends, out, *sums = ctx.saved_tensors
        position: PerCamera = ctx.position
        turn = _Tracked(position.query_rotation, query_ends)
        queries, grad = pairs_of_halves(q), gradients[0]
        if position.rotate_values:
            straight = pairs_of_halves(grad)
            turn.receive(torch.mul(straight.conj(), pairs_of_neighbours(out)))
            grad = neighbours_of_pairs(straight * turn.value, q.dtype)
        rotated = neighbours_of_pairs(queries * turn.value, q.dtype)
        rotated_grad, key_ends_grad = torch.empty_like(rotated), torch.zeros_like(key_ends)
        keys, values = _Seen(k, rotate=True), _Seen(v, rotate=position.rotate_values)
        remaining = iter(sums)
        for view, span in position.queries.runs():
            seen = (
                None
                if view is None
                else _Tracked(lambda ends, c=view: position.key_rotation(c, ends), key_ends)
            )
            own_keys, own_values = keys.through(seen and seen.value), values.through(seen and seen.value)
            for part in _stretches(span, ctx.chunk):
                pieces = (grad[..., part, :], rotated[..., part, :], own_keys, own_values, out[..., part, :])
                rotated_grad[..., part, :], key_grad, value_grad = sdpa.backward(
                    *pieces, next(remaining), ctx.bias
                )
                keys.receive(key_grad, seen)
                values.receive(value_grad, seen)
            if seen is not None:
                key_ends_grad += seen.ends_gradient()
        turned_grad = pairs_of_neighbours(rotated_grad)
        turn.receive(torch.mul(queries.conj(), turned_grad))
        q_grad = halves_of_pairs(turned_grad * turn.conjugate, q.dtype)
        return (
            q_grad,
            keys.gradient(),
            values.gradient(),
            turn.ends_gradient(),
            key_ends_grad,
            None,
            None,
            None,
        )


class _Tracked:
    """A rotation made again in backward, with the way back from it to the depths."""

    def __init__(self, make: Callable[[Tensor], Rotation], ends: Tensor) -> None:
        with torch.enable_grad():
            self.ends = ends.detach().requires_grad_()
            self.live = turn_of(make(self.ends))
        self.value = self.live.detach()
        self.conjugate = self.value.conj().resolve_conj()
        self.grad = torch.zeros_like(self.value)

    def receive(self, products: Complex[Tensor, "batch head token pair"]) -> None:
        """Gradients conj(x)·g of all heads that share the rotation."""
        self.grad += products.sum(1, keepdim=True)

    def ends_gradient(self) -> Tensor:
        return torch.autograd.grad(self.live, self.ends, self.grad)[0]


class _Seen:
    """Keys (or values) to be seen from one query camera after the other, and the sum of their gradients."""

    def __init__(self, x: Float[Tensor, "batch head key dim"], *, rotate: bool) -> None:
        self.x = x
        self.pairs = pairs_of_halves(x) if rotate else None
        self.conjugate: Tensor | None = None
        self.buffer: Tensor | None = None
        self.total: Tensor | None = None

    def through(
        self, turn: Complex[Tensor, "batch 1 key pair"] | None
    ) -> Float[Tensor, "batch head key dim"]:
        """As one camera sees them; without rotation for queries that belong to no camera."""
        if self.pairs is None:
            return self.x
        if turn is None:
            return neighbours_of_pairs(self.pairs, self.x.dtype)
        if self.buffer is None:
            self.buffer = torch.empty_like(self.pairs)
        return neighbours_of_pairs(torch.mul(self.pairs, turn, out=self.buffer), self.x.dtype)

    def receive(self, grad: Float[Tensor, "batch head key dim"], seen: _Tracked | None) -> None:
        """Gradient in what `through` gave: turned back and added up in float32 or better."""
        if self.pairs is None:
            self.total = at_least_float32(grad.clone()) if self.total is None else self.total.add_(grad)
            return
        pairs = pairs_of_neighbours(grad)
        if self.total is None:
            self.total = torch.zeros_like(pairs)
            self.conjugate = self.pairs.conj().resolve_conj()
        if seen is None:
            self.total += pairs
            return
        self.total.addcmul_(pairs, seen.conjugate)
        assert self.conjugate is not None
        seen.receive(pairs.mul_(self.conjugate))

    def gradient(self) -> Float[Tensor, "batch head key dim"]:
        assert self.total is not None
        if self.pairs is None:
            return self.total.to(self.x.dtype)
        return halves_of_pairs(self.total, self.x.dtype)


def _stretches(span: slice, chunk: int | None) -> Iterator[slice]:
    step = chunk or span.stop - span.start
    for start in range(span.start, span.stop, step):
        yield slice(start, min(start + step, span.stop))
