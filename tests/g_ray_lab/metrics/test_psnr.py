"""PSNR by hand: pooled over a scene's targets before the logarithm."""

import math

import torch

from g_ray_lab.metrics import mse, psnr


def grey(*levels):
    """One scene whose targets are uniformly grey."""
    return torch.tensor(levels)[None, :, None, None, None].expand(1, len(levels), 3, 4, 5)


def test_an_error_of_a_tenth_is_20_db():
    assert torch.allclose(psnr(grey(0.5), grey(0.6)), torch.tensor([20.0]), atol=1e-5)


def test_the_mean_error_is_taken_before_the_logarithm():
    truth, predicted = grey(0.5, 0.5), grey(0.6, 0.51)
    assert torch.allclose(mse(truth, predicted), torch.tensor([[1e-2, 1e-4]]), atol=1e-7)
    pooled = -10 * math.log10((1e-2 + 1e-4) / 2)
    assert math.isclose(psnr(truth, predicted).item(), pooled, abs_tol=1e-4)
    assert pooled < (20 + 40) / 2


def test_a_perfect_scene_and_many_scenes():
    truth = torch.rand(3, 2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    wrong = truth.clone()
    wrong[1:] += 0.1
    values = psnr(truth, wrong)
    assert values.shape == (3,) and values[0] == torch.inf
    assert torch.allclose(values[1:], torch.full((2,), 20.0), atol=1e-4)


def test_larger_targets_do_not_weigh_more():
    """e is a mean over pixels, and targets of a scene count alike whatever they show."""
    truth = torch.zeros(1, 2, 3, 8, 8)
    predicted = truth.clone()
    predicted[:, 1, :, :4] = 1.0
    assert math.isclose(psnr(truth, predicted).item(), -10 * math.log10(0.25), abs_tol=1e-4)
