"""Wrong calls of the encoding library: one line that says what was wrong, where, and what to do."""

import pytest
import torch

from g_ray.cameras import Equirectangular, Pinhole
from g_ray.coordinates import get_coordinate
from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.nn.transformer import MultiHeadAttention
from g_ray.rays.layout import Layout, Segment
from g_ray.rays.views import Views

PATCH = 16
CAMERA = Pinhole.from_fov(60.0, 32, 32)
PANORAMA = Equirectangular.make(64, 32, fx=64 / 6.2832, fy=64 / 6.2832, cx=32.0, cy=16.0)


def two_views(**options):
    return Views([CAMERA, CAMERA], Pose.identity(2)).tokens(PATCH, **options)


CASES = {
    "no cameras": (lambda: Views([]), "needs one camera per view"),
    "fewer poses than cameras": (
        lambda: Views([CAMERA] * 3, Pose.identity(2)),
        "3 cameras but poses of shape (2,)",
    ),
    "a pose that is not finite": (
        lambda: Views([CAMERA], Pose(torch.full((1, 4, 4), torch.nan))),
        "a pose has numbers that are not finite",
    ),
    "one pose without a view axis": (
        lambda: Views([CAMERA], Pose.identity()),
        "poses must be [view] or [batch, view]",
    ),
    "poses with too many axes": (lambda: Views([CAMERA], Pose.identity(2, 2, 1)), "poses must be"),
    "camera with two batch axes": (
        lambda: Views([Pinhole(CAMERA.params.expand(2, 3, 5), 32, 32)]),
        "camera of view 0 has batch shape (2, 3)",
    ),
    "batch sizes that differ": (
        lambda: Views([Pinhole(CAMERA.params.expand(2, 5), 32, 32)], Pose.identity(3, 1)),
        "different batch sizes [2, 3]",
    ),
    "image no multiple of the patch": (
        lambda: Views([CAMERA]).tokens(14),
        "view 0 is 32×32 px, not a multiple of the 14×14",
    ),
    "patch of zero": (lambda: Views([CAMERA]).tokens(0), "patch size 0 must be positive"),
    "layout with another grid": (
        lambda: Views([CAMERA]).tokens(PATCH, layout=Layout((Segment(0, 3, 3),))),
        "but the views have",
    ),
    "layout that names a missing view": (
        lambda: Views([CAMERA]).tokens(PATCH, layout=Layout((Segment(0, 2, 2), Segment(4, special=1)))),
        "names view 4, but there are 1",
    ),
    "selecting a missing view": (lambda: two_views().select([2]), "there are views 0 to 1"),
    "selecting nothing": (lambda: two_views().select([]), "cannot select views []"),
    "unknown coordinate": (lambda: get_coordinate("polar"), "choose one of tangent, equidistant"),
    "unknown encoding": (lambda: encoding("alibi", 64), "choose one of none, rope, gray"),
    "unknown option": (lambda: encoding("gray", 64, alpha=3.0), "has no option alpha: it has"),
    "unknown coordinate option": (lambda: encoding("gray", 64, coordinate="polar"), "unknown coordinate"),
    "option of another encoding": (lambda: encoding("rope", 64, matrices="pose"), "has no option matrices"),
    "negative scale": (lambda: encoding("gray", 64, scale=-1.0), "must be positive"),
    "unknown sign": (lambda: encoding("gray", 64, sign=2), "sign 2 is unknown: choose one of 1, -1"),
    "no samples": (lambda: encoding("gray", 64, samples=()), "samples not given"),
    "unknown camera matrices": (
        lambda: encoding("gta", 64, matrices="fundamental"),
        "choose one of pose, projection",
    ),
    "unknown depth": (lambda: encoding("rayrope", 48, depth="log"), "choose one of depth, inverse, asinh"),
    "unknown depth direction": (lambda: encoding("rayrope", 48, along="x"), "choose one of z, ray"),
    "unknown expectation": (
        lambda: encoding("rayrope", 48, expectation="mean"),
        "choose one of smooth, threshold",
    ),
    "grid in RayRoPE": (
        lambda: encoding("rayrope", 48, coordinate="grid"),
        "needs 'projected' or ray angles",
    ),
    "head of rope": (
        lambda: encoding("rope", 30),
        "head dimension 30 cannot be split for Rotary",
    ),
    "head of gta": (lambda: encoding("gta", 36), "must be a multiple of 8"),
    "head of rayrope": (lambda: encoding("rayrope", 64), "must be a multiple of 24"),
    "head of zero": (lambda: encoding("gray", 0), "head dimension 0"),
    "GTA without poses": (
        lambda: encoding("gta", 48).prepare(Views([CAMERA]).tokens(PATCH)),
        "pass Views(cameras, poses)",
    ),
    "RayRoPE without poses": (
        lambda: encoding("rayrope", 48).prepare(Views([CAMERA]).tokens(PATCH)),
        "RayRoPE compares camera poses",
    ),
    "RayRoPE along z with a panorama": (
        lambda: encoding("rayrope", 48).prepare(Views([PANORAMA], Pose.identity(1)).tokens(PATCH)),
        "use along='ray'",
    ),
    "per-token PRoPE with a panorama": (
        lambda: encoding("prope_token", 48).prepare(
            Views([CAMERA.resize(64, 32), PANORAMA], Pose.identity(2)).tokens(PATCH)
        ),
        "views [1] see 90° and more",
    ),
    "queries and keys of other batch sizes": (
        lambda: encoding("gray", 48).prepare(
            two_views(), Views([Pinhole(CAMERA.params.expand(3, 5), 32, 32)]).tokens(PATCH)
        ),
        "batch size 1 but keys 3",
    ),
    "width that heads do not divide": (
        lambda: MultiHeadAttention(100, encoding("gray", 48)),
        "width 100 is not a multiple of the encoding's head dimension 48",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_says_what_to_do(case):
    call, words = CASES[case]
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


def test_bad_shapes_are_named():
    q = torch.randn(1, 2, 6, 24)
    with pytest.raises(ValueError, match="do not fit"):
        attention(q, q[..., :12], q[..., :12])
    with pytest.raises(ValueError, match=r"key_mask \(1, 5\) must be"):
        attention(q, q, q, key_mask=torch.ones(1, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="must be positive"):
        attention(q, q, q, query_chunk=0)
    tokens = Views([CAMERA.resize(48, 32)], Pose.identity(1)).tokens(PATCH)
    for name in ENCODINGS:
        position = encoding(name, 24).prepare(tokens)
        if isinstance(position, PerCamera):
            with pytest.raises(ValueError, match=r"call position\.with_depth"):
                attention(q, q, q, position)
            with pytest.raises(ValueError, match="depths for 5 queries"):
                position.with_depth(torch.zeros(1, 5, 2))
            position = position.with_depth(torch.zeros(1, 6, 2))
        long = torch.randn(1, 2, 8, 24)
        with pytest.raises(ValueError, match="prepared for 6"):
            attention(long, long, long, position)
        wide = torch.randn(1, 2, 6, 48)
        with pytest.raises(ValueError, match="head dimension 24"):
            attention(wide, wide, wide, position)


def test_batch_of_views_must_fit():
    tokens = Views([Pinhole(CAMERA.params.expand(2, 5), 32, 32)]).tokens(PATCH)
    q = torch.randn(3, 2, 4, 24)
    with pytest.raises(ValueError, match="prepared for views of batch 2"):
        attention(q, q, q, encoding("gray", 24).prepare(tokens))
