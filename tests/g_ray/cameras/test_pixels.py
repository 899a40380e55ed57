"""Memory of freed maps is used again, and never while anybody can still see it."""

import pytest
import torch

from g_ray.cameras import ray_grid
from g_ray.cameras.ray_grid import allocate_empty

SIDE = 1500  # 18 MB in float64


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(ray_grid, "_kept", {})


def allocate(value: float) -> torch.Tensor:
    return allocate_empty(SIDE, SIDE, dtype=torch.float64, device="cpu").fill_(value)


def test_freed_memory_is_used_again():
    first = allocate(1.0)
    place = first.data_ptr()
    del first
    assert {size: len(parts) for size, parts in ray_grid._kept.items()} == {8 * SIDE**2: 1}
    assert allocate(2.0).data_ptr() == place


def test_memory_in_use_is_not():
    first, second = allocate(1.0), allocate(2.0)
    row, array = first[3], second.numpy()
    del first, second
    third = allocate(3.0)
    assert not ray_grid._kept
    assert (row == 1).all() and (array == 2).all() and (third == 3).all()


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(ray_grid, "_MOST_KEPT", 20 * SIDE**2)
    maps = [allocate(1.0) for _ in range(4)]
    del maps
    assert [len(parts) for parts in ray_grid._kept.values()] == [2]


def test_small_tensors_are_left_to_the_allocator():
    del_me = allocate_empty(10, 10, dtype=torch.float32, device="cpu")
    assert del_me.shape == (10, 10) and del_me.dtype == torch.float32
    del del_me
    assert not ray_grid._kept
