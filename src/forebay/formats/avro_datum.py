"""The bytes of one datum to plain values, every one of them checked.

    null → None          int, long → int      bytes, fixed → bytes    record → list in the writer's order
    boolean → bool       float, double → float    string, enum → str      array → list
    union → (index of its branch, value)                                map → dict
    recursive → the record of that name

fastavro reads too much to be the reference: a boolean of 7, an int of 43 bits, negative indexes of unions
and enums (Python's lists count them from the end), a block that is not as long as it says, a key twice in a
map, and any number of nulls that two bytes announce. Avro's encoding is small enough to be read in plain
sight; fastavro writes the datums of the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from forebay.formats.avro_reading import AvroPlan
from forebay.formats.refusal import RefusedError, malformed, shorten

MAX_EMPTY_ITEMS = 10_000
"""Items of arrays that take no bytes, in one record: nothing else bounds how many there may be."""

MAX_NESTED = 100
"""How often a record may contain itself in one datum: both decoders recurse."""


def read_value(plan: AvroPlan, payload: bytes) -> Any:
    """The value at the payload's beginning."""
    return _Datum(payload, 0).value(plan)


def read_datum(plan: AvroPlan, payload: bytes, at: int = 0) -> list[Any]:
    """The record that the payload is, from byte `at` to its last."""
    datum = _Datum(payload, at, plan.get("named", {}))
    values: list[Any] = datum.value(plan)
    if datum.at != len(payload):
        raise malformed(f"{len(payload) - datum.at} bytes are left after the datum's end at byte {datum.at}")
    return values


class _Datum:
    def __init__(self, payload: bytes, at: int, named: Mapping[str, AvroPlan] = MappingProxyType({})) -> None:
        self._payload = payload
        self.at = at
        self._named = named
        self._nested = 0
        self._empty_items = 0

    def value(self, plan: AvroPlan) -> Any:
        match plan["avro"]:
            case "null":
                return None
            case "boolean":
                return self._boolean()
            case "int":
                return self._int()
            case "long":
                return self._long()
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "bytes":
                return self._take(self._long())
            case "string":
                return self._string()
            case "fixed":
                return self._take(plan["size"])
            case "enum":
                return plan["symbols"][self._index("enum", plan["symbols"])]
            case "record":
                return [self.value(field) for field in plan["fields"]]
            case "union":
                index = self._index("union", plan["branches"])
                return index, self.value(plan["branches"][index])
            case "array":
                return [self.value(plan["items"]) for _ in self._items(plan["empty"])]
            case "map":
                return self._map(plan)
            case "recursive":
                return self._again(self._named[plan["record"]])
        raise AssertionError(plan["avro"])

    def _again(self, plan: AvroPlan) -> Any:
        self._nested += 1
        if self._nested > MAX_NESTED:
            raise self._fault(f"a record that contains itself more than {MAX_NESTED} times")
        value = self.value(plan)
        self._nested -= 1
        return value

    def _take(self, length: int) -> bytes:
        if length < 0:
            raise self._fault(f"a length of {length}")
        if length > len(self._payload) - self.at:
            raise self._fault("the payload ends inside of a value")
        start, self.at = self.at, self.at + length
        return self._payload[start : self.at]

    def _boolean(self) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise self._fault(f"a boolean of {byte}")
        return byte == 1

    def _int(self) -> int:
        return self._varint(5, 32)

    def _long(self) -> int:
        return self._varint(10, 64)

    def _varint(self, longest: int, bits: int) -> int:
        """Seven bits a byte, the lowest first; then zig-zag: 0, -1, 1, -2, … are 0, 1, 2, 3, …"""
        value = 0
        for place in range(longest):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value >> bits:
                    break
                return value >> 1 if value % 2 == 0 else -(value >> 1) - 1
        raise self._fault(f"a number of more than {bits} bits")

    def _string(self) -> str:
        encoded = self._take(self._long())
        try:
            return encoded.decode()
        except UnicodeDecodeError:
            raise self._fault("a string that is not UTF-8") from None

    def _index(self, kind: str, choices: list[Any]) -> int:
        index = self._int()
        if not 0 <= index < len(choices):
            raise self._fault(f"the {kind} index {index} of {len(choices)}")
        return index

    def _items(self, empty: bool) -> Iterator[None]:
        """Once for each item of all blocks; a block with a byte size in front must have just that size."""
        while count := self._long():
            size = self._long() if count < 0 else None
            count = abs(count)
            start, left = self.at, len(self._payload) - self.at
            if size is not None and not 0 <= size <= left:
                raise self._fault(f"a block of {size} bytes")
            if empty:
                self._empty_items += count
                if self._empty_items > MAX_EMPTY_ITEMS:
                    raise self._fault(f"more than {MAX_EMPTY_ITEMS:,} items without bytes")
            elif count > left:
                raise self._fault(f"a block of {count} items")
            for _ in range(count):
                yield
            if size is not None and self.at != start + size:
                raise self._fault(f"a block of {self.at - start} bytes that says {size}")

    def _map(self, plan: AvroPlan) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in self._items(empty=False):
            key = self._string()
            if key in entries:
                raise self._fault(f"the key {shorten(key)!r} twice in a map")
            entries[key] = self.value(plan["items"])
        return entries

    def _fault(self, reason: str) -> RefusedError:
        return malformed(f"not a datum of the schema: {reason}, at byte {self.at}")
