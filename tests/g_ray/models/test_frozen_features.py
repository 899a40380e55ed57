"""Features of a frozen encoder: the same from a folder as computed, one file per image, within a bound of size."""

import threading

import numpy as np
import pytest
import torch

from g_ray.models.dinov2 import DINOv2, DINOv2Config
from g_ray.models.frozen_features import FrozenFeatures

SIZE = DINOv2Config(dim=24, layers=3, heads=2, patch=14, grid=3, registers=0)
FILE = 4 * 48 * 2 + 128
"""Bytes of the features of an image of four patches."""


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return DINOv2(SIZE, taps=(1, 2)).requires_grad_(False)


@pytest.fixture
def images():
    return torch.randn(3, 3, 28, 28, generator=torch.Generator().manual_seed(1))


def count_files(folder):
    return len(list(folder.glob("*/*/*.npy")))


class Spy:
    """Counts the images that an encoder is given."""

    def __init__(self, encoder):
        self.images = 0
        encoder.register_forward_pre_hook(lambda _, inputs: self.count(len(inputs[0])))

    def count(self, images):
        self.images += images


def test_features_are_those_of_the_encoder_in_half_precision(encoder, images, tmp_path):
    wanted = encoder(images)
    for features in (FrozenFeatures(), FrozenFeatures(tmp_path, 10**9)):
        found = features.encode(encoder, images)
        assert found.dtype == torch.float32
        assert torch.equal(found, found.half().float())
        assert (found - wanted).abs().max() < 1e-3 * wanted.abs().max()


def test_an_image_is_computed_once_for_all_readers_of_a_folder(encoder, images, tmp_path):
    spy = Spy(encoder)
    first = FrozenFeatures(tmp_path, 10**9).encode(encoder, images[:2])
    assert spy.images == count_files(tmp_path) == 2
    again = FrozenFeatures(tmp_path, 10**9).encode(encoder, images)
    assert spy.images == count_files(tmp_path) == 3
    assert torch.equal(again[:2], first)
    assert torch.equal(again, FrozenFeatures().encode(encoder, images))  # what is stored changes nothing


def test_other_pixels_masks_weights_and_taps_are_other_features(encoder, images, tmp_path):
    features = FrozenFeatures(tmp_path, 10**9)
    features.encode(encoder, images[:1])
    changed = images[:1].clone()
    changed[0, 0, 0, 0] += 1e-6
    features.encode(encoder, changed)
    assert count_files(tmp_path) == 2
    mask = torch.tensor([[True, True, True, False]])
    masked = features.encode(encoder, images[:1], mask)
    assert count_files(tmp_path) == 3
    assert (masked - encoder(images[:1], mask)).abs().max() < 1e-2
    features.encode(encoder, images[:1], torch.ones_like(mask))  # nothing is masked out: as without a mask
    assert count_files(tmp_path) == 3
    other = DINOv2(SIZE, taps=(2,))
    other.load_state_dict(encoder.state_dict())
    FrozenFeatures(tmp_path, 10**9).encode(other, images[:1])
    assert len(list(tmp_path.iterdir())) == 2
    with torch.no_grad():
        other.cls_token += 1e-3
    FrozenFeatures(tmp_path, 10**9).encode(other, images[:1])
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_folder_stays_as_it_is(encoder, images, tmp_path):
    features = FrozenFeatures(tmp_path, 2 * FILE)
    with pytest.warns(UserWarning, match="raise --cache-gb"):
        found = features.encode(encoder, images)
    assert count_files(tmp_path) == 2
    assert torch.equal(found, FrozenFeatures().encode(encoder, images))


def test_a_damaged_file_is_written_again(encoder, images, tmp_path):
    features = FrozenFeatures(tmp_path, 10**9)
    first = features.encode(encoder, images[:1])
    (path,) = tmp_path.glob("*/*/*.npy")
    whole = path.read_bytes()
    for damaged in (whole[:200], b"", b"nonsense"):
        path.write_bytes(damaged)
        assert torch.equal(features.encode(encoder, images[:1]), first)
        assert path.read_bytes() == whole
    assert np.load(path).dtype == np.float16


def test_several_writers_share_a_folder(encoder, images, tmp_path):
    wanted, found = FrozenFeatures().encode(encoder, images), []

    def work():
        found.append(FrozenFeatures(tmp_path, 10**9).encode(encoder, images))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4 and all(torch.equal(each, wanted) for each in found)
    assert count_files(tmp_path) == 3 and not list(tmp_path.rglob(".*"))
