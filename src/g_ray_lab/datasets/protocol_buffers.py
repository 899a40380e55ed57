"""Read TFRecord files and protocol buffers without their libraries: the few parts that recordings need.

A TFRecord is a length of 8 bytes, its checksum of 4, as many bytes, and their checksum of 4. A message is a row of
fields: a key, which is a variable-length integer of field number and kind, then a variable-length integer (kind 0), 8
bytes (1), a length and as many bytes (2), or 4 bytes (5).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

MAX_RECORD_BYTES = 1 << 28

Fields = dict[int, list[int | bytes]]
"""Values by field number, in the order of the file: integers of kind 0, the bytes of all others."""


def iterate_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file; ValueError if it is none or ends early."""
    with path.open("rb") as file:
        while head := file.read(12):
            size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else MAX_RECORD_BYTES + 1
            body = file.read(size + 4) if size <= MAX_RECORD_BYTES else b""
            if len(body) != size + 4:
                raise ValueError(f"{path}: not a TFRecord, or cut off; download it again")
            yield body[:-4]


def parse_message(data: bytes) -> Fields:
    """Parse the fields of a message; ValueError if it is none."""
    fields: Fields = {}
    place = 0
    while place < len(data):
        key, place = _parse_varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _parse_varint(data, place)
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, place = _parse_varint(data, place)
            value, place = data[place : place + size], place + size
            if place > len(data):
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"a field of kind {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def get_bytes(fields: Fields, number: int) -> bytes:
    """Return the last value of a field, as protocol buffers define it; empty bytes if it is not there."""
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is an integer")
    return value


def get_int(fields: Fields, number: int) -> int:
    """Return the last value of a field, 0 if it is not there."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no integer")
    return value


def get_messages(fields: Fields, number: int) -> list[Fields]:
    """Parse all values of a field as messages."""
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError(f"field {number} holds no messages")
    return [parse_message(value) for value in values if isinstance(value, bytes)]


def get_floats(fields: Fields, number: int, kind: str = "<f8") -> Float64[np.ndarray, "n"]:
    """Return a repeated field of floating numbers, packed or not."""
    values = fields.get(number, [])
    data = b"".join(value for value in values if isinstance(value, bytes))
    return np.frombuffer(data, kind).astype(np.float64)


def get_ints(fields: Fields, number: int) -> Int64[np.ndarray, "n"]:
    """Return a repeated field of integers, packed or not."""
    values = fields.get(number, [])
    parts = [
        _unpack_varints(value) if isinstance(value, bytes) else np.array([value], np.uint64).view(np.int64)
        for value in values
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _parse_varint(data: bytes, place: int) -> tuple[int, int]:
    """Parse an integer, seven bits per byte, the lowest first; return it and the place behind it."""
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise ValueError("an integer is cut off")


def _unpack_varints(data: bytes) -> Int64[np.ndarray, "n"]:
    """Parse a row of integers at once: images hold a million of them."""
    octets = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(octets < 0x80)
    if not len(octets):
        return np.zeros(0, np.int64)
    if not len(last) or last[-1] != len(octets) - 1:
        raise ValueError("an integer is cut off")
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    values = np.zeros(len(last), np.uint64)
    for byte in range(int(lengths.max())):
        some = lengths > byte
        part = octets[first[some] + byte].astype(np.uint64) & np.uint64(0x7F)
        values[some] |= part << np.uint64(7 * byte)
    return values.view(np.int64)
