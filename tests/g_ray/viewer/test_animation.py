"""Videos and pictures come back as they were made, and are whole or not there."""

import pytest
import torch
from PIL import Image

from g_ray.viewer.animation import save_animation, save_picture, to_byte_image


def frames(count, height=30, width=42):
    for number in range(count):
        yield torch.full((3, height, width), number / count)


def test_a_picture_comes_back_to_the_byte(tmp_path):
    picture = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0))
    save_picture(tmp_path / "a.png", picture)
    with Image.open(tmp_path / "a.png") as image:
        assert (to_byte_image(picture) == image).all()
    assert to_byte_image(torch.tensor([2.0, -1.0, 0.5]).reshape(3, 1, 1)).tolist() == [[[255, 0, 128]]]


def test_a_gif_has_its_frames_and_pace(tmp_path):
    save_animation(tmp_path / "a.gif", frames(8), fps=10)
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (8, (42, 30), 100)


@pytest.mark.parametrize("size", [(30, 42), (31, 43)])
def test_an_mp4_has_its_frames_and_pace(tmp_path, size):
    av = pytest.importorskip("av")
    save_animation(tmp_path / "a.mp4", frames(8, *size), fps=12)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert stream.average_rate == 12
    assert [d.shape for d in decoded] == [(size[0] + size[0] % 2, size[1] + size[1] % 2, 3)] * 8
    levels = [float(d.mean()) / 255 for d in decoded]
    assert levels == pytest.approx([n / 8 for n in range(8)], abs=0.02)


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_failure_leaves_nothing_behind(tmp_path, suffix):
    pytest.importorskip("av")

    def broken():
        yield torch.zeros(3, 12, 12)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        save_animation(tmp_path / f"a{suffix}", broken(), fps=5)
    assert list(tmp_path.iterdir()) == []
