"""How peers resize: sizes that their documents and loaders give, and pixels that keep their rays."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.predictors.peers.peer_framing import (
    Placement,
    fit_first,
    fit_long_side,
    fit_shapes,
    fit_square,
    fit_tokens,
    fit_width,
    limit_long_side,
    resize_image,
)

RULES = {
    "fit_width": lambda sizes: fit_width(sizes, 518, 14),
    "fit_square": lambda sizes: fit_square(sizes, 518, 14),
    "fit_long_side": lambda sizes: fit_long_side(sizes, 504, 14),
    "fit_tokens": lambda sizes: fit_tokens(sizes, 512, 16),
    "fit_first": lambda sizes: fit_first(sizes, 255_000, 14),
    "fit_shapes": lambda sizes: fit_shapes(sizes, [(518, 518), (518, 392), (392, 518)]),
    "limit_long_side": lambda sizes: limit_long_side(sizes, 300),
}


def test_sizes_are_those_of_the_loaders():
    # VGGT: 518 px wide, heights in patches of 14; portraits cropped to a square in the middle.
    (wide, tall) = fit_width([(4000, 3000), (3000, 4000)], 518, 14)
    assert (wide.width, wide.height, wide.top, wide.canvas) == (518, 392, 63, (518, 518))  # padded
    assert (tall.width, tall.height, tall.top, tall.canvas) == (518, 686, -84, (518, 518))
    (square,) = fit_square([(3000, 4000)], 518, 14)
    assert (square.width, square.height, square.left, square.canvas) == (392, 518, 63, (518, 518))
    # DA3: 504 px, halves of a patch go up; mixed shapes are cropped to the smallest.
    (one,) = fit_long_side([(504, 371)], 504, 14)
    assert one.canvas == (504, 378)
    assert {place.canvas for place in fit_long_side([(640, 480), (480, 640)], 504, 14)} == {(378, 378)}
    # VGGT-Omega: 3:2 becomes 624 × 416.
    assert fit_tokens([(3000, 2000)], 512, 16)[0].canvas == (624, 416)
    (panorama,) = fit_tokens([(4000, 1000)], 512, 16)  # cropped to 2:1
    assert panorama.canvas == (720, 368) and panorama.share == pytest.approx(0.5, abs=0.01)
    # π³: all like the first, below 255,000 pixels.
    places = fit_first([(1920, 1080), (100, 100)], 255_000, 14)
    assert places[0] == places[1] and places[0].canvas[0] * places[0].canvas[1] <= 255_000
    assert places[0].canvas == (672, 378)
    # MapAnything: the shape nearest to the mean aspect ratio.
    assert fit_shapes([(640, 480)], [(518, 518), (518, 392)])[0].canvas == (518, 392)


def direction_image(camera):
    """A photograph whose colors are the x, y and z of its rays."""
    rays, _ = camera.unproject_grid()
    return (0.5 + 0.5 * rays.float()).movedim(-1, 0)


@pytest.mark.parametrize("filter", ["bicubic", "area"])
@pytest.mark.parametrize("rule", RULES)
def test_pixels_keep_their_rays(rule, filter):
    """Image and camera are resized, cropped and padded alike; half a pixel would show."""
    cameras = [
        Pinhole.make(1200, 900, fx=1000.0, fy=1010.0, cx=580.0, cy=460.0),
        OpenCVFisheye.make(900, 1200, fx=500.0, fy=500.0, cx=450.0, cy=600.0),
    ]
    places = RULES[rule]([(camera.width, camera.height) for camera in cameras])
    for camera, place in zip(cameras, places, strict=True):
        small = resize_image(direction_image(camera), place.width, place.height, filter)
        canvas, lens = place.place_image(small), place.place_camera(camera)
        assert canvas.shape[-2:] == (lens.height, lens.width) == place.canvas[::-1]
        (left, top), (width, height) = place.corner, place.visible
        inner = (slice(top + 2, top + height - 2), slice(left + 2, left + width - 2))
        colors = (2 * canvas.movedim(0, -1) - 1)[inner]
        off = (colors - lens.unproject_grid()[0][inner]).abs()
        assert float(off.mean()) < 0.0025  # of which 1/255 is the step of a color
        # Half a pixel of the canvas would be a bias along x or y.
        rays = lens.unproject_grid()[0][inner]
        pixel = float((rays[:, 1:] - rays[:, :-1]).norm(dim=-1).mean())
        assert float((colors - rays).mean((0, 1)).abs().max()) < 0.15 * pixel


@pytest.mark.parametrize("rule", RULES)
def test_maps_and_cameras_come_back(rule):
    sizes = [(120, 90), (90, 120), (100, 100)]
    for (width, height), place in zip(sizes, RULES[rule](sizes), strict=True):
        values = torch.rand(place.height, place.width)
        back, inside = place.restore_map(place.place_image(values[None])[0])
        assert torch.equal(back[inside], values[inside]) and not bool(back[~inside].any())
        assert float(inside.float().mean()) == pytest.approx(place.share)
        camera = Pinhole.make(width, height, fx=100.0, fy=90.0, cx=50.0, cy=48.0, dtype=torch.float64)
        again = place.restore_camera(place.place_camera(camera))
        assert torch.allclose(again.params, camera.resize(place.width, place.height).params)


def test_area_is_opencvs():
    cv2 = pytest.importorskip("cv2")
    pixels = (255 * torch.rand(61, 83, 3, generator=torch.Generator().manual_seed(0))).byte()
    theirs = cv2.resize(pixels.numpy(), (28, 42), interpolation=cv2.INTER_AREA)
    ours = resize_image(pixels.movedim(-1, 0).float() / 255, 28, 42, "area")
    assert float((255 * ours.movedim(0, -1) - torch.from_numpy(theirs)).abs().max()) <= 1


def test_padding_is_white():
    place = Placement(2, 1, 1, 1, (4, 3))
    assert float(place.place_image(torch.zeros(3, 1, 2)).mean()) == pytest.approx(10 / 12)
