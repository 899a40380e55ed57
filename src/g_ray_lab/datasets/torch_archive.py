"""Read where tensors lie in a file of `torch.save`, without loading them: bytes are then read when they are needed.

Such a file is a zip archive without compression: NAME/data.pkl is the pickled content, in which a tensor is a call of
`_rebuild_tensor_v2` with a storage, an offset, a shape and strides, and NAME/data/KEY are the bytes of a storage. A
pickle is a program that may name any function and call it. The only names that are accepted here are that one and those
of storages, and what they stand for here does nothing but describe a tensor.
"""

import mmap
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

STORAGES = {
    "ByteStorage": torch.uint8,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
}
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
"""Header of an entry of a zip archive; the last two numbers are the lengths of its name and its extra field."""


class Storage(NamedTuple):
    """Bytes of a tensor: an entry of the archive."""

    key: str
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A contiguous tensor in a file."""

    start: int  # bytes from the beginning of the file
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def read_bytes(self, path: Path) -> bytes:
        """Read the bytes of the tensor; fewer if the file ends before."""
        with path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.nbytes)

    def load(self, path: Path) -> Tensor:
        """Read the tensor."""
        content = bytearray(self.read_bytes(path))
        if len(content) != self.nbytes:
            raise ValueError(f"{path} ends inside a tensor: download it again")
        return torch.frombuffer(content, dtype=self.dtype).reshape(self.shape)


def read_layout(path: Path) -> Any:
    """Return the content of a file of `torch.save` with a `StoredTensor` in place of every tensor.

    Raises pickle.UnpicklingError for anything but tensors and plain values, zipfile.BadZipFile for a damaged archive.
    """
    with (
        path.open("rb") as file,
        zipfile.ZipFile(file) as archive,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        names = archive.namelist()
        top = next((name.removesuffix("data.pkl") for name in names if name.endswith("/data.pkl")), None)
        if top is None:
            raise zipfile.BadZipFile("no data.pkl in it")
        entries = {info.filename: info for info in archive.infolist()}

        def locate(key: str) -> int:
            info = entries[f"{top}data/{key}"]
            if info.compress_type != zipfile.ZIP_STORED:
                raise zipfile.BadZipFile("tensors are compressed")
            *_, name, extra = LOCAL_HEADER.unpack_from(content, info.header_offset)
            return info.header_offset + LOCAL_HEADER.size + name + extra

        return LayoutUnpickler(BytesIO(archive.read(f"{top}data.pkl")), locate).load()


class LayoutUnpickler(pickle.Unpickler):
    """Rebuilds lists, dictionaries, strings and numbers, and describes tensors."""

    def __init__(self, pickled: BytesIO, locate: Callable[[str], int]) -> None:
        super().__init__(pickled)
        self.locate = locate

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._describe
        if module_name == "torch" and global_name in STORAGES:
            return STORAGES[global_name]
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise pickle.UnpicklingError(f"{module_name}.{global_name}"[:80])

    def persistent_load(self, pid: Any, /) -> Storage:
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise pickle.UnpicklingError("not a storage")
        return Storage(key, dtype)

    def _describe(self, storage: Storage, offset: int, shape: Any, strides: Any, *_: Any) -> StoredTensor:
        expected = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if any(size > 1 and a != b for size, a, b in zip(shape, strides, expected, strict=True)):
            raise pickle.UnpicklingError("a tensor that is not contiguous")
        start = self.locate(storage.key) + offset * storage.dtype.itemsize
        return StoredTensor(start, storage.dtype, tuple(shape))
