"""FORMAT debezium-json: each change is the rows it takes back and the rows it adds."""

from __future__ import annotations

import base64
import json
import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats import Decoded, RefusalKind, decoder, key_decoder
from forebay.formats.debezium_format import ChangeDecoder

USERS = pa.schema([pa.field("id", types.BIGINT, nullable=False), pa.field("name", types.STRING)])
ALICE, BOB = {"id": 1, "name": "Alice"}, {"id": 1, "name": "Bob"}


def event(op: Any, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"db": "shop"}, "op": op, "ts_ms": 7} | more


def read(*events: Any, schema: pa.Schema = USERS) -> Decoded:
    payloads = [
        found if found is None or isinstance(found, bytes) else json.dumps(found).encode() for found in events
    ]
    return decoder("debezium-json", schema, {}).decode(payloads)


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    assert decoded.bad == []
    return [tuple(row.values()) for row in decoded.batch.to_pylist()]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (event("c", None, ALICE), [(1, "Alice", "c", 7, 1)]),
        (event("r", None, ALICE), [(1, "Alice", "r", 7, 1)]),
        (event("u", ALICE, BOB), [(1, "Alice", "u", 7, -1), (1, "Bob", "u", 7, 1)]),
        (event("d", ALICE, None), [(1, "Alice", "d", 7, -1)]),
    ],
    ids=["create", "read", "update", "delete"],
)
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in the schema envelope"])
def test_a_change_is_the_rows_it_takes_back_and_adds(
    change: dict[str, Any], expected: list[tuple[Any, ...]], wrapped: bool
) -> None:
    assert rows(read({"schema": {"type": "struct"}, "payload": change} if wrapped else change)) == expected


def test_who_takes_no_row_back_can_do_without_the_row_as_it_was() -> None:
    changes = pickle.loads(pickle.dumps(ChangeDecoder(USERS, {})))
    events = [event("u", None, BOB), event("u", ALICE, BOB), event("d", None), event("u", ALICE, None)]
    decoded = changes.decode([json.dumps(each).encode() for each in events])
    assert [row["_weight"] for row in decoded.batch.to_pylist()] == [1, -1, 1]
    assert decoded.good == [0, 1, 1]
    assert [bad.index for bad in decoded.bad] == [2, 3]


def test_the_rows_of_an_update_are_both_of_its_record() -> None:
    decoded = read(event("c", None, ALICE), event("u", ALICE, BOB), event("d", BOB, None))
    assert decoded.good == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "tombstone", [None, b"", {"schema": None, "payload": None}], ids=["null", "empty", "in the envelope"]
)
def test_a_tombstone_is_skipped(tombstone: Any) -> None:
    decoded = read(tombstone, event("d", ALICE))
    assert (decoded.skipped, decoded.good, decoded.bad) == ([0], [1], [])


def test_columns_may_be_fewer_than_the_table_s_and_ts_ms_may_be_missing() -> None:
    change = event("c", None, ALICE | {"email": "a@b"})
    del change["ts_ms"]
    assert rows(read(change)) == [(1, "Alice", "c", None, 1)]


def test_a_table_s_own_columns_may_be_named_like_parts_of_the_event() -> None:
    schema = pa.schema([pa.field("op", types.STRING), pa.field("payload", types.STRING)])
    assert rows(read(event("c", None, {"op": "x", "payload": "y"}), schema=schema)) == [("x", "y", "c", 7, 1)]


def test_decimals_keep_their_digits() -> None:
    schema = pa.schema([pa.field("price", pa.decimal128(20, 4))])
    found = rows(read(b'{"op": "c", "after": {"price": 1234567890123456.7891}}', schema=schema))
    assert found[0][0] == Decimal("1234567890123456.7891")


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (
            event("u", None, BOB, source={"connector": "postgresql"}),
            RefusalKind.SCHEMA_MISMATCH,
            "before: op 'u' needs the row, but it is null; ALTER TABLE",
        ),
        ({"op": "d"}, RefusalKind.SCHEMA_MISMATCH, "before: op 'd' needs the row, but it is missing"),
        (event("c"), RefusalKind.SCHEMA_MISMATCH, "after: op 'c' needs the row, but it is null"),
        (event("u", ALICE), RefusalKind.SCHEMA_MISMATCH, "after: "),
        (event("c", None, "{}"), RefusalKind.SCHEMA_MISMATCH, "after: expected an object, found string"),
        (event("t"), RefusalKind.OTHER, "op: a truncate"),
        (event("m"), RefusalKind.SCHEMA_MISMATCH, "op: expected c, r, u or d, found string 'm'"),
        (event(1), RefusalKind.SCHEMA_MISMATCH, "op: expected c, r, u or d, found number 1"),
        (ALICE, RefusalKind.SCHEMA_MISMATCH, "op: missing: this is no change event"),
        (event("c", None, ALICE, ts_ms="7"), RefusalKind.TYPE_CONVERSION, "ts_ms: expected BIGINT"),
        (event("c", None, {"id": "x"}), RefusalKind.TYPE_CONVERSION, "after.id: expected BIGINT"),
        (
            event("u", {"id": None}, BOB),
            RefusalKind.SCHEMA_MISMATCH,
            "before.id: NOT NULL, but the field is null",
        ),
        (event("u", ALICE, {"id": 2.5}), RefusalKind.TYPE_CONVERSION, "after.id: "),
        ({"payload": [1]}, RefusalKind.SCHEMA_MISMATCH, "payload: expected an object, found an array of 1"),
        ([1], RefusalKind.SCHEMA_MISMATCH, "expected an object at the top level"),
        (b" ", RefusalKind.MALFORMED_PAYLOAD, "not JSON"),
        (b"{", RefusalKind.MALFORMED_PAYLOAD, "not JSON"),
        (
            b'{"op": "c", "op": "d", "after": {"id": 1}}',
            RefusalKind.MALFORMED_PAYLOAD,
            "'op' occurs more than once",
        ),
        (
            b'{"op": "c", "after": {"id": 1, "id": 2}}',
            RefusalKind.MALFORMED_PAYLOAD,
            "'id' occurs more than once",
        ),
        (
            b'{"payload": {"op": "c", "after": {}, "after": {}}}',
            RefusalKind.MALFORMED_PAYLOAD,
            "'after' occurs",
        ),
    ],
)
def test_what_is_no_whole_change_is_refused_with_its_place_and_leaves_no_row(
    change: Any, kind: RefusalKind, said: str
) -> None:
    decoded = read(change, event("c", None, ALICE))
    assert decoded.good == [1]
    assert decoded.bad[0].kind is kind
    assert said in decoded.bad[0].message


