"""Read the columns of a pickled pandas table without pandas, and without running anything that the file names.

A pickle is a program: it may name any function and call it. The only names that are accepted here are those that numpy
needs to rebuild arrays; names of pandas' classes become records that hold their arguments and their state, and every
other name is refused. The columns are then looked up in those records, as pandas 0.25 to 2 store them:

    DataFrame state {"_mgr" or "_data": BlockManager}
    BlockManager    state (…, {"0.14.1": {"axes": [columns, rows], "blocks": [{"values", "mgr_locs"}]}})   (to 1.2)
                    or arguments (blocks, axes), each block a call with (values, placement, ndim)          (from 1.3)
    Index           a call of _new_Index with (class, {"data": array})
"""

import gzip
import io
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np

# The functions that numpy itself names when it is pickled, under their old and their new module.
_REBUILDERS = {
    "multiarray._reconstruct": np.zeros(1).__reduce__()[0],
    "multiarray.scalar": np.float64(0).__reduce__()[0],
    "numeric._frombuffer": np.zeros(1).__reduce_ex__(5)[0],
}
_NUMPY = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    **{f"numpy.{core}.{name}": call for core in ("core", "_core") for name, call in _REBUILDERS.items()},
}
_BUILT_IN = {"builtins.slice": slice, "builtins.range": range, "__builtin__.slice": slice}
MAX_BYTES = 1 << 30
"""Largest unpacked file; a sweep has some 10 MB."""


class Record:
    """Arguments and state of a pickled object whose class is not imported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.state = args, dict(kwargs)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _AllowListUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _NUMPY.get(f"{module}.{name}") or _BUILT_IN.get(f"{module}.{name}")
        if known is not None:
            return known
        if module == "_codecs" and name == "encode":
            return _encode_latin1
        if module.split(".")[0] == "pandas":
            return type(name, (Record,), {"__module__": __name__})
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no table needs")


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Do what protocol 2 calls `_codecs.encode` for, and nothing else."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return text.encode("latin1")


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a pickled pandas table, gzipped or not; OSError names a file that is damaged or no table."""
    try:
        root = _AllowListUnpickler(io.BytesIO(_read_bytes(path))).load()
        columns = _collect_columns(root)
    except FileNotFoundError:
        raise OSError(f"{path}: no such file; unpack the dataset again") from None
    except OSError as error:
        raise OSError(f"{path}: cannot be unpacked ({error}); download it again") from None
    except pickle.UnpicklingError as error:
        raise OSError(f"{path}: not read: {error}") from None
    except (EOFError, zlib.error):
        raise OSError(f"{path}: the file ends too early; download it again") from None
    except Exception as error:  # a damaged pickle makes the unpickler fail in any way at all
        raise OSError(f"{path}: not a table of pandas ({type(error).__name__}: {error})") from None
    return columns


def _read_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    with gzip.open(io.BytesIO(content)) as file:
        unpacked = file.read(MAX_BYTES + 1)
    if len(unpacked) > MAX_BYTES:
        raise OSError(f"more than {MAX_BYTES >> 20} MiB")
    return unpacked


def _collect_columns(root: Any) -> dict[str, np.ndarray]:
    if not isinstance(root, Record) or type(root).__name__ != "DataFrame":
        raise pickle.UnpicklingError(f"it holds no table but {type(root).__name__}")
    state = root.state
    manager = state.get("_mgr", state.get("_data")) or next(
        arg for arg in root.args if isinstance(arg, Record)
    )
    axes, blocks = _list_blocks(manager)
    names = [str(name) for name in _read_labels(axes[0])]
    columns: dict[str, np.ndarray] = {}
    for values, placement in blocks:
        indices = np.arange(len(names))[placement]
        for index, column in zip(indices, np.asarray(values).reshape(len(indices), -1), strict=True):
            columns[names[index]] = column
    if set(columns) != set(names) or len({len(column) for column in columns.values()}) > 1:
        raise pickle.UnpicklingError("its columns are not of one length")
    return columns


def _list_blocks(manager: Record) -> tuple[list[Any], list[tuple[np.ndarray, Any]]]:
    """Return the axes (columns first) and, of every block of equally typed columns, values and placement."""
    if isinstance(manager.state, tuple):
        stored = manager.state[-1]["0.14.1"]
        return list(stored["axes"]), [(block["values"], block["mgr_locs"]) for block in stored["blocks"]]
    blocks, axes = manager.args[:2]
    return list(axes), [(block.args[0], _get_indexer(block.args[1])) for block in blocks]


def _get_indexer(placement: Any) -> Any:
    """Pandas 1.3 to 2 store slices and arrays; some versions wrap them in a BlockPlacement."""
    return placement.args[0] if isinstance(placement, Record) else placement


def _read_labels(axis: Any) -> list[Any]:
    if isinstance(axis, np.ndarray):
        return axis.tolist()
    data = axis.args[1]["data"]
    while isinstance(data, Record):  # an array of strings around an array of objects
        arrays = [part for part in _flatten(data.state) + _flatten(data.args) if isinstance(part, np.ndarray)]
        data = next(array for array in arrays if array.dtype == object)
    return data.tolist()


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for item in value.values() for part in _flatten(item)]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flatten(item)]
    return [value]
