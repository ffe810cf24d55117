"""A change log adds up to the database's table, and the plain and the native decoder agree on every event."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.change_logs import Database, databases, multiset
from tests.property.test_formats_properties import GARBAGE, SCHEMA_AND_ROWS, check_complete, damage, dumps
from tests.property.test_native_decoders import LOOSE, check_agreement

from forebay import column_types as types
from forebay.formats import decoder

TABLE = pa.schema(
    [
        pa.field("id", types.BIGINT, nullable=False),
        pa.field("city", types.STRING),
        pa.field("amount", types.BIGINT),
        pa.field("name", types.STRING),
    ]
)
NAMES = TABLE.names


@settings(deadline=None)
@given(databases(), st.integers(1, 3), st.booleans(), st.randoms())
def test_the_weights_add_up_to_the_table_whatever_the_order_of_the_partitions(
    database: Database, partitions: int, wrapped: bool, random: Any
) -> None:
    made = decoder("debezium-json", TABLE, {})
    total: Counter[tuple[Any, ...]] = Counter()
    left = [[value for _, value in part] for part in database.messages(partitions, wrapped)]
    while any(left):
        part = random.choice([part for part in left if part])
        taken = random.randint(1, len(part))
        decoded = made.decode(part[:taken])
        del part[:taken]
        check_complete(decoded, taken)
        assert decoded.bad == []
        for row in decoded.batch.to_pylist():
            total[tuple(row[name] for name in NAMES)] += row["_weight"]
        assert min(total.values(), default=0) >= 0
    assert +total == multiset(database.rows.values(), *NAMES)


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "op": st.one_of(st.sampled_from(["c", "r", "u", "d", "t", "m"]), LOOSE),
        "before": LOOSE,
        "after": LOOSE,
        "ts_ms": st.one_of(st.integers(), LOOSE),
        "payload": LOOSE,
        "source": LOOSE,
    },
)


@given(SCHEMA_AND_ROWS, st.booleans(), st.data())
def test_both_read_the_same_changes(
    drawn: tuple[pa.Schema, list[Any]], wrapped: bool, data: st.DataObject
) -> None:
    schema, pairs = drawn
    images = st.one_of(st.none(), st.sampled_from([written for written, _ in pairs]) if pairs else st.none())
    ops = st.sampled_from("crud")
    events = [
        {"before": data.draw(images), "after": data.draw(images), "op": data.draw(ops), "ts_ms": 1}
        for _ in range(4)
    ]
    payloads = [dumps({"schema": {}, "payload": event} if wrapped else event).encode() for event in events]
    damaged = [data.draw(damage(payload)) for payload in payloads]
    check_agreement("debezium-json", schema, [*payloads, *GARBAGE, *damaged, None, *payloads])


@given(st.lists(st.one_of(EVENTS, EVENTS.map(lambda event: {"payload": event, "schema": 1})), max_size=6))
def test_both_refuse_the_same_events(events: list[dict[str, Any]]) -> None:
    schema = pa.schema([pa.field("a", types.BIGINT, nullable=False), pa.field("b", types.STRING)])
    check_agreement("debezium-json", schema, [dumps(event).encode() for event in events])


def test_both_refuse_the_same_tricky_events() -> None:
    good = '{"a": 1, "b": "x"}'
    texts = [
        f'{{"op": "c", "after": {good}}}', f'{{"op": "\\u0063", "after": {good}}}', f'{{"op": "c", "op": "c", "after": {good}}}',
        f'{{"op": "u", "before": {good}, "after": {good}, "before": 1}}', f'{{"op": "u", "after": {good}}}',
        f'{{"op": "u", "before": {good}}}', f'{{"op": "d", "before": {good}, "after": 7}}', '{"op": "t"}', '{"op": null}',
        '{"op": "c", "after": {"a": 1, "b": "__debezium_unavailable_value"}}', '{"op": "c", "after": {"a": 1, "a": 2}}',
        f'{{"op": "c", "after": {good}, "ts_ms": 9223372036854775808}}', f'{{"op": "c", "after": {good}, "ts_ms": 1.0}}',
        f'{{"op": "c", "after": {good}, "ts_ms": "x"}}', '{"payload": null}', '{"payload": null, "op": "c"}', '{"payload": 1}', '', ' ', '""',
        f'{{"payload": {{"op": "c", "after": {good}}}, "payload": 1}}', f'{{"payload": {{"op": "c", "after": {good}}}}} x',
        f'{{"payload": {{"payload": {{"op": "c", "after": {good}}}}}}}', f' \t{{ "after" : {good} , "op" : "r" }} ',
        '{"op": "c", "after": ' + '{"x": ' * 254 + "1" + "}" * 254 + "}", '{"op": "c", "after": {"a": 1, "x": ' + "[" * 254 + "]" * 254 + "}}",
        '{"op": "c", "after": {"a": 1, "x": ' + "[" * 255 + "]" * 255 + "}}",
    ]  # fmt: skip
    schema = pa.schema([pa.field("a", types.BIGINT, nullable=False), pa.field("b", types.STRING)])
    check_agreement("debezium-json", schema, [text.encode() for text in texts])


NAMED = [
    "io.debezium.time.Date",
    "io.debezium.time.Timestamp",
    "io.debezium.time.MicroTimestamp",
    "io.debezium.time.NanoTimestamp",
    "io.debezium.time.ZonedTimestamp",
    "io.debezium.time.MicroTime",
    "org.apache.kafka.connect.data.Date",
    "org.apache.kafka.connect.data.Timestamp",
    "org.apache.kafka.connect.data.Time",
    "org.apache.kafka.connect.data.Decimal",
    "somebody.Else",
]
COLUMNS = [
    types.DATE,
    types.TIMESTAMP,
    types.TIMESTAMP_NTZ,
    types.BIGINT,
    types.STRING,
    pa.decimal128(9, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
]
DESCRIBED = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from(NAMED)},
        optional={
            "parameters": st.one_of(
                st.fixed_dictionaries({"scale": st.sampled_from(["0", "2", "5", "38", "45", "-1", "x", 2])}),
                LOOSE,
            )
        },
    ),
    LOOSE,
)
WRITTEN = st.one_of(
    st.sampled_from([0, -719162, -719163, 2932896, 2932897, 2**31, -62135596800000000, 253402300799999999]),
    st.integers(-(2**64), 2**64),
    st.integers(-(10**40), 10**40).map(lambda n: b64encode(n.to_bytes(18, "big", signed=True)).decode()),
    st.integers(-(2**31), 2**31).map(lambda n: b64encode(n.to_bytes(5, "big", signed=True)).decode()),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01", "", "AA=", "1234", "12.50"]),
    LOOSE,
)


@given(st.data())
def test_both_read_what_the_envelope_says_of_times_and_decimals(data: st.DataObject) -> None:
    """Also inside of arrays, maps and structs, and where one event's schema is not the next one's."""
    kind = data.draw(st.sampled_from(COLUMNS))
    column, nest, wrap = data.draw(
        st.sampled_from(
            [
                (kind, lambda described: described, lambda value: value),
                (types.array_of(kind), lambda described: {"items": described}, lambda value: [value]),
                (
                    types.map_of(types.STRING, kind),
                    lambda described: {"values": described},
                    lambda value: {"k": value},
                ),
                (
                    pa.struct([pa.field("b", kind)]),
                    lambda described: {"fields": [_field("b", described)]},
                    lambda value: {"b": value},
                ),
            ]
        )
    )
    schema = pa.schema([pa.field("a", column), pa.field("id", types.BIGINT)])
    payloads = []
    for _ in range(4):
        described, image = data.draw(DESCRIBED), data.draw(st.sampled_from(["after", "before"]))
        event = {"op": "c", "after": {"a": wrap(data.draw(WRITTEN)), "id": 1}}
        row = {"type": "struct", "fields": [_field("a", nest(described)), 7, _field("id", {})]}
        envelope = data.draw(
            st.sampled_from([{"fields": [{"field": "op"}, _field(image, row)]}, row, None, 1])
        )
        payloads.append(dumps({"schema": envelope, "payload": event}).encode())
    check_agreement("debezium-json", schema, [*payloads, dumps({"op": "c", "after": {"a": None}}).encode()])


def test_both_read_minus_zero_the_same_in_every_unit() -> None:
    for kind in [*COLUMNS, types.FLOAT, types.DOUBLE]:
        schema = pa.schema([pa.field("a", kind)])
        payloads = []
        for name in ["", *NAMED]:
            row = {"fields": [{"field": "a", "name": name, "parameters": {"scale": "0"}}], "field": "after"}
            envelope = json.dumps({"schema": {"fields": [row]}, "payload": {"op": "c", "after": {"a": 7}}})
            payloads.append(envelope.replace('"a": 7', '"a": -0').encode())
        check_agreement("debezium-json", schema, payloads)


def _field(name: str, described: Any) -> Any:
    return described | {"field": name} if isinstance(described, dict) else described
