"""Repairs that compute, and values that are no text: edited as JSON, written in the record's own schema."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from made import a_letter

from forebay import column_types as types
from forebay.deadletter.edits import Edits
from forebay.deadletter.masked import LetterMask
from forebay.deadletter.repair import RepairError
from forebay.deadletter.replacing import Replacement
from forebay.errors import OptionValueError
from forebay.formats.refusal import RefusedError
from forebay.hiding import Mask
from forebay.kafka.json_payloads import JsonPayloads
from forebay.kafka.options import KAFKA

COLUMNS = pa.schema(
    [
        pa.field("price", types.DOUBLE),
        pa.field("paid", types.BOOLEAN),
        pa.field("zip", types.STRING),
        pa.field("items", pa.list_(pa.struct([pa.field("cents", types.BIGINT)]))),
    ]
)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "code", "type": ["string", "long"]},
    ],
}
ROW: dict[str, Any] = {
    "id": 1,
    "price": Decimal("88.44"),
    "note": "x",
    "at": datetime(2026, 1, 15, 10, tzinfo=UTC),
    "code": 7,
}


def replaced(record: str, *wanted: Replacement, patch: str | None = None) -> Any:
    made = Edits(None, COLUMNS).repair(patch, wanted)(a_letter(record.encode()))
    return None if made is None else json.loads(made)


def order(**changed: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), ROW | changed)
    return out.getvalue()


@pytest.fixture
def orders() -> JsonPayloads:
    given = {"bootstrap.servers": "localhost:1", "topic": "t", "group.id": "g", "format": "avro"}
    return JsonPayloads(KAFKA.bind({**given, "avro.schema": json.dumps(ORDER)}))


@pytest.mark.parametrize(
    ("record", "wanted", "expected"),
    [
        ('{"price": "58.65 EUR"}', Replacement("price", " EUR$"), {"price": 58.65}),
        ('{"price": "1.234,50"}', Replacement("price", r"(\d)\.(\d+),(\d+)", r"\1\2.\3"), {"price": 1234.50}),
        ('{"price": 5865}', Replacement("price", r"(\d\d)$", r".\1"), {"price": 58.65}),
        ('{"zip": "D-01099"}', Replacement("zip", "^D-"), {"zip": "01099"}),
        ('{"zip": "D-10999"}', Replacement("zip", "^D-"), {"zip": "10999"}),
        ('{"paid": "yes"}', Replacement("paid", "^yes$", "true"), {"paid": True}),
        (
            '{"items": [{"cents": "1c"}, {"cents": "2c"}]}',
            Replacement("items[*].cents", "c"),
            {"items": [{"cents": 1}, {"cents": 2}]},
        ),
        (
            '{"items": [{"cents": "1c"}, {"cents": "2c"}]}',
            Replacement("items[1].cents", "c"),
            {"items": [{"cents": "1c"}, {"cents": 2}]},
        ),
    ],
)
def test_a_replacement_gives_what_the_column_takes(record: str, wanted: Replacement, expected: Any) -> None:
    found = replaced(record, wanted)
    assert found == expected
    assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize("record", ['{"price": "free"}', '{"price": null}', '{"other": " EUR"}', "[1]"])
def test_a_letter_that_no_replacement_changes_stays_open(record: str) -> None:
    assert replaced(record, Replacement("price", " EUR$")) is None


def test_a_patch_comes_after_the_replacements() -> None:
    wanted = Replacement("price", " EUR$")
    assert replaced('{"price": "2 EUR"}', wanted, patch='{"currency": "EUR"}') == {
        "price": 2,
        "currency": "EUR",
    }


@pytest.mark.parametrize(
    "wanted", [Replacement("price", "("), Replacement("price", "a", r"\3"), Replacement("a..b", "x")]
)
def test_a_wrong_pattern_or_path_is_refused_before_anything_is_sent(wanted: Replacement) -> None:
    with pytest.raises(OptionValueError):
        Edits(None, COLUMNS).repair(None, [wanted])


def test_a_replacement_is_written_with_any_separator() -> None:
    assert Replacement.parse("price/ EUR$/") == Replacement("price", " EUR$", "")
    assert Replacement.parse(r"a.b[*]|(\d)/(\d)|\1.\2|") == Replacement("a.b[*]", r"(\d)/(\d)", r"\1.\2")
    for wrong in ("price", "price/x", "/x/y", "price//y", "a/b/c/d"):
        with pytest.raises(OptionValueError, match="is no replacement"):
            Replacement.parse(wrong)


def test_avro_is_edited_as_json_with_times_decimals_and_branches_that_a_person_can_read(
    orders: JsonPayloads,
) -> None:
    before = order()
    shown = json.loads(orders.text(before))
    assert shown == {
        "id": 1,
        "price": 88.44,
        "note": "x",
        "at": "2026-01-15T10:00:00.000Z",
        "code": {"long": 7},
    }
    edited = json.dumps(shown | {"price": 1.5, "at": "2026-01-15T11:00:00.000Z", "code": "text"})
    expected = order(price=Decimal("1.5"), at=datetime(2026, 1, 15, 11, tzinfo=UTC), code="text")
    assert orders.payload(edited, before) == expected
    del shown["note"]
    assert orders.payload(json.dumps(shown), before) == order(note=None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"price": 1.234}, "price: expected a decimal with 2 digits behind the point"),
        ({"price": "1.5 EUR\u20ac"}, "price: expected bytes"),
        ({"id": 1.5}, "id: expected long"),
        ({"id": 2**63}, "id: expected long"),
        ({"at": "tomorrow"}, "at: expected long"),
        ({"nota": "x"}, "nota: the schema has no such field"),
        ({"code": {"double": 1}}, "code: expected a union"),
    ],
)
def test_json_that_does_not_fit_names_the_field(orders: JsonPayloads, changed: Any, said: str) -> None:
    edited = json.loads(orders.text(order())) | changed
    with pytest.raises(OptionValueError) as refused:
        orders.payload(json.dumps(edited), order())
    assert said in refused.value.message


def test_bytes_that_are_no_record_say_where_and_can_be_replaced(orders: JsonPayloads) -> None:
    with pytest.raises(RefusedError, match="at byte 4"):
        orders.text(order()[:4])
    assert orders.payload(orders.text(order()), order()[:4]) == order()
    letter = a_letter(order()[:4])
    assert Edits(orders).value(letter, order().hex(" ").encode(), "hex") == order()
    with pytest.raises(RepairError, match="cannot be decoded"):
        Edits(orders).repair('{"id": 2}')(letter)


def test_patches_and_replacements_keep_the_schema_of_the_record(orders: JsonPayloads) -> None:
    patched = Edits(orders).repair('{"id": 2}', [Replacement("note", "x", "y")])(a_letter(order()))
    assert patched == order(id=2, note="y")
    with pytest.raises(RepairError, match="id: expected long"):
        Edits(orders).repair('{"id": "two"}')(a_letter(order()))


@pytest.mark.parametrize(
    "field", ["email", "EMAIL", "customer.card", "customer.card.number", "customer[*]", "customer['card']"]
)
def test_no_pattern_can_be_matched_with_what_is_masked(field: str) -> None:
    edits = Edits(None, COLUMNS, LetterMask(Mask(("email", "customer.card"))))
    with pytest.raises(OptionValueError, match="may be masked"):
        edits.repair(None, [Replacement(field, "^a")])
    edits.repair(None, [Replacement("customer.name", "^a")])
