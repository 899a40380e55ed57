"""One resampling step for image and camera: Pillow's numbers, exact cameras, and what a zoomed camera would see."""

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import CAMERAS, OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import center_box, compute_resampling_weights, resample

BOXES = [None, (3.25, 1.5, 40.75, 30.0), (0.0, 0.0, 12.3, 9.1), (20.0, 10.0, 48.0, 36.0)]


def picture(width=48, height=36):
    return torch.rand(3, height, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("size", [(24, 18), (17, 11), (60, 50), (48, 36)])
def test_the_numbers_of_pillow(box, size):
    image, camera = picture(), Pinhole.from_fov(60.0, 48, 36)
    ours, _ = resample(image, camera, *size, box)
    for channel, result in zip(image, ours, strict=True):
        theirs = Image.fromarray(channel.numpy().astype(np.float32)).resize(
            size, Image.Resampling.BILINEAR, box=box
        )
        assert np.abs(np.asarray(theirs) - result.numpy()).max() < 1e-5


def test_torch_agrees_on_whole_images():
    image = picture()
    ours, _ = resample(image, Pinhole.from_fov(60.0, 48, 36), 20, 15)
    theirs = torch.nn.functional.interpolate(image[None], (15, 20), mode="bilinear", antialias=True)[0]
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("box", BOXES)
def test_the_camera_is_exact(name, box):
    """A pixel of the new image lies on the ray of the place in the old one that it came from."""
    camera = CAMERAS[name].example(0, 48, 36)
    _, changed = resample(picture(), camera, 30, 20, box)
    left, top, right, bottom = box or (0, 0, 48, 36)
    new = torch.rand(50, 2, dtype=torch.float64) * torch.tensor([30.0, 20.0], dtype=torch.float64)
    scale = new.new_tensor([(right - left) / 30, (bottom - top) / 20])
    old = new * scale + new.new_tensor([left, top])
    (ray, valid), (same, also) = changed.unproject(new), camera.unproject(old)
    assert torch.equal(valid, also)
    assert torch.allclose(ray[valid], same[valid], atol=1e-9)
    assert (changed.width, changed.height) == (30, 20)


@pytest.mark.parametrize(
    ("size", "left", "right", "tolerance"),
    [(30, 6.4, 21.3, 1e-12), (12, 6.0, 42.0, 1e-12), (13, 6.4, 40.2, 0.05)],
    ids=["enlarged", "a third", "by 2.6: a sampled triangle is not quite centred"],
)
def test_a_ramp_stays_where_it_is(size, left, right, tolerance):
    columns = torch.arange(48, dtype=torch.float64) + 0.5
    ramp = columns.expand(1, 36, 48)
    ours, _ = resample(ramp, Pinhole.from_fov(60.0, 48, 36), size, 36, (left, 0.0, right, 36.0))
    expected = left + (torch.arange(size, dtype=torch.float64) + 0.5) * (right - left) / size
    assert (ours[0, 0] - expected).abs().max() < tolerance


def test_constant_images_stay_constant_and_weights_sum_to_one():
    table = compute_resampling_weights(48, 7, 3.3, 41.9)
    assert torch.allclose(table.sum(1), torch.ones(7, dtype=torch.float64)) and (table >= 0).all()


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_a_zoomed_image_is_what_the_zoomed_camera_sees(lens):
    room = make_random_room(3)
    pose = Pose.look_at(room.half_size * torch.tensor([-0.7, -0.1, -0.8]), torch.tensor([0.3, 0.3, 0.4]))
    camera = Pinhole.from_fov(80.0, 192, 144)
    if lens == "fisheye":
        camera = OpenCVFisheye.make(192, 144, fx=80.0, fy=80.0, cx=95.0, cy=73.0, k1=-0.01)
    box = (37.3, 20.8, 37.3 + 192 / 1.7, 20.8 + 144 / 1.7)
    native = room.render(camera, pose, antialias=3).rgb.movedim(-1, 0)
    zoomed, changed = resample(native, camera, 32, 24, box)
    direct = room.render(changed, pose, antialias=10).rgb.movedim(-1, 0)
    error = (zoomed - direct).square().mean()

    def shifted(pixels):
        moved = camera.resize(32, 24, [edge + pixels for edge in box])
        return (zoomed - room.render(moved, pose, antialias=10).rgb.movedim(-1, 0)).square().mean()

    assert -10 * error.log10() > 30.0
    # Half a pixel of the coarse image is 1.8 px here: either way it is clearly worse.
    assert shifted(1.8) > 1.5 * error and shifted(-1.8) > 1.5 * error


def test_centre_box():
    assert center_box(48, 36, 1.0) == (0.0, 0.0, 48.0, 36.0)
    assert center_box(48, 36, 2.0) == (12.0, 9.0, 36.0, 27.0)
    zoomed = Pinhole.from_fov(60.0, 48, 36).resize(48, 36, center_box(48, 36, 2.5))
    plain = Pinhole.from_fov(60.0, 48, 36)
    assert torch.allclose(zoomed.params[:2], 2.5 * plain.params[:2]) and torch.allclose(
        zoomed.params[2:], plain.params[2:], atol=1e-5
    )
    with pytest.raises(ValueError, match=r"zoom 0\.5 is below 1"):
        center_box(48, 36, 0.5)


def test_wrong_calls_are_refused():
    camera = Pinhole.from_fov(60.0, 48, 36)
    with pytest.raises(ValueError, match="but its camera takes 48×36"):
        resample(picture(40, 36), camera, 20, 20)
    for box in [(-1.0, 0.0, 10.0, 10.0), (5.0, 5.0, 5.0, 9.0), (0.0, 0.0, 50.0, 10.0)]:
        with pytest.raises(ValueError, match="is empty or leaves the 48x36 image"):
            resample(picture(), camera, 20, 20, box)


def test_gradients_and_batches():
    image = picture().expand(2, 4, 3, 36, 48).clone().requires_grad_()
    out, _ = resample(image, Pinhole.from_fov(60.0, 48, 36), 24, 18)
    out.sum().backward()
    assert out.shape == (2, 4, 3, 18, 24) and torch.allclose(
        image.grad.sum(), torch.tensor(24 * 18 * 24.0).double()
    )
