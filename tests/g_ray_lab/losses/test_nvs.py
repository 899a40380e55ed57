"""The NVS loss by hand; leaving LPIPS out has to be said."""

import pytest
import torch

from g_ray_lab.losses.view_losses import nvs_loss


def distance(truth, predicted):
    return (truth - predicted).abs().mean((-3, -2, -1))


def test_mse_plus_half_the_distance():
    truth = torch.zeros(2, 2, 3, 4, 4)
    predicted = truth + torch.tensor([0.1, 0.3])[None, :, None, None, None]
    loss = nvs_loss(truth, predicted, perceptual=distance)
    assert torch.allclose(loss.mse, torch.full((2,), 0.05))
    assert torch.allclose(loss.perceptual, torch.full((2,), 0.2))
    assert torch.allclose(loss.total, torch.full((2,), 0.15))
    assert torch.allclose(
        nvs_loss(truth, predicted, perceptual=distance, weight=2.0).total, torch.tensor(0.45)
    )


def test_a_perfect_prediction_costs_nothing():
    truth = torch.rand(2, 1, 3, 4, 4)
    assert torch.equal(nvs_loss(truth, truth, perceptual=distance).total, torch.zeros(2))


def test_mse_alone_is_an_explicit_choice():
    truth, predicted = torch.zeros(1, 1, 3, 4, 4), torch.full((1, 1, 3, 4, 4), 0.5)
    with pytest.raises(TypeError):
        nvs_loss(truth, predicted)
    loss = nvs_loss(truth, predicted, perceptual=None)
    assert loss.total.item() == loss.mse.item() == 0.25 and loss.perceptual.item() == 0.0


def test_half_precision_predictions_and_gradients():
    truth = torch.rand(1, 1, 3, 4, 4)
    predicted = torch.rand(1, 1, 3, 4, 4, dtype=torch.bfloat16, requires_grad=True)
    loss = nvs_loss(truth, predicted, perceptual=distance)
    assert loss.total.dtype == torch.float32
    loss.total.sum().backward()
    assert predicted.grad.isfinite().all()