def test_a_value_that_the_database_did_not_log_is_refused() -> None:
    """What stands in its place would be a wrong value, and could never be taken back."""
    schema = pa.schema([pa.field("a", types.STRING), pa.field("b", types.BINARY)])
    hidden = "__debezium_unavailable_value"
    for row in ({"a": hidden}, {"b": base64.b64encode(hidden.encode()).decode()}):
        change = event("u", {"a": "x"}, row, source={"connector": "postgresql"})
        refused = read(change, schema=schema).bad[0]
        assert refused.kind is RefusalKind.TYPE_CONVERSION
        assert refused.message.startswith(f"after.{next(iter(row))}: the value was not logged")
        assert "REPLICA IDENTITY FULL" in refused.message


POSTGRESQL = "REPLICA IDENTITY FULL"
ROW_HINTS = [
    ({"connector": "postgresql"}, POSTGRESQL),
    ({"connector": "mysql"}, "binlog_row_image"),
    ({"connector": "mariadb"}, "binlog_row_image"),
    ({"connector": "oracle"}, "SUPPLEMENTAL LOG DATA"),
    ({"connector": "sqlserver"}, None),
    ({"connector": ["postgresql"]}, None),
    ({"db": "shop"}, None),
    ("postgresql", None),
    (None, None),
]


@pytest.mark.parametrize(("source", "hint"), ROW_HINTS, ids=str)
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "in the schema envelope"])
@pytest.mark.parametrize("native", [False, True], ids=["reference", "native"])
def test_the_hint_is_one_for_the_database_that_the_change_is_from(
    source: Any, hint: str | None, wrapped: bool, native: bool
) -> None:
    """What PostgreSQL is to be told is of no use to anybody else."""
    hidden = {"id": 1, "name": "__debezium_unavailable_value"}
    changes = [event("u", None, BOB, source=source), event("c", None, hidden, source=source)]
    payloads = [json.dumps({"schema": {}, "payload": c} if wrapped else c).encode() for c in changes]
    without, unlogged = _messages(payloads, native)
    assert without.startswith("before: op 'u' needs the row, but it is null")
    assert without.endswith("is null") if hint is None else hint in without
    assert (POSTGRESQL in without, POSTGRESQL in unlogged) == (hint is POSTGRESQL, hint is POSTGRESQL)
    assert unlogged.startswith("after.name: the value was not logged")


def _messages(payloads: list[bytes], native: bool) -> list[str]:
    plain = decoder("debezium-json", USERS, {})
    if not native:
        return [bad.message for bad in plain.decode(payloads).bad]
    module = pytest.importorskip("forebay_native", reason="the native reader is not built (make setup)")
    return [bad.message for bad in module.Decoder("debezium-json", plain.schema, {}).decode(payloads).bad]


@pytest.mark.parametrize("name", ["_op", "_TS_MS", "_weight"])
def test_a_table_cannot_have_the_columns_that_the_format_adds(name: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=name.lower()):
        decoder("debezium-json", pa.schema([pa.field(name, types.BIGINT)]), {})


def test_a_change_s_key_is_read_with_and_without_the_envelope() -> None:
    made = key_decoder("debezium-json", pa.schema([pa.field("id", types.BIGINT)]), {})
    made = pickle.loads(pickle.dumps(made))
    decoded = made.decode(
        [b'{"id": 1}', b'{"schema": {}, "payload": {"id": 2}}', b'{"schema": {}, "payload": 3}']
    )
    assert decoded.batch.to_pylist() == [{"id": 1}, {"id": 2}]
    assert decoded.bad[0].message == "payload: expected an object, found number 3"


