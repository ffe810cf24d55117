"""A change log adds up to the database's table, and the plain and the native decoder agree on every event."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.property.change_logs import Database, databases, multiset
from tests.property.test_formats_properties import GARBAGE, SCHEMA_AND_ROWS, check_complete, damage, dumps
from tests.property.test_native_decoders import LOOSE, SLOW, check_agreement

from forebay.formats import decoder

TABLE = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("city", StringType()),
        StructField("amount", LongType()),
        StructField("name", StringType()),
    ]
)
NAMES = TABLE.fieldNames()


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


@settings(max_examples=150, suppress_health_check=SLOW, deadline=None)
@given(SCHEMA_AND_ROWS, st.booleans(), st.data())
def test_both_read_the_same_changes(
    drawn: tuple[StructType, list[Any]], wrapped: bool, data: st.DataObject
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


@settings(max_examples=150, suppress_health_check=SLOW, deadline=None)
@given(st.lists(st.one_of(EVENTS, EVENTS.map(lambda event: {"payload": event, "schema": 1})), max_size=6))
def test_both_refuse_the_same_events(events: list[dict[str, Any]]) -> None:
    schema = StructType([StructField("a", LongType(), nullable=False), StructField("b", StringType())])
    check_agreement("debezium-json", schema, [dumps(event).encode() for event in events])


def test_both_refuse_the_same_tricky_events() -> None:
    good = '{"a": 1, "b": "x"}'
    texts = [
        f'{{"op": "c", "after": {good}}}', f'{{"op": "\\u0063", "after": {good}}}', f'{{"op": "c", "op": "c", "after": {good}}}',
        f'{{"op": "u", "before": {good}, "after": {good}, "before": 1}}', f'{{"op": "u", "after": {good}}}',
        f'{{"op": "u", "before": {good}}}', f'{{"op": "d", "before": {good}, "after": 7}}', '{"op": "t"}', '{"op": null}',
        '{"op": "c", "after": {"a": 1, "b": "__debezium_unavailable_value"}}', '{"op": "c", "after": {"a": 1, "a": 2}}',
        f'{{"op": "c", "after": {good}, "ts_ms": 9223372036854775808}}', f'{{"op": "c", "after": {good}, "ts_ms": 1.0}}',
        f'{{"op": "c", "after": {good}, "ts_ms": "x"}}', '{"payload": null}', '{"payload": null, "op": "c"}', '{"payload": 1}',
        f'{{"payload": {{"op": "c", "after": {good}}}, "payload": 1}}', f'{{"payload": {{"op": "c", "after": {good}}}}} x',
        f'{{"payload": {{"payload": {{"op": "c", "after": {good}}}}}}}', f' \t{{ "after" : {good} , "op" : "r" }} ',
        '{"op": "c", "after": ' + '{"x": ' * 254 + "1" + "}" * 254 + "}", '{"op": "c", "after": {"a": 1, "x": ' + "[" * 254 + "]" * 254 + "}}",
        '{"op": "c", "after": {"a": 1, "x": ' + "[" * 255 + "]" * 255 + "}}",
    ]  # fmt: skip
    schema = StructType([StructField("a", LongType(), nullable=False), StructField("b", StringType())])
    check_agreement("debezium-json", schema, [text.encode() for text in texts])
