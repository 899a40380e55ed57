"""Intervals: the bootstrap is seeded and scipy's; the interval over runs is scipy's and covers as often as it says."""

import pytest
import torch

from g_ray_lab.metrics import bootstrap
from g_ray_lab.metrics.intervals import compute_run_interval, student_t_quantile


def values(count=200):
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 20


def test_the_same_seed_gives_the_same_interval():
    assert bootstrap(values(), seed=3) == bootstrap(values(), seed=3)
    assert bootstrap(values(), seed=3) != bootstrap(values(), seed=4)


def test_its_width_is_that_of_a_normal_mean():
    sample = values()
    found = bootstrap(sample)
    error = sample.std(correction=0).item() / len(sample) ** 0.5
    assert found.mean == pytest.approx(sample.mean().item())
    assert found.high - found.mean == pytest.approx(1.96 * error, rel=0.05)
    assert found.mean - found.low == pytest.approx(1.96 * error, rel=0.05)


def test_two_values_by_hand():
    """Means of two draws from {0, 1}: 0, ½, 1 with ¼, ½, ¼; the quartiles are then ends of the 50 % interval."""
    found = bootstrap(torch.tensor([0.0, 1.0]), confidence=0.6)
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)
    found = bootstrap(torch.tensor([0.0, 1.0]), confidence=0.4)
    assert (found.low, found.high) == (0.5, 0.5)


def test_scipy_agrees():
    stats = pytest.importorskip("scipy.stats")
    sample = values(60)
    theirs = stats.bootstrap(
        (sample.numpy(),),
        lambda x, axis: x.mean(axis),
        method="percentile",
        n_resamples=100_000,
        batch=10_000,
        random_state=0,
    ).confidence_interval
    ours = bootstrap(sample, resamples=100_000)
    assert ours.low == pytest.approx(theirs.low, abs=0.02) and ours.high == pytest.approx(
        theirs.high, abs=0.02
    )


def test_one_scene_and_blocks_of_resamples():
    one = bootstrap(torch.tensor([3.0]), resamples=10)
    assert one.low == one.mean == one.high == 3.0
    many = bootstrap(values(5000), resamples=500)  # several blocks
    assert many.low < many.mean < many.high


@pytest.mark.parametrize("bad", [torch.zeros(0), torch.tensor([1.0, torch.inf]), torch.tensor([torch.nan])])
def test_values_without_a_mean_are_refused(bad):
    with pytest.raises(ValueError, match="one finite number per scene"):
        bootstrap(bad)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap(values(), confidence=95.0)


@pytest.mark.parametrize("degrees", [1, 2, 4, 30])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.995])
def test_quantiles_are_scipys(degrees, probability):
    stats = pytest.importorskip("scipy.stats")
    assert student_t_quantile(probability, degrees) == pytest.approx(
        stats.t.ppf(probability, degrees), rel=1e-6, abs=1e-9
    )


def test_the_interval_over_runs_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    runs = torch.randn(3, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs = stats.ttest_1samp(runs.mean(1).numpy(), 0).confidence_interval(0.95)
    ours = compute_run_interval(runs)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-6)


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("scene_noise", [0.0, 2.0])
def test_it_covers_as_often_as_it_says(runs, scene_noise):
    """2,000 studies whose runs differ by a random amount and whose scenes are shared: 93–97 % contain the truth."""
    generator = torch.Generator().manual_seed(2)
    studies, scenes = 2000, 16
    shared = torch.randn(studies, 1, scenes, generator=generator)
    own = torch.randn(studies, runs, 1, generator=generator)
    noise = scene_noise * torch.randn(studies, runs, scenes, generator=generator)
    values = (shared - shared.mean(-1, keepdim=True) + own + noise).double()
    means = values.mean(-1)
    half = student_t_quantile(0.975, runs - 1) * means.std(-1) / runs**0.5
    assert 0.93 <= float((means.mean(-1).abs() <= half).double().mean()) <= 0.97
    one = compute_run_interval(values[0])
    assert one.high - one.mean == pytest.approx(float(half[0]))


def test_a_single_run_is_judged_by_its_scenes():
    sample = values()
    assert compute_run_interval(sample[None]) == bootstrap(sample)
