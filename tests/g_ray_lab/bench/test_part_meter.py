"""Seconds go to the innermost part, peaks of memory to all that are open."""

import mmap
import time

import pytest
import torch
from torch import nn

from g_ray_lab.bench.bench_reconstruction import PartMeter, ResidentMemory

MEGABYTE = 2**20

linux_only = pytest.mark.skipif(
    not ResidentMemory.is_available(), reason="no /proc/self/clear_refs: peaks of memory are not known here"
)


def work(seconds: float) -> None:
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


def test_parts_inside_parts_are_not_counted_twice():
    meter = PartMeter()
    with meter.measure("all"):
        work(0.02)
        with meter.measure("inner"):
            work(0.05)
        work(0.01)
        with meter.measure("inner"):
            work(0.01)
    work(0.02)  # nobody's
    assert meter.seconds["all"] == pytest.approx(0.03, abs=0.015)
    assert meter.seconds["inner"] == pytest.approx(0.06, abs=0.015)


def test_a_part_that_fails_is_closed():
    meter = PartMeter()
    layer = nn.Linear(2, 2)
    meter.watch_module("layer", layer)
    with meter.measure("all"):
        with pytest.raises(RuntimeError):
            layer(torch.zeros(1, 3))
        layer(torch.zeros(1, 2))
    assert set(meter.seconds) == {"all", "layer"}
    assert meter._open == []


@linux_only
def test_a_peak_belongs_to_its_part_and_to_those_around_it():
    def touch(megabytes: int) -> None:
        """Straight from the kernel and back: an allocator may have some left over."""
        with mmap.mmap(-1, megabytes * MEGABYTE) as memory:
            memory[::1024] = bytes(len(memory) // 1024)

    meter = PartMeter(ResidentMemory())
    with meter.measure("all"):
        with meter.measure("large"):
            touch(120)
        with meter.measure("small"):
            touch(40)
    large, small = meter.peaks["large"] / MEGABYTE, meter.peaks["small"] / MEGABYTE
    assert 118 < large < 140
    # Although the large one came before it. The system may take idle pages away meanwhile, hence the low lower bound.
    assert 10 < small < 60
    assert meter.peaks["all"] == meter.peaks["large"]
