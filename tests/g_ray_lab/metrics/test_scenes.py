"""Rows of a table: a value per scene and metric, averaged with equal weight."""

import pytest
import torch

from g_ray_lab.metrics import SceneScores, psnr, score_scenes, ssim


def scenes(count=4, targets=3):
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(count, targets, 3, 16, 20, generator=generator)
    return truth, (truth + 0.1 * torch.randn(truth.shape, generator=generator)).clamp(0, 1)


def distance(truth, predicted):
    return (truth - predicted).abs().mean((-3, -2, -1))


def test_psnr_is_pooled_and_the_others_are_averaged():
    truth, predicted = scenes()
    scores = score_scenes(truth, predicted, lpips=distance)
    assert torch.allclose(scores.psnr, psnr(truth, predicted))
    assert torch.allclose(scores.ssim, ssim(truth, predicted).mean(1))
    assert torch.allclose(scores.lpips, distance(truth, predicted).mean(1))


def test_batches_of_scenes_give_the_same_rows():
    truth, predicted = scenes()
    whole = score_scenes(truth, predicted, lpips=distance)
    parts = [score_scenes(truth[i : i + 2], predicted[i : i + 2], lpips=distance) for i in (0, 2)]
    joined = SceneScores.concatenate(parts)
    assert all(torch.allclose(joined.rows()[name], whole.rows()[name]) for name in ("psnr", "ssim", "lpips"))


def test_the_summary_has_means_and_intervals():
    scores = score_scenes(*scenes(), lpips=None)
    summary = scores.summarize()
    assert list(summary) == ["psnr", "ssim"]
    assert summary["psnr"].mean == pytest.approx(scores.psnr.mean().item(), abs=1e-5)
    assert summary["psnr"].low <= summary["psnr"].mean <= summary["psnr"].high


def test_lpips_in_some_batches_only_is_refused():
    truth, predicted = scenes()
    with_it, without = (score_scenes(truth, predicted, lpips=way) for way in (distance, None))
    with pytest.raises(ValueError, match="score all of them with the same metrics"):
        SceneScores.concatenate([with_it, without])
    with pytest.raises(TypeError):
        score_scenes(truth, predicted)
