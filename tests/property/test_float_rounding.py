"""A number becomes the FLOAT that is nearest to it as it was written: rounded once, and not to a double before."""

from __future__ import annotations

import json
import struct
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.protobuf_support import made as protobuf_decoder
from tests.protobuf_support import tag, varint

from forebay import column_types as types
from forebay.formats import Decoder, decoder
from forebay.formats.avro_default import zigzag
from forebay.native import native

COLUMN = pa.schema([pa.field("x", types.FLOAT, nullable=False)])
LAST = 0x7F7FFFFF  # the bits of the largest FLOAT
END = Fraction(2**128)


def nearest(number: Fraction, negative: bool) -> int | None:
    """The bits of the nearest FLOAT by its definition, the even one of two; None where that is infinite."""
    exponent = -126
    while number >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - 23)
    count, rest = divmod(number, step)
    count += rest * 2 > step or (rest * 2 == step and count % 2 == 1)
    if count * step >= END:
        return None
    found = float(count * step)  # at most 24 bits: exact
    return int(struct.unpack("<i", struct.pack("<f", -found if negative else found))[0])


def bits_read(format: str, made: Decoder, payload: bytes) -> list[int | None]:
    """The bits of the first column by each decoder; None where the record is refused."""
    decoded = made.decode([payload])
    found = [(decoded.batch, len(decoded.bad))]
    module = native()
    if module is not None:
        natively = module.Decoder(format, made.schema, dict(made.native_options)).decode([payload])
        found.append((pa.record_batch(natively.batch), len(natively.bad)))
    assert all(batch.num_rows + bad == 1 for batch, bad in found)
    return [None if bad else batch.column(0).view(pa.int32())[0].as_py() for batch, bad in found]


def value_of(place: int) -> Fraction:
    return END if place > LAST else Fraction(struct.unpack("<f", struct.pack("<I", place))[0])


def around_midpoints() -> st.SearchStrategy[Fraction]:
    """At, just below and just above the middle between two FLOATs: a double does not hold the difference."""
    places = st.one_of(st.integers(0, LAST), st.integers(0, 0x900000), st.just(LAST))
    away = st.one_of(st.just(Fraction(0)), st.integers(1, 60).map(lambda digits: Fraction(1, 10**digits)))

    def built(place: int, by: Fraction, sign: int) -> Fraction:
        low, high = value_of(place), value_of(place + 1)
        return (low + high) / 2 + (high - low) * by * sign

    return st.builds(built, places, away, st.sampled_from([-1, 1]))


def all_digits(number: Fraction) -> str:
    """Of a number whose denominator has no primes but 2 and 5."""
    places = 0
    while number.denominator != 1:
        number, places = number * 10, places + 1
    return f"{number.numerator}e-{places}" if places else str(number.numerator)


TEXTS = {
    "json": '{"x": %s}',
    "csv": "%s",
    "debezium-json": '{"op": "c", "after": {"x": %s}}',
}


@pytest.mark.parametrize("format", TEXTS)
@given(around_midpoints(), st.booleans())
@example(Fraction("1.00000005960464477539062500001"), False)
@example(Fraction("1.00000005960464477539062500001"), True)
@example(Fraction("3.4028235677973366e38"), False)  # nearer to the largest FLOAT than to infinity
@example(Fraction(2**128 - 2**103), False)
@example(Fraction(0), True)
@example(Fraction(1, 10**60), True)
def test_text_becomes_the_nearest_float(format: str, number: Fraction, negative: bool) -> None:
    text = ("-" if negative else "") + all_digits(number)
    payload = (TEXTS[format] % text).encode()
    found = bits_read(format, decoder(format, COLUMN, {}), payload)
    assert found == [nearest(number, negative)] * len(found)


def around_whole_midpoints() -> st.SearchStrategy[int]:
    """The same among the integers of 64 bits that a double cannot hold."""

    def built(place: int, by: int) -> int:
        middle = (value_of(place) + value_of(place + 1)) / 2
        return min(int(middle) + by, 2**63 - 1)

    first, last = (struct.unpack("<I", struct.pack("<f", float(2**power)))[0] for power in (53, 63))
    return st.builds(built, st.integers(first, last - 1), st.integers(-2, 2))


@given(around_whole_midpoints(), st.booleans())
@example(2**60 + 2**36 + 1, False)
def test_an_integer_becomes_the_nearest_float_in_every_format(size: int, negative: bool) -> None:
    number = -size if negative else size
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
    avro = decoder("avro", COLUMN, {"avro.schema": json.dumps(schema)})
    found = [
        *bits_read("json", decoder("json", COLUMN, {}), b'{"x": %d}' % number),
        *bits_read("csv", decoder("csv", COLUMN, {}), b"%d" % number),
        *bits_read("avro", avro, zigzag(number)),
        *bits_read("protobuf", PROTOBUF, tag(1, 0) + varint(number)),
    ]
    assert found == [nearest(Fraction(size), negative)] * len(found)


PROTOBUF = protobuf_decoder("message M { int64 x = 1; }", "x FLOAT")
