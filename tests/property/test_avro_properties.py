"""The plain Avro decoder against random schemas, datums by fastavro, and damage."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.avro_cases import Case, alike, damage, options, tables, write

from forebay.formats import Decoded, RefusalKind, decoder

KINDS = {RefusalKind.MALFORMED_PAYLOAD, RefusalKind.SCHEMA_MISMATCH, RefusalKind.TYPE_CONVERSION}


def check_complete(decoded: Decoded, total: int) -> None:
    """Each payload is in the batch or among the bad, once; the batch is sound."""
    good = list(range(total)) if decoded.good is None else decoded.good
    assert sorted([*good, *(record.index for record in decoded.bad)]) == list(range(total))
    assert decoded.batch.num_rows == len(good)
    assert all(record.kind in KINDS and record.message for record in decoded.bad)
    decoded.batch.validate(full=True)


@given(tables(), st.data())
def test_what_fastavro_wrote_is_what_is_read(case: Case, data: st.DataObject) -> None:
    pairs: list[tuple[Any, Any]] = data.draw(st.lists(case.good, max_size=3))
    payloads = write(case, [pair[0] for pair in pairs])
    decoded = decoder("avro", case.columns, options(case)).decode(payloads)
    # A record of nothing but nulls takes no bytes, and no format takes an empty payload.
    assert [record.index for record in decoded.bad] == [
        i for i, payload in enumerate(payloads) if not payload
    ]
    kept = [pair[1] for pair, payload in zip(pairs, payloads, strict=True) if payload]
    assert alike(decoded.batch.to_pylist(), kept)
    decoded.batch.validate(full=True)


@given(tables(), st.data())
def test_a_datum_is_never_malformed_whatever_the_columns_make_of_it(case: Case, data: st.DataObject) -> None:
    payloads = [p for p in write(case, data.draw(st.lists(case.loose, max_size=3))) if p]
    decoded = decoder("avro", case.columns, options(case)).decode(payloads)
    check_complete(decoded, len(payloads))
    assert RefusalKind.MALFORMED_PAYLOAD not in {record.kind for record in decoded.bad}


@given(tables(), st.data())
def test_damage_never_raises_and_always_has_a_kind(case: Case, data: st.DataObject) -> None:
    payloads = write(case, data.draw(st.lists(case.loose, max_size=3)))
    damaged = [data.draw(damage(payload)) for payload in payloads]
    damaged += data.draw(st.lists(st.binary(max_size=20), max_size=2))
    check_complete(decoder("avro", case.columns, options(case)).decode(damaged), len(damaged))


@given(tables(), st.data())
def test_no_datum_is_the_beginning_of_another(case: Case, data: st.DataObject) -> None:
    """Every byte counts: a datum without its last byte, or with one more, is malformed."""
    (payload,) = write(case, [data.draw(case.good)[0]])
    cut = payload[: data.draw(st.integers(0, max(0, len(payload) - 1)))]
    more = payload + data.draw(st.binary(min_size=1, max_size=3))
    decoded = decoder("avro", case.columns, options(case)).decode([cut, more])
    assert {record.kind for record in decoded.bad} == {RefusalKind.MALFORMED_PAYLOAD}
    assert [record.index for record in decoded.bad] == [0, 1]
