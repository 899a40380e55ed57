"""The benchmark's bookkeeping; its timings are looked at, not asserted."""

import pytest
import torch

from g_ray.rays.views import Views
from g_ray_lab.bench import bench_reconstruction as benchmark
from g_ray_lab.bench.bench_reconstruction import (
    ALL,
    PARTS,
    BenchmarkCase,
    PartMeter,
    ResidentMemory,
    attach_meter,
    benchmark_reconstruction,
    compute_memory_growth,
    compute_quartiles,
    time_case,
)

TINY = BenchmarkCase("tiny", 2, 28)


def test_a_row_for_each_part_and_number_of_views():
    """In fresh processes, as the command does it."""
    result = benchmark_reconstruction([2], 28, "tiny", repeats=1)
    assert [(row["views"], row["part"]) for row in result["rows"]] == [(2, part) for part in (*PARTS, ALL)]
    for row in result["rows"]:
        assert row["gray_s"] >= 0
        assert row["rope_s"] >= 0
    whole = result["rows"][-1]
    assert whole["gray_s"] == pytest.approx(sum(row["gray_s"] for row in result["rows"][:-1]))
    assert whole["ratio_low"] <= whole["ratio"] <= whole["ratio_high"]
    if ResidentMemory.is_available():
        assert whole["gray_mb"] == max(row["gray_mb"] or 0 for row in result["rows"]) > 0
    assert result["settings"]["parameters"] == pytest.approx(0.8698e6, rel=1e-3)
    assert result["settings"]["growth"] == {"gray": None, "rope": None}  # one case says nothing of growth


def test_both_methods_have_the_same_weights_and_are_timed_in_turn(monkeypatch):
    seen = []

    def run(case, network, meter):
        seen.append((network.config.method, next(network.aggregator.parameters()).data_ptr()))
        with meter.measure(ALL):
            pass

    monkeypatch.setattr(BenchmarkCase, "run", run)
    assert {method: len(rounds) for method, rounds in time_case(TINY, 3).items()} == {"gray": 3, "rope": 3}
    assert [method for method, _ in seen] == ["rope", "gray", "gray", "rope", "rope", "gray", "gray", "rope"]
    assert len({address for _, address in seen}) == 1


def test_every_part_is_seen_once_and_a_meter_changes_nothing():
    network = TINY.build_network("gray")
    images, views = torch.rand(1, 2, 3, 28, 28), Views(TINY.make_cameras())
    with torch.no_grad():
        before = network(images, views)
        meter = attach_meter(PartMeter(), network)
        after = network(images, views)
    assert set(meter.seconds) == set(PARTS) - {"rest"}
    assert all(torch.equal(a, b) for a, b in zip(vars(before).values(), vars(after).values(), strict=True))


def test_growth_per_view_by_hand():
    steps = compute_memory_growth([2, 4, 8], [10.0, 30.0, 50.0])
    assert steps == [
        {"from": 2, "to": 4, "mb_per_view": 10.0},
        {"from": 4, "to": 8, "mb_per_view": 5.0},
    ]
    assert compute_memory_growth([2], [10.0]) is None
    assert compute_memory_growth([2, 4], [None, None]) is None


def test_quartiles_by_hand():
    assert compute_quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert compute_quartiles([2.0]) == (2.0, 2.0, 2.0)
    assert compute_quartiles([]) == (None, None, None)


def test_a_process_that_dies_is_one_line():
    with pytest.raises(ValueError, match=r"2 views with the tiny network ended the process.*fewer views"):
        benchmark.run_in_subprocess(_die, TINY)


def _die(case: BenchmarkCase) -> None:
    import os

    os._exit(9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"views": [2], "model": "huge"},
            "unknown model 'huge': choose one of tiny, rooms, dino",
        ),
        ({"views": [2], "size": 220, "model": "small"}, "--size 220 is not a multiple of the patch of 14 px"),
        ({"views": []}, "give numbers of at least 1"),
        ({"views": [2, 0]}, "--views 2 0: give numbers"),
        ({"views": [2], "repeats": 0}, "--repeats must be at least 1, got 0"),
        ({"views": [2], "precision": "fp8"}, "choose fp32 or bf16"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        benchmark_reconstruction(**arguments)
