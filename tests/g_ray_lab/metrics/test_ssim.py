"""SSIM: torchmetrics' numbers, and values one can work out."""

import pytest
import torch

from g_ray_lab.metrics import ssim


def pair(height=40, width=52, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    columns = torch.linspace(0, 9, width, dtype=dtype).sin() * 0.4 + 0.5
    truth = columns.expand(2, 3, height, width) * torch.rand(2, 3, 1, 1, generator=generator, dtype=dtype)
    noise = torch.randn(2, 3, height, width, generator=generator, dtype=dtype)
    return truth.contiguous(), (truth + 0.1 * noise).clamp(0, 1)


@pytest.mark.parametrize("size", [(40, 52), (36, 36), (144, 256), (11, 6)])
def test_the_numbers_of_torchmetrics(size):
    from torchmetrics.functional import image

    truth, predicted = pair(*size)
    theirs = image.structural_similarity_index_measure(predicted, truth, data_range=1.0, reduction="none")
    assert (ssim(truth, predicted) - theirs).abs().max() < 1e-5


def test_numbers_torchmetrics_gave():
    """The same where it is not installed: torchmetrics 1.9.0 on this pair."""
    truth, predicted = pair(dtype=torch.float64)
    assert ssim(truth, predicted).tolist() == pytest.approx([0.3524346, 0.3821564], abs=1e-5)


def test_equal_images_have_one():
    truth, _ = pair()
    assert torch.allclose(ssim(truth, truth), torch.ones(2), atol=1e-6)


def test_flat_images_by_hand():
    """No variance: only the luminance term is left."""
    a, b = torch.full((1, 3, 20, 20), 0.4), torch.full((1, 3, 20, 20), 0.6)
    expected = (2 * 0.24 + 1e-4) / (0.16 + 0.36 + 1e-4)
    assert ssim(a, b).item() == pytest.approx(expected, abs=1e-4)


def test_symmetric_with_any_batch_shape_and_small_images_refused():
    truth, predicted = pair()
    assert torch.allclose(ssim(truth, predicted), ssim(predicted, truth))
    assert ssim(truth[:, None], predicted[:, None]).shape == (2, 1)
    with pytest.raises(ValueError, match="more than 5 pixels"):
        ssim(truth[..., :5], predicted[..., :5])


def test_gradients_are_finite_for_flat_images():
    flat = torch.full((1, 3, 12, 12), 0.5, requires_grad=True)
    ssim(torch.full((1, 3, 12, 12), 0.5), flat).sum().backward()
    assert flat.grad.isfinite().all()
