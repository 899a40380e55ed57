"""Patch scores against direct computation."""

import numpy as np
import torch

from g_ray.stereo.matching import NO_SCORE, Patches, SourceImage, average_best, average_boxes
from g_ray.stereo.stereo_options import StereoOptions


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_correlation_equals_the_weighted_formula():
    options = StereoOptions(window=5, similar=0.1, noise=0.01)
    image, warped = draw(3, 12, 14), draw(2, 12, 14, seed=1)
    gray = image.mean(0)
    mask = torch.ones(12, 14, dtype=torch.bool)
    mask[4, 5] = False
    scores = Patches.make(image, gray, mask, options).correlate(warped)
    for row, column in ((6, 7), (0, 0), (11, 3), (5, 5)):
        weights, here, there = [], [], []
        for dr in range(-2, 3):
            for dc in range(-2, 3):
                r, c = row + dr, column + dc
                if (dr + dc) % 2 == 0 and 0 <= r < 12 and 0 <= c < 14 and mask[r, c]:
                    difference = float((image[:, r, c] - image[:, row, column]).abs().mean())
                    weights.append(np.exp(-difference / 0.1 - (dr**2 + dc**2) / 8))
                    here.append(float(gray[r, c]))
                    there.append(float(warped[1, r, c]))
        w = np.array(weights) / sum(weights)
        a, b = np.array(here) - w @ here, np.array(there) - w @ there
        expected = w @ (a * b) / np.sqrt((w @ a**2 + 1e-4) * (w @ b**2 + 1e-4))
        np.testing.assert_allclose(float(scores[1, row, column]), expected, atol=1e-4)


def test_correlation_ignores_gain_and_offset_and_gives_nothing_for_blank_patches():
    image = draw(3, 10, 10)
    gray, mask = image.mean(0), torch.ones(10, 10, dtype=torch.bool)
    patches = Patches.make(image, gray, mask, StereoOptions(similar=1.0))
    inner = (slice(None), slice(2, -2), slice(2, -2))
    assert patches.correlate((0.4 * gray + 0.2)[None])[inner].min() > 0.98
    blank = torch.full((3, 10, 10), 0.5)
    nothing = Patches.make(blank, blank[0], mask, StereoOptions()).correlate(gray[None])
    assert nothing.abs().max() < 0.05


def test_sampling_renormalizes_at_masks_and_knows_the_frame():
    gray = torch.arange(20.0).reshape(4, 5)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 2] = False
    image = SourceImage.make(gray, mask)
    pixels = torch.tensor([[1.5, 1.5], [1.75, 1.5], [2.5, 1.5], [-0.6, 2.0], [1.0, 2.5]]).reshape(1, 1, 5, 2)
    value, usable = image.sample(pixels, torch.ones(1, 1, 5, dtype=torch.bool))
    assert usable.flatten().tolist() == [True, True, False, False, True]
    # The second lies a quarter of a pixel towards a masked one: the usable neighbor alone counts.
    torch.testing.assert_close(value.flatten()[[0, 1, 4]], torch.tensor([6.0, 6.0, 10.5]))


def test_best_of_sources():
    scores = [torch.tensor([[[0.2, 0.9, NO_SCORE, NO_SCORE]]]), torch.tensor([[[0.8, 0.1, 0.5, NO_SCORE]]])]
    scores.append(torch.tensor([[[0.6, 0.3, NO_SCORE, NO_SCORE]]]))
    torch.testing.assert_close(average_best(scores, 2), torch.tensor([[[0.7, 0.6, 0.5, NO_SCORE]]]))
    torch.testing.assert_close(average_best(scores, 1), torch.tensor([[[0.8, 0.9, 0.5, NO_SCORE]]]))


def test_box_average():
    volume = draw(7, 2, 6)
    averaged = average_boxes(volume, 3)
    torch.testing.assert_close(averaged[3, :, 2], volume[2:5, :, 1:4].mean((0, 2)))
    torch.testing.assert_close(average_boxes(torch.ones(5, 1, 5), 5), torch.ones(5, 1, 5))
