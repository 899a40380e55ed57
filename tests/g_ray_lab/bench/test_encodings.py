"""The benchmark's bookkeeping; its timings are looked at, not asserted."""

import pytest
import torch
import torch.nn.functional as F

from g_ray_lab.bench.bench_encodings import Inputs, benchmark_encodings, measure_saved


def test_report():
    result = benchmark_encodings(views=2, grid=2, batch=1, repeats=1)
    assert [row["name"] for row in result["rows"]] == [
        "sdpa", "rope", "gray", "gta", "gta_gray", "prope", "rayrope", "rayrope_gray",
    ]  # fmt: skip
    for row in result["rows"]:
        assert set(row) == {"name", "forward", "forward_backward", "saved"}
        assert row["forward"] > 0
        assert row["forward_backward"] > 0
    assert result["rows"][0]["forward"] == 1.0
    assert result["settings"]["threads"] == 1


def test_saved_memory_counts_what_the_graph_holds():
    inputs = Inputs.draw(1, 64)
    plain = measure_saved(lambda q, k, v, raw: F.scaled_dot_product_attention(q, k, v), inputs)
    assert 4.0 <= plain < 4.1  # q, k, v, output, log-sum-exp
    assert measure_saved(lambda q, k, v, raw: q * k, inputs) == 2.0
    assert measure_saved(lambda q, k, v, raw: q + k, inputs) == 0.0
    assert measure_saved(lambda q, k, v, raw: (q * k).exp(), inputs) == 3.0


def test_no_encoding_keeps_keys_of_every_camera():
    """At 16 views RayRoPE's released operator keeps 63 q tensors; ours about what plain attention keeps."""
    saved = {row["name"]: row["saved"] for row in benchmark_encodings(16, 4, 1, repeats=1)["rows"]}
    for name in ("rope", "gray", "gta", "gta_gray", "prope"):
        assert saved[name] <= 4.5
    for name in ("rayrope", "rayrope_gray"):
        assert saved[name] <= 7.0


def test_threads_are_restored():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="must be positive"):
        benchmark_encodings(0, 4, 1)
    benchmark_encodings(1, 2, 1, repeats=1)
    assert torch.get_num_threads() == before
