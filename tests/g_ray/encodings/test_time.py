"""Video: tokens (frame, row, column), a camera per frame, and the channel split of the host."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.encodings import encoding
from g_ray.geometry.pose import Pose
from g_ray.nn.attention import attention
from g_ray.rays.views import Views

DIM, PATCH = 48, 16


def zoom(frames: int, dtype=torch.float64) -> Views:
    """A camera whose focal length doubles."""
    focal = torch.linspace(40.0, 80.0, frames, dtype=dtype)
    return Views.from_frames(Pinhole.make(64, 32, fx=focal, fy=focal, cx=32.0, cy=16.0))


@pytest.mark.parametrize("dim", [48, 128])
def test_wan(dim):
    """With grid positions, cosines and sines are those of Wan in diffusers."""
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    frames, rows, columns = 3, 2, 4
    cos, sin = WanRotaryPosEmbed(dim, (1, 2, 2), 64)(torch.zeros(1, 1, frames, 2 * rows, 2 * columns))
    kind = encoding("rope", dim, time=True, y_first=True, base=10000.0, pairing="interleaved")
    assert kind.list_widths() == (dim - 4 * (dim // 6), 2 * (dim // 6), 2 * (dim // 6))
    ours = kind.prepare(zoom(frames).tokens(PATCH)).cos_sin("interleaved")
    assert (cos[0, :, 0] - ours[0]).abs().max() < 1e-6 and (sin[0, :, 0] - ours[1]).abs().max() < 1e-6


def test_every_frame_has_its_own_camera():
    views = zoom(4)
    angles = encoding("gray", DIM, time=True).prepare(views.tokens(PATCH)).cos_sin("pairs")
    for frame in range(4):
        tokens = Views([views.cameras[frame]], times=torch.tensor([float(frame)])).tokens(PATCH)
        alone = encoding("gray", DIM, time=True).prepare(tokens).cos_sin("pairs")
        span = slice(8 * frame, 8 * frame + 8)
        assert all(torch.equal(a[:, span], b) for a, b in zip(angles, alone, strict=True))


@pytest.mark.parametrize("name", ["rope", "gray", "gta_gray"])
@pytest.mark.parametrize("pairing", ["block", "half", "interleaved"])
def test_only_differences_in_time_matter(name, pairing):
    views = zoom(3)
    views = Views(views.cameras, Pose.identity(3, dtype=torch.float64))
    q, k, v = torch.randn(3, 1, 2, 24, DIM, dtype=torch.float64)

    def run(times):
        timed = Views(views.cameras, views.poses, times=times)
        kind = encoding(name, DIM, time=True, pairing=pairing, time_scale=0.5)
        return attention(q, k, v, kind.prepare(timed.tokens(PATCH)))

    times = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    assert (run(times) - run(times + 5)).abs().max() < 1e-12
    assert (run(times) - run(None)).abs().max() < 1e-12
    assert (run(times) - run(2 * times)).abs().max() > 1e-3


def test_times_of_a_batch_differ():
    views = Views(zoom(2).cameras, times=torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
    assert views.batch == 2
    position = encoding("gray", DIM, time=True).prepare(views.tokens(PATCH))
    alone = encoding("gray", DIM, time=True).prepare(Views(views.cameras, times=views.times[1]).tokens(PATCH))
    assert torch.equal(position.cos_sin()[0][1], alone.cos_sin()[0][0])


def test_special_tokens_have_no_time(mixed_views):
    tokens = mixed_views().tokens(PATCH, special=2, leading=1)
    q = torch.randn(2, 1, len(tokens), DIM, dtype=torch.float64)
    rotated = encoding("gray", DIM, time=True).prepare(tokens).query.apply(q)
    special = ~tokens.layout.get_patch_mask()
    assert torch.equal(rotated[..., special, :], q[..., special, :])
    assert (rotated[..., ~special, :] - q[..., ~special, :]).abs().amax((0, 1, 3)).min() > 1e-3


def test_views_keep_their_times():
    views = zoom(4)
    assert views[2:].get_times().tolist() == [2.0, 3.0]
    assert (views[2:] + views[:1]).get_times().tolist() == [2.0, 3.0, 0.0]
    late = Views(views.cameras, times=torch.tensor([300.0, 301.0, 302.0, 303.0]))
    assert late.to(torch.bfloat16).get_times().tolist() == [300.0, 301.0, 302.0, 303.0]


def test_frames_of_a_lens_with_a_batch():
    focal = torch.rand(2, 3) * 5 + 20
    camera = OpenCVFisheye.make(32, 32, fx=focal, fy=focal, cx=16.0, cy=16.0, k1=0.02)
    views = Views.from_frames(camera)
    assert len(views) == 3 and views.batch == 2
    assert torch.equal(views.cameras[1].params, camera.params[:, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": (20, 20, 20), "time": True}, "3 even numbers that add up to 48, time first"),
        ({"split": (23, 25)}, "2 even numbers that add up to 48, one per axis"),
        ({"split": (16, 16, 16)}, "2 even numbers"),
        ({"pairing": "quarter"}, "choose one of block, half, interleaved"),
        ({"time_scale": 0.0}, "must be positive numbers"),
    ],
)
def test_what_cannot_be_split_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        encoding("gray", DIM, **options)


def test_times_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 cameras but times of shape"):
        Views(zoom(3).cameras, times=torch.zeros(2))
    with pytest.raises(ValueError, match="without a frame axis"):
        Views.from_frames(Pinhole.from_fov(60.0, 32, 32))
