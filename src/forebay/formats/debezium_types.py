"""What Debezium's envelope says about a row's values: the unit of a time, the scale of a decimal.

`schema` names them the way Kafka Connect does (`io.debezium.time.MicroTimestamp`). Where it is there, a DATE,
TIMESTAMP or DECIMAL column gets the value that was meant, and a number that means something else is refused;
without it a number is what FORMAT json makes of it. Columns of other types take numbers as they are written.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.formats.avro_reading import MAX_PRECISION
from forebay.formats.avro_values import rescaled
from forebay.formats.refusal import MINUS_ZERO, RefusedError, unfit
from forebay.formats.scalars import Convert
from forebay.formats.temporal import is_day, is_moment

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_UNITS = {
    f"{_DEBEZIUM}Date": "days",
    f"{_CONNECT}Date": "days",
    f"{_DEBEZIUM}MicroTimestamp": "micros",
    f"{_DEBEZIUM}NanoTimestamp": "nanos",
    f"{_DEBEZIUM}Time": "clock",
    f"{_DEBEZIUM}MicroTime": "clock",
    f"{_DEBEZIUM}NanoTime": "clock",
    f"{_CONNECT}Time": "clock",
}
"""Milliseconds and text with a zone need no word: a TIMESTAMP is read from them anyway."""

_DECIMAL = f"{_CONNECT}Decimal"
_SCALE = re.compile(r"[0-9]{1,4}")
_IN_TIMESTAMP = {
    "days": ", which a date without a time is not",
    "clock": ", which a time of day is not",
    "micros": " (epoch microseconds; years 0001 to 9999)",
    "nanos": " (epoch nanoseconds; years 0001 to 9999)",
}


class Described:
    """One type as the envelope describes it; the parts of it likewise. What is no description says nothing."""

    def __init__(self, schema: Any) -> None:
        self._schema: dict[str, Any] = schema if isinstance(schema, dict) else {}

    def field(self, name: str) -> Described:
        fields = self._schema.get("fields")
        found = [
            part
            for part in (fields if isinstance(fields, list) else ())
            if isinstance(part, dict) and part.get("field") == name
        ]
        return Described(found[-1] if found else None)

    @property
    def items(self) -> Described:
        return Described(self._schema.get("items"))

    @property
    def values(self) -> Described:
        return Described(self._schema.get("values"))

    @property
    def row(self) -> Described:
        """Of an event: the row, which is the same before and after."""
        after = self.field("after")
        return after if after._schema else self.field("before")

    def scalar(self, column: pa.DataType) -> Convert | None:
        """The conversion to a column's type without parts; None where there is nothing special about it."""
        name = self._schema.get("name")
        unit = _UNITS.get(name) if isinstance(name, str) else None
        match column:
            case types.DATE if unit == "days":
                return _date
            case types.TIMESTAMP if unit:
                return _timestamp("TIMESTAMP", unit)
            case types.TIMESTAMP_NTZ if unit:
                return _timestamp("TIMESTAMP_NTZ", unit)
            case pa.Decimal128Type() if name == _DECIMAL:
                return _decimal(column, self._scale(column))
        return None

    def _scale(self, column: pa.Decimal128Type) -> int | None:
        """None where there is none, or none that says what DECIMAL it is."""
        parameters = self._schema.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        if type(scale) is not str or not _SCALE.fullmatch(scale):
            return None
        return int(scale) if abs(int(scale) - column.scale) <= MAX_PRECISION else None


def _date(value: Any) -> int:
    if type(value) is int and is_day(value):
        return value
    if value is MINUS_ZERO:
        return 0
    raise unfit("DATE (days since 1970-01-01; years 0001 to 9999)", value)


def _timestamp(name: str, unit: str) -> Convert:
    expected = name + _IN_TIMESTAMP[unit]
    divisor = {"micros": 1, "nanos": 1000}.get(unit)

    def convert(value: Any) -> int:
        if divisor is not None and type(value) is int and -(2**63) <= value < 2**63:
            micros = value // divisor
            if is_moment(micros):
                return micros
        elif divisor is not None and value is MINUS_ZERO:
            return 0
        raise unfit(expected, value)

    return convert


def _decimal(column: pa.Decimal128Type, written: int | None) -> Convert:
    expected = f"{types.type_name(column)} (exact, no rounding) from base64"
    plan = {"precision": column.precision, "scale": column.scale, "written": written, "expected": expected}

    def convert(value: Any) -> Any:
        try:
            if written is not None and type(value) is str:
                found = b64decode(value, validate=True)
                if b64encode(found).decode() == value:
                    return rescaled(plan, found)
        except (ValueError, RefusedError):
            pass
        raise unfit(expected, value)

    return convert
