"""Attention whose keys look different from every query camera (RayRoPE), and the layer that predicts its depths.

Keys and values have to be rotated again for each of C query cameras. Plain autograd would keep all C rotated copies;
`PerCameraAttention` keeps one, and makes the others again in backward. Tokens are complex numbers in it, one per
channel pair, so that rotating is one multiplication z = x · r, with the gradients

    dL/dx = dL/dz · conj(r),    dL/dr = Σ_heads conj(x) · dL/dz.

Scores do not change when the channels of queries and keys are permuted alike, so the two channels of a pair are
adjacent between a rotation and the softmax; outside of this operator they are split halves.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from g_ray.encodings.expected_rotation import PerCamera
from g_ray.encodings.rotation import Rotation
from g_ray.nn import sdpa
from g_ray.runtime.device import promote_to_float32


class DepthPredictor(nn.Module):
    """raw (ℓ, σ) = W x + b per token, shared by all heads; W starts at zero, b at (0, 3)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 2)
        with torch.no_grad():
            self.linear.weight.zero_()
            # Depths start as the interval e^∓3, nearly the whole range: rotations by depth fade in as it narrows.
            self.linear.bias.copy_(torch.tensor([0.0, 3.0]))

    def forward(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch token 2"]:
        return self.linear(x)


def attend_per_camera(
    q: Tensor, k: Tensor, v: Tensor, position: PerCamera, bias: Tensor | None, chunk: int | None
) -> Tensor:
    """Attend in plain operations: gradients reach the cameras too, but backward keeps the keys of every camera."""
    query_ends, key_ends = position.get_depth_ends()
    turn = position.compute_query_rotation(query_ends)
    rotated = turn.apply(q)
    parts = []
    for view, span in position.queries.find_runs():
        keys, values = k, v
        if view is not None:
            key_rotation = position.compute_key_rotation(view, key_ends)
            keys, values = key_rotation.apply(k), key_rotation.apply(v) if position.rotate_values else v
        parts.append(sdpa.attend(rotated[..., span, :], keys, values, bias, chunk))
    out = torch.cat(parts, -2)
    return turn.adjoint().apply(out) if position.rotate_values else out


class PerCameraAttention(torch.autograd.Function):
    """`attend_per_camera` for fixed cameras; backward keeps q, k, v, depths and the output, and rotates keys again."""

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
        turn = position.compute_query_rotation(query_ends).to_complex()
        rotated = _adjacent_from_complex(_complex_from_halves(q) * turn, q.dtype)
        keys, values = _RotatedTokens(k, rotate=True), _RotatedTokens(v, rotate=position.rotate_values)
        # Queries of one view are one call of the fused kernel, against all keys as that view's camera sees them.
        out, sums = torch.empty_like(rotated), []
        for view, span in position.queries.find_runs():
            key_rotation = (
                None if view is None else position.compute_key_rotation(view, key_ends).to_complex()
            )
            own_keys, own_values = keys.rotate(key_rotation), values.rotate(key_rotation)
            for part in _split_span(span, chunk):
                out[..., part, :], logsumexp = sdpa.forward(rotated[..., part, :], own_keys, own_values, bias)
                sums.append(logsumexp)
        ctx.save_for_backward(q, k, v, query_ends, key_ends, out, *sums)
        ctx.position, ctx.bias, ctx.chunk = position, bias, chunk
        if not position.rotate_values:
            return out.clone()  # `out` is saved for backward, and callers may write into what they get
        return _halves_from_complex(_complex_from_adjacent(out) * turn.conj(), q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, query_ends, key_ends, out, *sums = ctx.saved_tensors
        position: PerCamera = ctx.position
        turn = _TrackedRotation(position.compute_query_rotation, query_ends)
        queries, grad = _complex_from_halves(q), gradients[0]
        if position.rotate_values:
            # Output = conj(r_q) · out: first back through this last rotation.
            straight = _complex_from_halves(grad)
            turn.add_gradient(torch.mul(straight.conj(), _complex_from_adjacent(out)))
            grad = _adjacent_from_complex(straight * turn.value, q.dtype)
        # The same products as in forward, so that the saved log-sum-exps fit to the last bit.
        rotated = _adjacent_from_complex(queries * turn.value, q.dtype)
        rotated_grad, key_ends_grad = torch.empty_like(rotated), torch.zeros_like(key_ends)
        keys, values = _RotatedTokens(k, rotate=True), _RotatedTokens(v, rotate=position.rotate_values)
        remaining = iter(sums)  # log-sum-exps, in the order in which forward appended them
        for view, span in position.queries.find_runs():
            key_rotation = (
                None
                if view is None
                else _TrackedRotation(lambda ends, c=view: position.compute_key_rotation(c, ends), key_ends)
            )
            own_keys, own_values = (
                keys.rotate(key_rotation and key_rotation.value),
                values.rotate(key_rotation and key_rotation.value),
            )
            for part in _split_span(span, ctx.chunk):
                pieces = (grad[..., part, :], rotated[..., part, :], own_keys, own_values, out[..., part, :])
                rotated_grad[..., part, :], key_grad, value_grad = sdpa.backward(
                    *pieces, next(remaining), ctx.bias
                )
                keys.add_gradient(key_grad, key_rotation)
                values.add_gradient(value_grad, key_rotation)
            if key_rotation is not None:
                key_ends_grad += key_rotation.compute_ends_gradient()
        turned_grad = _complex_from_adjacent(rotated_grad)
        turn.add_gradient(torch.mul(queries.conj(), turned_grad))
        q_grad = _halves_from_complex(turned_grad * turn.conjugate, q.dtype)
        return (
            q_grad,
            keys.compute_gradient(),
            values.compute_gradient(),
            turn.compute_ends_gradient(),
            key_ends_grad,
            None,
            None,
            None,
        )


class _TrackedRotation:
    """A rotation made again in backward, with the way back from it to the depths."""

    def __init__(self, make: Callable[[Tensor], Rotation], ends: Tensor) -> None:
        with torch.enable_grad():
            self.ends = ends.detach().requires_grad_()
            self.live = make(self.ends).to_complex()
        # Gradients of all heads and chunks are summed first; then one backward pass leads from the rotation to depths.
        self.value = self.live.detach()
        self.conjugate = self.value.conj().resolve_conj()
        self.grad = torch.zeros_like(self.value)

    def add_gradient(self, products: Complex[Tensor, "batch head token pair"]) -> None:
        """Add the gradients conj(x)·g of all heads that share the rotation."""
        self.grad += products.sum(1, keepdim=True)

    def compute_ends_gradient(self) -> Tensor:
        return torch.autograd.grad(self.live, self.ends, self.grad)[0]


class _RotatedTokens:
    """Keys (or values) to be seen from one query camera after the other, and the sum of their gradients."""

    def __init__(self, x: Float[Tensor, "batch head key dim"], *, rotate: bool) -> None:
        self.x = x
        self.pairs = _complex_from_halves(x) if rotate else None
        # Made when first needed: forward has no use for gradients, nor a single camera for a buffer.
        self.conjugate: Tensor | None = None
        self.buffer: Tensor | None = None
        self.total: Tensor | None = None

    def rotate(self, turn: Complex[Tensor, "batch 1 key pair"] | None) -> Float[Tensor, "batch head key dim"]:
        """Rotate them as one camera sees them; not at all for queries that belong to no camera."""
        if self.pairs is None:
            return self.x
        if turn is None:
            return _adjacent_from_complex(self.pairs, self.x.dtype)
        if self.buffer is None:
            self.buffer = torch.empty_like(self.pairs)
        return _adjacent_from_complex(torch.mul(self.pairs, turn, out=self.buffer), self.x.dtype)

    def add_gradient(
        self, grad: Float[Tensor, "batch head key dim"], rotation: _TrackedRotation | None
    ) -> None:
        """Turn the gradient of what `rotate` returned back, and add it up in float32 or better."""
        if self.pairs is None:
            self.total = promote_to_float32(grad.clone()) if self.total is None else self.total.add_(grad)
            return
        pairs = _complex_from_adjacent(grad)
        if self.total is None:
            self.total = torch.zeros_like(pairs)
            self.conjugate = self.pairs.conj().resolve_conj()
        if rotation is None:
            self.total += pairs
            return
        self.total.addcmul_(pairs, rotation.conjugate)
        assert self.conjugate is not None
        rotation.add_gradient(pairs.mul_(self.conjugate))

    def compute_gradient(self) -> Float[Tensor, "batch head key dim"]:
        assert self.total is not None
        if self.pairs is None:
            return self.total.to(self.x.dtype)
        return _halves_from_complex(self.total, self.x.dtype)


def _split_span(span: slice, chunk: int | None) -> Iterator[slice]:
    step = chunk or span.stop - span.start
    for start in range(span.start, span.stop, step):
        yield slice(start, min(start + step, span.stop))


# One complex number per pair of channels, in float32 or better.


def _complex_from_halves(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Join channels i and i + D/2."""
    return torch.complex(*promote_to_float32(x).chunk(2, -1))


def _halves_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    return torch.cat([pairs.real, pairs.imag], -1).to(dtype)


def _complex_from_adjacent(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Join channels 2i and 2i + 1."""
    return torch.view_as_complex(promote_to_float32(x).unflatten(-1, (-1, 2)).contiguous())


def _adjacent_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    return torch.view_as_real(pairs).flatten(-2).to(dtype)
