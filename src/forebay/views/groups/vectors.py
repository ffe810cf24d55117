"""Deletion vectors of Delta: which rows of a file count no more, as a bitmap beside the file.

The format is Delta's own (its protocol, "Deletion Vector Format"): 32-bit Roaring bitmaps in an array of 64-bit ones.
deltalake and Polars read them; neither writes them.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import Any

import numpy as np

from forebay.files import persist
from forebay.object_path import TablePath
from forebay.views.groups.columns import Array

_MAGIC = 1681511377
_NO_RUNS = 12346  # Roaring's cookie for bitmaps without run containers
_ARRAY_MAX = 4096  # values in a container up to which a list is smaller than 65,536 bits
_VERSION = b"\x01"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def write_vector(folder: TablePath, deleted: Array) -> dict[str, Any]:
    """A file with the rows whose flag is set, on the disk; returns what the log says of it."""
    rows = np.flatnonzero(deleted)
    data = _bitmap_array(rows)
    name = uuid.uuid4()
    path = folder / f"deletion_vector_{name}.bin"
    path.write_bytes(_VERSION + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    persist([path])
    return {
        "storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": len(_VERSION), "sizeInBytes": len(data),
        "cardinality": len(rows),
    }  # fmt: skip


def read_vector(folder: TablePath, vector: dict[str, Any], rows: int) -> Array:
    """The flags that `write_vector` was given, of a file of so many rows."""
    data = vector_path(folder, vector).read_bytes()[len(_VERSION) + 4 + struct.calcsize("<iQI") : -4]
    deleted = np.zeros(rows, np.bool_)
    count = struct.unpack_from("<II", data)[1]
    for place in range(count):
        key, most = struct.unpack_from("<HH", data, 8 + 4 * place)
        (offset,) = struct.unpack_from("<I", data, 8 + 4 * count + 4 * place)
        if most < _ARRAY_MAX:
            low = np.frombuffer(data, "<u2", most + 1, offset).astype(np.int64)
        else:
            bits = np.frombuffer(data, np.uint8, 1 << 13, offset)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        deleted[(key << 16) + low] = True
    return deleted


def vector_path(folder: TablePath, vector: dict[str, Any]) -> TablePath:
    """The file that `write_vector` has made."""
    return folder / f"deletion_vector_{uuid.UUID(bytes=_from_z85(vector['pathOrInlineDv']))}.bin"


def _bitmap_array(rows: Array) -> bytes:
    # A file of ours has far fewer than 2^32 rows: one bitmap, of the high half 0.
    return struct.pack("<iQI", _MAGIC, 1, 0) + _bitmap(rows)


def _bitmap(rows: Array) -> bytes:
    low = (rows & 0xFFFF).astype("<u2")
    keys, starts = np.unique(rows >> 16, return_index=True)
    parts = np.split(low, starts[1:]) if len(keys) else []
    containers = [_container(part) for part in parts]
    head = struct.pack("<II", _NO_RUNS, len(keys))
    head += b"".join(
        struct.pack("<HH", int(key), len(part) - 1) for key, part in zip(keys, parts, strict=True)
    )
    sizes = np.array([0, *(len(each) for each in containers[:-1])]) if containers else np.array([], int)
    offsets = len(head) + 4 * len(containers) + np.cumsum(sizes)
    return head + offsets.astype("<u4").tobytes() + b"".join(containers)


def _container(low: Array) -> bytes:
    if len(low) <= _ARRAY_MAX:
        return bytes(low.tobytes())
    bits = np.zeros(1 << 16, np.uint8)
    bits[low] = 1
    return bytes(np.packbits(bits, bitorder="little").tobytes())


def _z85(data: bytes) -> str:
    found = ""
    for (number,) in struct.iter_unpack(">I", data):
        found += "".join(_DIGITS[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return found


def _from_z85(text: str) -> bytes:
    found = b""
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            number = number * 85 + _DIGITS.index(digit)
        found += struct.pack(">I", number)
    return found
