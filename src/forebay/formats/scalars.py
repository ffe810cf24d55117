"""One value to one column type without parts: exact, or refused.

A converter is compiled once a column. It never sees None: whether NULL may be is its container's affair.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import UnsupportedSqlError
from forebay.formats.refusal import MINUS_ZERO, Number, unfit
from forebay.formats.temporal import timestamp, to_days

Convert = Callable[[Any], Any]

_NUMBERS = (int, float, Number)  # and not bool
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number as JSON writes it; the same everywhere, so `+1`, `01`, `.5` and `NaN` are none."""

_FLOAT_END = float(2**128 - 2**103)
"""The first magnitude that rounds to infinity: half a step above the largest FLOAT."""


def scalar(data_type: pa.DataType) -> Convert:
    """The converter for a type without parts; UnsupportedSqlError if there is none."""
    match data_type:
        case types.BOOLEAN:
            return _boolean
        case types.TINYINT | types.SMALLINT | types.INT | types.BIGINT:
            return _integer(data_type)
        case types.FLOAT:
            return _real("FLOAT", nearest_float)
        case types.DOUBLE:
            return _real("DOUBLE", float)
        case pa.Decimal128Type():
            return _decimal(data_type)
        case types.STRING:
            return _string
        case types.BINARY:
            return _binary
        case types.DATE:
            return to_days
        case types.TIMESTAMP:
            return timestamp(zoned=True)
        case types.TIMESTAMP_NTZ:
            return timestamp(zoned=False)
    raise UnsupportedSqlError(f"a column of type {types.type_name(data_type)} cannot be read")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise unfit("BOOLEAN (true or false)", value)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    raise unfit("STRING", value)


def _integer(data_type: pa.DataType) -> Convert:
    end = 2 ** (types.BITS[data_type] - 1)
    expected = f"{types.type_name(data_type)} (an integer from {-end} to {end - 1})"

    def convert(value: Any) -> int:
        # type() and not isinstance(): True is an int, and 1 is not what somebody meant by it.
        if type(value) is int and -end <= value < end:
            return value
        if value is MINUS_ZERO:
            return 0
        raise unfit(expected, value)

    return convert


def _real(name: str, nearest: Callable[[Any], float]) -> Convert:
    """Rounds to the nearest number of the type, once and never to infinity."""
    expected = f"{name} (a finite number)"

    def convert(value: Any) -> float:
        if type(value) in _NUMBERS:
            try:
                number = nearest(value)
            except OverflowError:
                raise unfit(expected, value) from None
            if math.isfinite(number):
                return number
        raise unfit(expected, value)

    return convert


def nearest_float(value: int | float | Number) -> float:
    """The FLOAT nearest to a finite number; OverflowError where that is infinite.

    To round to a double and then to a FLOAT is to round twice: a number just beside the middle between two
    FLOATs becomes the middle, and then the even one. So the double is made odd where it is not the number
    itself: an odd one is never such a middle, and lies on the same side of it as the number.
    """
    double = float(value)
    if double and math.isfinite(double):
        exact, near = Decimal(value), Decimal(double)
        if exact != near and not struct.pack("<d", double)[0] & 1:
            double = math.nextafter(double, math.inf if exact > near else -math.inf)
    if abs(double) >= _FLOAT_END:
        raise OverflowError
    found: float = struct.unpack("<f", struct.pack("<f", double))[0]
    return found


def _decimal(data_type: pa.Decimal128Type) -> Convert:
    """Exact by construction: any digit that would have to be rounded away raises Inexact."""
    exact = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal((0, (1,), -data_type.scale))
    expected = f"{types.type_name(data_type)} (exact, no rounding)"

    def convert(value: Any) -> Decimal:
        kind = type(value)
        if kind is int or kind is Number or (kind is str and NUMBER.fullmatch(value)):
            try:
                return exact.quantize(exact.create_decimal(value), unit)
            except DecimalException:
                pass
        raise unfit(expected, value)

    return convert


def _binary(value: Any) -> bytes:
    if type(value) is str:
        try:
            found = base64.b64decode(value, validate=True)
        except ValueError:
            found = None
        # Writing it again proves alphabet, padding and that no stray bits were dropped.
        if found is not None and base64.b64encode(found).decode() == value:
            return found
    raise unfit("BINARY (base64 text)", value)
