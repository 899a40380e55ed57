"""Encodings: coordinates become transforms of queries, keys, values and outputs."""

from functools import partial
from inspect import signature
from typing import Any

from g_ray.encodings.camera_transform import CameraTransform
from g_ray.encodings.encoding_base import Encoding, NoPosition, Prepared, Tokenwise
from g_ray.encodings.rayrope import RayRoPE
from g_ray.encodings.rotary import Rotary
from g_ray.encodings.rotation import Rotation

__all__ = [
    "ENCODINGS",
    "CameraTransform",
    "Encoding",
    "NoPosition",
    "Prepared",
    "RayRoPE",
    "Rotary",
    "Rotation",
    "Tokenwise",
    "encoding",
]


ENCODINGS: dict[str, partial[Encoding]] = {
    "none": partial(NoPosition),
    "rope": partial(Rotary, coordinate="grid"),
    "gray": partial(Rotary, coordinate="tangent"),
    "gta": partial(CameraTransform, matrices="pose"),
    "gta_gray": partial(CameraTransform, matrices="pose", coordinate="tangent", scale=10.0),
    "prope": partial(CameraTransform, matrices="projection"),
    "prope_token": partial(CameraTransform, matrices="token projection"),
    "rayrope": partial(RayRoPE, coordinate="projected"),
    "rayrope_gray": partial(RayRoPE, coordinate="tangent"),
}


def encoding(name: str, head_dim: int, **options: Any) -> Encoding:
    """Make the encoding of that name for heads of that size; `options` are the fields of its class."""
    if name not in ENCODINGS:
        raise ValueError(f"unknown encoding {name!r}: choose one of {', '.join(ENCODINGS)}")
    build = ENCODINGS[name]
    known = set(signature(build).parameters) - {"head_dim"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(
            f"encoding {name!r} has no option {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    return build(head_dim, **options)
