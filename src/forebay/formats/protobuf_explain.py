"""Why bytes are no message: the byte at which they stop to be one, and the field that it is in.

The runtime says only that they are not. This walk reads them a second time, for bad records only.
"""

from __future__ import annotations

from typing import Any

from forebay.formats.protobuf_plan import ProtobufPlan
from forebay.formats.protobuf_wire import inner_fields
from forebay.formats.refusal import RefusedError, malformed

MAX_DEPTH = 100
"""Messages and groups inside of each other; the runtime's limit, and that of protobuf's other readers."""

MAX_STEPS = 100_000
"""Numbers that the walk reads before it gives up: a payload may be 50 MB, and this is Python."""

_VARINT, _EIGHT, _BYTES, _GROUP, _END, _FOUR = range(6)
_PACKABLE = {"int64": _VARINT, "uint64": _VARINT, "sint64": _VARINT, "fixed64": _EIGHT, "sfixed64": _EIGHT}
_PACKABLE |= {"double": _EIGHT, "fixed32": _FOUR, "sfixed32": _FOUR, "float": _FOUR}


def explain(plan: ProtobufPlan, payload: bytes) -> RefusedError:
    """The refusal of a payload that the runtime does not parse."""
    try:
        _Walk(payload).message(plan, 0, len(payload), 0, None)
    except RefusedError as refused:
        return refused
    return malformed("not a Protobuf message")


class _Walk:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._steps = 0

    def message(
        self, plan: ProtobufPlan, at: int, end: int, depth: int, group: int | None, known: bool = True
    ) -> int:
        """From `at` to `end`, or to the end of the group of this number. Returns where it ends.

        In a group that is not `known` the runtime does not mind a field number 0.
        """
        if depth > MAX_DEPTH:
            raise _fault(f"messages inside of each other, more than {MAX_DEPTH} levels", at)
        fields = {node["number"]: node for node in plan}
        while at < end:
            start = at
            tag, at = self._varint(at, end, 5, 2**32 - 1, "a field's tag")
            number, wire = tag >> 3, tag & 7
            if wire == _END and number == group:
                return at
            if (number == 0 and known) or wire > _FOUR or wire == _END:
                raise _fault(f"the tag {tag} (field {number}, wire type {wire})", start)
            at = self._field(fields.get(number), number, wire, at, end, depth)
        if group is not None:
            raise _fault("the bytes end inside of a group", at)
        return at

    def _field(
        self, node: dict[str, Any] | None, number: int, wire: int, at: int, end: int, depth: int
    ) -> int:
        try:
            match wire:
                case 0:
                    return self._varint(at, end, 10, None, "a number")[1]
                case 1 | 5:
                    return self._take(at, end, 8 if wire == _EIGHT else 4)
                case 3:
                    known = node is not None and node["wire"] == "group"
                    inner = inner_fields(node) if known and node is not None else []
                    return self.message(inner, at, end, depth + 1, number, known)
            length, at = self._varint(at, end, 5, 2**31 - 1, "a length")
            stop = self._take(at, end, length)
            if node is not None and node["wire"] == "message":
                self.message(inner_fields(node), at, stop, depth + 1, None)
            elif node is not None and node.get("repeated") and node["wire"] in _PACKABLE:
                self._packed(_PACKABLE[node["wire"]], at, stop)
            return stop
        except RefusedError as refused:
            if node is not None:
                refused.enter(f".{node['name']}")
            raise

    def _packed(self, wire: int, at: int, stop: int) -> None:
        while at < stop:
            if wire == _VARINT:
                at = self._varint(at, stop, 10, None, "a number")[1]
            else:
                at = self._take(at, stop, 8 if wire == _EIGHT else 4)

    def _varint(self, at: int, end: int, longest: int, most: int | None, what: str) -> tuple[int, int]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise malformed(f"not a Protobuf message, somewhere after byte {at}")
        value = 0
        for place in range(longest):
            if at + place >= end:
                raise _fault(f"the bytes end inside of {what}", at + place)
            byte = self._payload[at + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if most is not None and value > most:
                    raise _fault(f"{what} of {value}", at)
                return value, at + place + 1
        raise _fault(f"{what} of more than {longest} bytes", at)

    def _take(self, at: int, end: int, length: int) -> int:
        if length > end - at:
            raise _fault(f"{length} bytes are announced, and {end - at} are left", at)
        return at + length


def _fault(reason: str, at: int) -> RefusedError:
    return malformed(f"not a Protobuf message: {reason}, at byte {at}")
