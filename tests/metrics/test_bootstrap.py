"""Bootstrap intervals: seeded, of the textbook width, and scipy's."""

import pytest
import torch

from g_ray.metrics import bootstrap


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
