"""Color augmentation by hand: each knob alone, grays that stay gray, sets that change together."""

import numpy as np
import pytest
import torch

from g_ray_lab.sources.shaped_sets import ColorChange, ColorJitter

IMAGE = torch.rand(1, 3, 6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.4 + 0.2
LUMA = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)[:, None, None]


def colors(brightness=1.0, contrast=1.0, saturation=1.0, gamma=1.0, hue=0.0) -> ColorChange:
    values = torch.tensor([[brightness, contrast, saturation, gamma, hue]], dtype=torch.float64)
    return ColorChange(*values.unbind(-1))


def gray(image):
    return (LUMA * image).sum(-3)


def test_nothing_is_changed_by_nothing():
    assert torch.allclose(colors().apply(IMAGE), IMAGE, atol=1e-12)


def test_each_knob_by_hand():
    assert torch.allclose(colors(brightness=1.5).apply(IMAGE), 1.5 * IMAGE, atol=1e-12)
    assert torch.allclose(colors(gamma=2.0).apply(IMAGE), IMAGE**2, atol=1e-12)
    mean = gray(IMAGE).mean()
    assert torch.allclose(colors(contrast=0.5).apply(IMAGE), mean + 0.5 * (IMAGE - mean), atol=1e-12)
    shade = gray(IMAGE)[:, None]
    assert torch.allclose(colors(saturation=0.5).apply(IMAGE), shade + 0.5 * (IMAGE - shade), atol=1e-3)
    assert torch.allclose(colors(saturation=0.0).apply(IMAGE), shade.expand_as(IMAGE), atol=1e-3)


def test_hue_turns_colors_and_leaves_gray_alone():
    turned = colors(hue=np.pi / 3).apply(IMAGE)
    assert (turned - IMAGE).abs().max() > 0.05
    assert torch.allclose(gray(turned), gray(IMAGE), atol=1e-3)
    assert torch.allclose(colors(hue=-np.pi / 3).apply(turned), IMAGE, atol=1e-9)
    even = torch.full_like(IMAGE, 0.3)
    assert torch.allclose(colors(hue=1.0).apply(even), even, atol=1e-3)


def test_results_stay_in_range():
    strong = colors(brightness=1.9, contrast=1.9, saturation=1.9, gamma=0.2, hue=3.0).apply(IMAGE)
    assert strong.min() >= 0 and strong.max() <= 1


def test_draws_keep_to_their_ranges_and_probabilities():
    jitter = ColorJitter(gamma=0.2)
    drawn = ColorChange.stack([jitter.draw(np.random.default_rng(seed), 4) for seed in range(3000)])
    factors = torch.stack([drawn.brightness, drawn.contrast, drawn.gamma])
    assert factors.min() >= 0.5 and factors.max() <= 1.5
    assert (drawn.gamma - 1).abs().max() <= 0.2 and drawn.hue_rad.abs().max() <= 0.1 * 2 * np.pi
    assert ((drawn.brightness == 1).double().mean() - 0.1).abs() < 0.02
    assert ((drawn.saturation == 0).double().mean() - 0.05).abs() < 0.015
    together = (drawn.hue_rad == drawn.hue_rad[:, :1]).all(1) & (drawn.hue_rad[:, 0] != 0)
    assert abs(together.double().mean() - 0.7 * 0.9) < 0.03


def test_batches_keep_the_dtype_of_images():
    drawn = ColorChange.stack([ColorJitter().draw(np.random.default_rng(seed), 2) for seed in range(3)])
    images = torch.rand(3, 2, 3, 4, 4)
    out = drawn.apply(images)
    assert out.dtype == torch.float32 and out.shape == images.shape
    assert torch.allclose(
        out[1, 1], ColorChange(*(v[1, 1] for v in vars(drawn).values())).apply(images[1, 1]), atol=1e-5
    )


@pytest.mark.parametrize("wrong", [{"brightness": 1.0}, {"hue": 0.6}, {"gray": 1.5}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"out of range|probabilities"):
        ColorJitter(**wrong)
