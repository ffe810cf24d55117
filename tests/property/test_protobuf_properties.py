"""The plain Protobuf decoder against random schemas, messages by protobuf's runtime, and damage."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.avro_cases import alike
from tests.property.protobuf_cases import Case, damage, sort_maps, tables
from tests.property.test_avro_properties import check_complete

from forebay.formats import RefusalKind, decoder


@given(tables(), st.data())
def test_what_the_runtime_wrote_is_what_is_read(case: Case, data: st.DataObject) -> None:
    pairs: list[tuple[Any, Any]] = data.draw(st.lists(case.kind.good, max_size=3))
    payloads = [case.write(pair[0]) for pair in pairs]
    decoded = decoder("protobuf", case.columns, case.options).decode(payloads)
    assert decoded.bad == []
    assert alike(sort_maps(decoded.batch.to_pylist()), sort_maps([pair[1] for pair in pairs]))
    decoded.batch.validate(full=True)


@given(tables(), st.data())
def test_a_message_is_never_malformed_whatever_the_columns_make_of_it(
    case: Case, data: st.DataObject
) -> None:
    payloads = [case.write(values) for values in data.draw(st.lists(case.kind.loose, max_size=3))]
    decoded = decoder("protobuf", case.columns, case.options).decode(payloads)
    check_complete(decoded, len(payloads))
    assert {record.kind for record in decoded.bad} <= {RefusalKind.TYPE_CONVERSION}


@given(tables(), st.data())
def test_damage_never_raises_and_always_has_a_kind(case: Case, data: st.DataObject) -> None:
    payloads = [case.write(values) for values in data.draw(st.lists(case.kind.loose, max_size=3))]
    damaged = [data.draw(damage(payload)) for payload in payloads]
    damaged += data.draw(st.lists(st.binary(max_size=20), max_size=2))
    check_complete(decoder("protobuf", case.columns, case.options).decode(damaged), len(damaged))


@given(tables(), st.data())
def test_two_messages_in_a_row_are_their_merge(case: Case, data: st.DataObject) -> None:
    """By the specification; whichever way the fields are interleaved, the last scalar counts."""
    first, second = (case.write(data.draw(case.kind.good)[0]) for _ in range(2))
    made = decoder("protobuf", case.columns, case.options)
    both = made.decode([first + second, first + second])
    check_complete(both, 2)
    assert both.good in (None, [])
    if both.good is None:
        one, other = both.batch.to_pylist()
        assert alike(one, other)
