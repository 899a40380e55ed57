"""Attention whose keys look different from every query camera (RayRoPE), in the memory of one camera."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from g_ray.encodings.per_camera import PerCamera
from g_ray.encodings.rotation import Rotation
from g_ray.nn import sdpa


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, position: PerCamera, bias: Tensor | None, chunk: int | None
) -> Tensor:
    """In plain operations: gradients reach the cameras too, but backward keeps the keys of every camera."""
    query_ends, key_ends = position.depth_ends()
    turn = position.query_rotation(query_ends)
    rotated = turn.apply(q)
    parts = []
    for view, span in position.queries.runs():
        seen = None if view is None else position.key_rotation(view, key_ends)
        keys, values = _rotated(position, seen, k, v)
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
        turn = position.query_rotation(query_ends)
        rotated, out, sums = turn.apply(q), torch.empty_like(q), []
        for view, span in position.queries.runs():
            seen = None if view is None else position.key_rotation(view, key_ends)
            keys, values = _rotated(position, seen, k, v)
            for part in _stretches(span, chunk):
                out[..., part, :], logsumexp = sdpa.forward(rotated[..., part, :], keys, values, bias)
                sums.append(logsumexp)
        ctx.save_for_backward(q, k, v, query_ends, key_ends, out, *sums)
        ctx.position, ctx.bias, ctx.chunk = position, bias, chunk
        return turn.adjoint().apply(out) if position.rotate_values else out.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, query_ends, key_ends, out, *sums = ctx.saved_tensors
        position: PerCamera = ctx.position
        turn = _Tracked(position.query_rotation, query_ends)
        grad = turn.output_backward(out, gradients[0]) if position.rotate_values else gradients[0]
        rotated, rotated_grad = turn.rotation.apply(q), torch.empty_like(q)
        k_grad, v_grad = _Accumulated(k), _Accumulated(v)
        key_ends_grad = torch.zeros_like(key_ends)
        remaining = iter(sums)
        for view, span in position.queries.runs():
            seen = None if view is None else _Tracked(lambda ends, c=view: position.key_rotation(c, ends), key_ends)
            keys, values = _rotated(position, seen and seen.rotation, k, v)
            seen_k_grad, seen_v_grad = _Accumulated(k), _Accumulated(v)
            for part in _stretches(span, ctx.chunk):
                pieces = (grad[..., part, :], rotated[..., part, :], keys, values, out[..., part, :])
                rotated_grad[..., part, :], more_k, more_v = sdpa.backward(*pieces, next(remaining), ctx.bias)
                seen_k_grad.add(more_k)
                seen_v_grad.add(more_v)
            del keys, values
            k_grad.add(seen_k_grad.total if seen is None else seen.backward(k, seen_k_grad.total))
            turned = seen is not None and position.rotate_values
            v_grad.add(seen.backward(v, seen_v_grad.total) if turned else seen_v_grad.total)
            if seen is not None:
                key_ends_grad += seen.ends_gradient()
        q_grad = turn.backward(q, rotated_grad)
        return q_grad, k_grad.result(), v_grad.result(), turn.ends_gradient(), key_ends_grad, None, None, None


class _Tracked:
    """A rotation made again in backward, with the way back from it to the depths."""

    def __init__(self, make: Any, ends: Tensor) -> None:
        with torch.enable_grad():
            self.ends = ends.detach().requires_grad_()
            self.live: Rotation = make(self.ends)
        self.rotation = Rotation(self.live.cos.detach(), self.live.sin.detach())
        self.cos_gradient = torch.zeros_like(self.rotation.cos)
        self.sin_gradient = torch.zeros_like(self.rotation.sin)

    def backward(self, x: Tensor, grad: Tensor) -> Tensor:
        """Gradient in x of a rotated x; keeps the one in the rotation."""
        cos, sin = self.rotation.gradient(x, grad)
        self.cos_gradient += cos
        self.sin_gradient += sin
        return self.rotation.adjoint().apply(grad)

    def output_backward(self, x: Tensor, grad: Tensor) -> Tensor:
        """The same for x through the adjoint rotation, whose sine has the other sign."""
        cos, sin = self.rotation.gradient(x, grad)
        self.cos_gradient += cos
        self.sin_gradient -= sin
        return self.rotation.apply(grad)

    def ends_gradient(self) -> Tensor:
        outputs, gradients = (self.live.cos, self.live.sin), (self.cos_gradient, self.sin_gradient)
        return torch.autograd.grad(outputs, self.ends, gradients)[0]


class _Accumulated:
    """A sum in float32 or better; the first summand is taken over as it is."""

    def __init__(self, like: Tensor) -> None:
        self.dtype = like.dtype
        self.total: Tensor = None  # pyright: ignore[reportAttributeAccessIssue]

    def add(self, part: Tensor) -> None:
        wide = part.to(torch.promote_types(part.dtype, torch.float32))
        self.total = wide if self.total is None else self.total.add_(wide)

    def result(self) -> Tensor:
        return self.total.to(self.dtype)


def _rotated(position: PerCamera, seen: Rotation | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values as one query camera sees them; as they are for queries that belong to no camera."""
    if seen is None:
        return k, v
    return seen.apply(k), seen.apply(v) if position.rotate_values else v


def _stretches(span: slice, chunk: int | None) -> Iterator[slice]:
    step = chunk or span.stop - span.start
    for start in range(span.start, span.stop, step):
        yield slice(start, min(start + step, span.stop))
