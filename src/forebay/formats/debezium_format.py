"""FORMAT debezium-json: one change of a database's row a message, as Debezium writes it.

A create or a snapshot's read adds a row (`_weight` 1), a delete takes one back (-1), and an update does both:
the row as it was, then the row as it is. So the sum of the weights of equal rows is how often the database
holds that row, whatever the order in which changes of different rows arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.arrow_batches import decode_all, decode_each, readable
from forebay.formats.case_mismatch import CaseCheck
from forebay.formats.contract import NO_MORE, Decoded, RefusalKind
from forebay.formats.debezium_types import Described
from forebay.formats.json_text import parse_exact, parse_fast
from forebay.formats.refusal import RefusedError, check_present, describe, malformed, mismatch
from forebay.formats.scalars import Convert, scalar
from forebay.formats.values import Ambiguous, fields_converter, needs_digits

WEIGHT = "_weight"
CHANGE = pa.schema(
    [
        pa.field("_op", types.STRING, nullable=False),
        pa.field("_ts_ms", types.BIGINT, nullable=True),
        pa.field(WEIGHT, types.INT, nullable=False),
    ]
)
"""The columns that every row of a change log has behind its own."""

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes in place of a large value that the database did not log."""

_NAMES = frozenset({"payload", "before", "after", "op", "ts_ms"})
_IMAGES = {
    "c": (("after", 1),),
    "r": (("after", 1),),
    "u": (("before", -1), ("after", 1)),
    "d": (("before", -1),),
}
_POSTGRESQL = "; ALTER TABLE … REPLICA IDENTITY FULL makes PostgreSQL log it"
_MYSQL = "; binlog_row_image = FULL makes the server log it"
_ORACLE = "; ALTER TABLE … ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS makes Oracle log it"
_ROW_HINTS = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL, "oracle": _ORACLE}
_VALUE_HINTS = {"postgresql": _POSTGRESQL}
"""How to have a row as it was, or a large value, logged, by the `connector` of an event's `source`."""


class DebeziumDecoder:
    """The declared columns are the table's; `_op`, `_ts_ms` and `_weight` come behind them.

    With or without the envelope of `schema` and `payload`. A tombstone (null, or empty, as some producers write
    it) says nothing that the delete before it did not, so it is skipped. An update or a delete without the row as it was is refused, since nobody
    could take that row back; so is a truncate, which names no rows.
    """

    native_options = NO_MORE

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        taken = {field.name.lower() for field in schema} & set(CHANGE.names)
        if taken:
            raise UnsupportedSqlError(
                f"the column '{min(taken)}' is one that FORMAT debezium-json adds", remedy="rename the column"
            )
        self.schema = readable(pa.schema([*schema, *CHANGE]))
        self._made_from = (schema, dict(options))
        self._columns = _Columns(schema)
        self._case = CaseCheck(schema)
        self._mismatched = False  # of the last change
        self._names = schema.names
        self._parse = parse_exact if needs_digits(schema) else parse_fast

    def __reduce__(self) -> tuple[Any, ...]:
        return DebeziumDecoder, self._made_from

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_all(values, self.schema, self._rows, lambda: self._mismatched)

    def _rows(self, payload: bytes | None) -> list[list[Any]]:
        if not payload:
            return []
        event, schema = _unwrapped(self._parse(payload))
        if event is None:
            return []
        op, stamp = _op(event), _stamp(event)
        columns = self._columns.described(schema, lambda: Described(schema).row)
        images = self._images(event, op)
        rows = [[*self._image(columns, event, op, name), op, stamp, weight] for name, weight in images]
        self._mismatched = any(
            self._case.in_row(event[name], row) for (name, _), row in zip(images, rows, strict=True)
        )
        return rows

    def _images(self, event: dict[str, Any], op: str) -> Sequence[tuple[str, int]]:
        """Which rows the event has to hold, and what each of them weighs."""
        return _IMAGES[op]

    def _image(self, columns: Convert, event: dict[str, Any], op: str, name: str) -> list[Any]:
        found = event.get(name)
        if found is None:
            how = "null" if name in event else "missing"
            needed = _hint(_ROW_HINTS, event) if name == "before" else ""
            raise _within(name, mismatch(f"op '{op}' needs the row, but it is {how}{needed}"))
        if not isinstance(found, dict):
            raise _within(name, mismatch(f"expected an object, found {describe(found)}"))
        try:
            row: list[Any] = columns(found)
            for column, value in zip(self._names, row, strict=True):
                if value in (UNAVAILABLE, UNAVAILABLE.encode()):
                    reason = f"the value was not logged{_hint(_VALUE_HINTS, event)}"
                    raise _within(column, RefusedError(RefusalKind.TYPE_CONVERSION, reason))
        except RefusedError as refused:
            raise _within(name, refused) from None
        return row


