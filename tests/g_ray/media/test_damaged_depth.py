"""Depth maps that are damaged or declare impossible sizes: one line with the name of the file."""

import io

import numpy as np
import pytest

from g_ray.media.depth import DepthFile


def _zip_array():
    stored = io.BytesIO()
    np.savez_compressed(stored, depth=np.random.default_rng(0).random((40, 50), dtype=np.float32))
    return bytearray(stored.getvalue())


def _damage(content, start, value=b"\xff" * 8):
    content[start : start + len(value)] = value
    return bytes(content)


DAMAGED = {
    "cut.npz": lambda: bytes(_zip_array()[:-30]),
    "flipped.npz": lambda: _damage(_zip_array(), 200),
    "method.npz": lambda: _damage(_zip_array(), _zip_array().rindex(b"PK\x01\x02") + 10, b"\x5d\x00"),
    "header.npy": lambda: b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4' ((((\n",
    "short.npy": lambda: (
        b"\x93NUMPY\x01\x00\x4e\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (60, 60), }".ljust(77)
        + b"\n"
    ),
    "empty.npz": lambda: b"",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_arrays_are_named(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(DAMAGED[name]())
    with pytest.raises(OSError, match=name) as caught:
        DepthFile(path, "z").read()
    assert "\n" not in str(caught.value)


def test_a_small_file_that_declares_a_huge_array(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "huge.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("dataset", shape=(60000, 60000), dtype="f4", chunks=(100, 100))
    assert path.stat().st_size < 10_000
    with pytest.raises(OSError, match=r"huge\.hdf5: .*13 GiB"):
        DepthFile(path, "z").read()
