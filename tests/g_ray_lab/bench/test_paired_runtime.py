"""Paired trials: their statistics by hand, modes that share weights, a table through the command that resumes."""

import json
from collections import Counter

import pytest
import torch

from g_ray.cli.main import main
from g_ray.models.weights import save_reconstruction
from g_ray_lab.bench import paired_runtime
from g_ray_lab.bench.bench_reconstruction import BenchmarkCase, copy_with_method
from g_ray_lab.bench.paired_runtime import (
    MODES,
    RuntimeCase,
    format_runtime,
    measure_runtime,
    summarize_trials,
    time_trials,
)
from g_ray_lab.scoring.store import Store
from g_ray_lab.tables.runtime_table import Runtime

MEASURED = {"seconds": {key: [1.0, 2.0] for key in MODES}, "peak_gib": dict.fromkeys(MODES, None)}
TINY = RuntimeCase(None, "tiny", views=2, size=24)


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(paired_runtime, "run_in_subprocess", lambda task, *arguments: task(*arguments))


def test_intervals_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, so that the half width is t(0.975, 2) / √3 = 4.30265 / 1.73205.
    summary = summarize_trials({"gray": [2.0, 4.0, 6.0], "rope_vo": [1.0, 2.0, 3.0], "rope": [2.0, 4.0, 6.0]})
    assert summary["mean"]["gray"] == 4 and summary["deviation"]["gray"] == 2
    difference = summary["difference"]["rope_vo"]
    assert difference["mean"] == pytest.approx(2)
    assert difference["high"] - 2 == pytest.approx(4.302653 / 3**0.5, rel=1e-4)
    assert 2 - difference["low"] == pytest.approx(4.302653 / 3**0.5, rel=1e-4)
    assert summary["difference"]["rope"] == {"mean": 0, "low": 0, "high": 0}


def test_every_order_comes_equally_often(monkeypatch):
    ran = []
    monkeypatch.setattr(RuntimeCase, "run", lambda self, network: ran.append(network.config.method))
    seconds = time_trials(TINY, 6)
    orders = [tuple(ran[i : i + 3]) for i in range(3, len(ran), 3)]
    assert set(Counter(orders).values()) == {1} and len(orders) == 6
    assert {mode: len(values) for mode, values in seconds.items()} == dict.fromkeys(MODES, 6)


def test_modes_share_weights_and_differ_in_positions():
    network = TINY.build_network()
    copies = {mode: copy_with_method(network, mode) for mode in MODES}
    for copy in copies.values():
        state = copy.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert (
        copies["rope_vo"].aggregator.frame.rotate_values and not copies["rope"].aggregator.frame.rotate_values
    )
    assert copies["gray"].aggregator.frame.coordinate == "tangent"
    assert copies["rope_vo"].aggregator.frame.coordinate == "grid_from_one"


@pytest.fixture
def weights(tmp_path):
    save_reconstruction(TINY.build_network(), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def test_the_command_resumes(tmp_path, weights, in_this_process, monkeypatch, capsys):
    words = [
        "reproduce",
        "runtime",
        "--out",
        tmp_path / "o",
        "--weights",
        weights,
        "--size",
        24,
        "--trials",
        2,
    ]
    words = [*map(str, words), "--device", "cpu", "--views", "1"]
    assert main(words) == 0
    first = json.loads((tmp_path / "o" / "result.json").read_text())
    assert first["settings"]["weights"] == "tiny.safetensors" and (tmp_path / "o" / "runtime.png").is_file()
    measured = []
    monkeypatch.setattr(
        paired_runtime, "measure_case", lambda case, trials: measured.append(case.views) or MEASURED
    )
    monkeypatch.setattr(Runtime, "draw", lambda self, result: None)
    assert main([*words, "2"]) == 0 and measured == [2]
    both = json.loads((tmp_path / "o" / "result.json").read_text())
    assert both["rows"][0] == first["rows"][0] and [row["views"] for row in both["rows"]] == [1, 2]
    assert (tmp_path / "o" / "table.md").read_text() == format_runtime(both["rows"]) + "\n"


@pytest.mark.parametrize(("views", "trials"), [((), 2), ((0,), 2), ((1,), 1)])
def test_numbers_that_make_no_table_are_refused(tmp_path, views, trials):
    options = {"model": "tiny", "size": 24, "precision": "fp32", "device": "cpu", "store": Store(tmp_path)}
    with pytest.raises(ValueError, match="two trials or more, and positive numbers"):
        measure_runtime(None, views, trials=trials, **options)


def test_rays_as_inputs_are_refused(tmp_path):
    network = BenchmarkCase("tiny", 2, 24).build_network("camray")
    save_reconstruction(network, tmp_path / "camray.safetensors")
    with pytest.raises(ValueError, match="takes rays as input channels"):
        RuntimeCase(str(tmp_path / "camray.safetensors"), "tiny", 2, 24).build_network()