class ChangeDecoder(DebeziumDecoder):
    """For those who look at each change by itself and take no row back: of an update the row as it is will do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ChangeDecoder, self._made_from

    def _images(self, event: dict[str, Any], op: str) -> Sequence[tuple[str, int]]:
        return _IMAGES["c"] if op == "u" and event.get("before") is None else _IMAGES[op]


class DebeziumKeyDecoder:
    """A change's key: a JSON object, with or without the envelope of `schema` and `payload`."""

    native_options = NO_MORE

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self.schema = readable(schema)
        self._made_from = (schema, dict(options))
        self._columns = _Columns(schema)
        self._case = CaseCheck(schema)
        self._mismatched = False  # of the last key
        self._parse = parse_exact if needs_digits(schema) else parse_fast

    def __reduce__(self) -> tuple[Any, ...]:
        return DebeziumKeyDecoder, self._made_from

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_each(values, self.schema, self._record, lambda: self._mismatched)

    def _record(self, payload: bytes | None) -> list[Any]:
        check_present(payload)
        assert payload is not None
        found, schema = _object(self._parse(payload)), None
        if found.keys() == {"schema", "payload"}:
            found, schema = _object(found["payload"], "payload"), found["schema"]
        row: list[Any] = self._columns.described(schema, lambda: Described(schema))(found)
        self._mismatched = self._case.in_row(found, row)
        return row


class _Columns:
    """The conversion of a row. Records of a topic mostly have one schema, so the last one's is kept."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: Any = None
        self._convert = fields_converter(schema)

    def described(self, schema: Any, row: Callable[[], Described]) -> Convert:
        if schema != self._known:
            self._known, self._convert = schema, fields_converter(self._schema, row())
        return self._convert


def _unwrapped(value: Any) -> tuple[dict[str, Any] | None, Any]:
    """The event without its envelope, None for one around nothing, which is a tombstone; and its schema."""
    event = _object(value)
    _check_unique(event)
    if "payload" not in event or "op" in event:
        return event, None
    if event["payload"] is None:
        return None, None
    schema = event.get("schema")
    event = _object(event["payload"], "payload")
    _check_unique(event)
    return event, schema


def _object(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    refused = mismatch(f"expected an object{'' if name else ' at the top level'}, found {describe(value)}")
    raise _within(name, refused) if name else refused


def _check_unique(event: dict[str, Any]) -> None:
    if type(event) is Ambiguous and (repeated := event.repeated & _NAMES):
        raise malformed(f"the field {min(repeated)!r} occurs more than once")


def _op(event: dict[str, Any]) -> str:
    op = event.get("op")
    if op is None:
        raise _within("op", mismatch("missing: this is no change event; FORMAT json reads rows as they are"))
    if op == "t":
        raise _within("op", RefusedError(RefusalKind.OTHER, "a truncate does not say which rows are gone; create the "
                                         "source anew, from a snapshot after it"))  # fmt: skip
    if not isinstance(op, str) or op not in _IMAGES:
        raise _within("op", mismatch(f"expected c, r, u or d, found {describe(op)}"))
    return op


def _hint(hints: Mapping[str, str], event: dict[str, Any]) -> str:
    """What to tell the database that the event is from; nothing where that is not known."""
    source = event.get("source")
    connector = source.get("connector") if isinstance(source, dict) else None
    return hints.get(connector, "") if isinstance(connector, str) else ""


def _stamp(event: dict[str, Any]) -> int | None:
    found = event.get("ts_ms")
    if found is None:
        return None
    try:
        stamp: int = _LONG(found)
    except RefusedError as refused:
        raise _within("ts_ms", refused) from None
    return stamp


def _within(step: str, refused: RefusedError) -> RefusedError:
    refused.enter(f".{step}")
    return refused


_LONG = scalar(types.BIGINT)