CONNECT, TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
MOMENT = datetime(2026, 1, 15, 10, 0, 0, 123456)
MICROS = 1_768_471_200_123_456


def enveloped(column: pa.DataType, name: str, value: Any, **parameters: str) -> Decoded:
    """One value, as a record with its schema has it."""
    field = {"type": "int64", "name": name, "field": "x", "parameters": parameters}
    row = {"type": "struct", "fields": [{"type": "int64", "field": "id"}, field]}
    schema = {"type": "struct", "fields": [row | {"field": image} for image in ("before", "after")]}
    table = pa.schema([pa.field("id", types.BIGINT), pa.field("x", column)])
    return read({"schema": schema, "payload": event("c", None, {"id": 1, "x": value})}, schema=table)


@pytest.mark.parametrize(
    ("column", "name", "value", "expected"),
    [
        (types.DATE, f"{TIME}Date", 20468, MOMENT.date()),
        (types.DATE, f"{CONNECT}Date", -1, date(1969, 12, 31)),
        (types.TIMESTAMP_NTZ, f"{TIME}Timestamp", MICROS // 1000, MOMENT.replace(microsecond=123000)),
        (types.TIMESTAMP_NTZ, f"{CONNECT}Timestamp", MICROS // 1000, MOMENT.replace(microsecond=123000)),
        (types.TIMESTAMP_NTZ, f"{TIME}MicroTimestamp", MICROS, MOMENT),
        (types.TIMESTAMP, f"{TIME}MicroTimestamp", MICROS, MOMENT.replace(tzinfo=UTC)),
        (types.TIMESTAMP_NTZ, f"{TIME}NanoTimestamp", MICROS * 1000 + 999, MOMENT),
        (types.TIMESTAMP_NTZ, f"{TIME}NanoTimestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (types.TIMESTAMP, f"{TIME}ZonedTimestamp", "2026-01-15T11:00:00.123456+01:00", MOMENT.replace(tzinfo=UTC)),
        (types.BIGINT, f"{TIME}MicroTimestamp", MICROS, MICROS),
        (types.BIGINT, f"{TIME}MicroTime", 7, 7),
        (types.BIGINT, f"{TIME}Date", 20468, 20468),
    ],
)  # fmt: skip
def test_times_are_what_the_envelope_says_they_are(
    column: pa.DataType, name: str, value: Any, expected: Any
) -> None:
    assert rows(enveloped(column, name, value))[0][1] == expected


@pytest.mark.parametrize(
    ("unscaled", "scale", "expected"),
    [(12345, "2", "123.45"), (-1, "2", "-0.01"), (123450, "3", "123.45"), (7, "0", "7.00"), (0, "9", "0.00")],
)
def test_decimals_are_read_from_their_bytes_and_their_scale(unscaled: int, scale: str, expected: str) -> None:
    written = base64.b64encode(unscaled.to_bytes(9, "big", signed=True)).decode()
    found = rows(enveloped(pa.decimal128(9, 2), f"{CONNECT}Decimal", written, scale=scale))
    assert str(found[0][1]) == expected
    # The other modes of `decimal.handling.mode` need no word.
    assert rows(enveloped(pa.decimal128(9, 2), "", "123.45"))[0][1] == Decimal("123.45")
    assert rows(enveloped(pa.decimal128(9, 2), "", 123.45))[0][1] == Decimal("123.45")


@pytest.mark.parametrize(
    ("column", "name", "value", "reason"),
    [
        (types.DATE, f"{TIME}Date", 2932897, "days since 1970-01-01"),
        (types.DATE, f"{TIME}Timestamp", 0, r"DATE \(YYYY-MM-DD\)"),
        (types.TIMESTAMP, f"{TIME}MicroTime", 1, "a time of day is not"),
        (types.TIMESTAMP, f"{TIME}Date", 1, "a date without a time is not"),
        (types.TIMESTAMP, f"{TIME}MicroTimestamp", 253402300800000000, "epoch microseconds"),
        (pa.decimal128(9, 2), f"{CONNECT}Decimal", "1234", "exact, no rounding"),  # a scale is not given
        (types.array_of(types.TIMESTAMP), f"{TIME}MicroTimestamp", MICROS, "ARRAY"),
    ],
)
def test_a_number_that_means_something_else_is_refused(
    column: pa.DataType, name: str, value: Any, reason: str
) -> None:
    (bad,) = enveloped(column, name, value).bad
    assert bad.kind is RefusalKind.TYPE_CONVERSION
    assert re.search(reason, bad.message)
    assert bad.path == "after.x"


def test_the_key_of_a_change_has_its_own_schema() -> None:
    table = pa.schema([pa.field("day", types.DATE)])
    schema = {"type": "struct", "fields": [{"type": "int32", "name": f"{TIME}Date", "field": "day"}]}
    payload = json.dumps({"schema": schema, "payload": {"day": 20468}}).encode()
    found = key_decoder("debezium-json", table, {}).decode([payload, b'{"day": "2026-01-15"}'])
    assert found.batch.to_pylist() == [{"day": MOMENT.date()}] * 2
