"""Years, months and hours of dates and timestamps, in UTC and the calendar of Spark: Gregorian, also before it began.

Arrow has these too, but for years from -32767 to 32767 only, and it asks the machine for a database of time zones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay import column_types as types

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
_UNITS = {
    "hour": 3600 * SECOND_US,
    "minute": 60 * SECOND_US,
    "second": SECOND_US,
    "millisecond": 1000,
    "microsecond": 1,
}
_CLOCK = {"hour": 24, "minute": 60, "second": 60}
_LOWEST = -(2**63)


def days(value: Any) -> Any:
    """The dates of timestamps."""
    numbers, missing = _ticks(value)
    return _made(np.floor_divide(numbers, DAY_US).astype(np.int32), types.DATE, missing)


def seconds(value: Any) -> Any:
    """Whole seconds since 1970."""
    numbers, missing = _ticks(value)
    return _made(np.floor_divide(numbers, SECOND_US), types.BIGINT, missing)


def part(name: str, value: Any) -> Any:
    """A part of a date or timestamp, as INT."""
    numbers, missing = _ticks(value)
    if name in _CLOCK:
        found = np.floor_divide(numbers, _UNITS[name]) % _CLOCK[name]
    else:
        found = _date_part(name, _day_numbers(numbers, value.type))
    return _made(found.astype(np.int32), types.INT, missing)


def truncated(unit: str, value: Any) -> Any:
    """The beginning of the hour, the month, … that a timestamp or date is in, as its own type."""
    numbers, missing = _ticks(value)
    kind = value.type
    if unit in _UNITS:
        return _made(_back_to(numbers, _UNITS[unit]), kind, missing)
    number = _day_numbers(numbers, kind)
    if unit == "week":
        number = number - (number + 3) % 7
    elif unit != "day":
        number = _first_day(_calendar(number, "Y" if unit == "year" else "M"), quarter=unit == "quarter")
    if kind == types.DATE:
        return _made(number.astype(np.int32), kind, missing)
    if len(number) and number.min() < _LOWEST // DAY_US + 1:
        raise pa.ArrowInvalid("overflow")
    return _made(number * DAY_US, kind, missing)


def window_start(width_us: int, value: Any) -> Any:
    numbers, missing = _ticks(value)
    return _made(_back_to(numbers, width_us), value.type, missing)


def shifted(by_us: int, value: Any) -> Any:
    ticks = pc.add_checked(value.cast(pa.int64()), pa.scalar(by_us, pa.int64()))
    return ticks.cast(value.type)


def _ticks(value: Any) -> tuple[Any, Any]:
    """The numbers behind dates or timestamps, and which of them are none."""
    array = value if isinstance(value, pa.Array) else pa.repeat(value, 1)
    plain = array.cast(pa.int32()).cast(pa.int64()) if array.type == types.DATE else array.cast(pa.int64())
    filled = pc.fill_null(plain, 0) if plain.null_count else plain
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return filled.to_numpy(zero_copy_only=False), missing


def _made(numbers: Any, kind: pa.DataType, missing: Any) -> pa.Array:
    plain = pa.int32() if kind in (types.DATE, types.INT) else pa.int64()
    return pa.array(numbers, plain, mask=missing).cast(kind)


def _back_to(numbers: Any, width: int) -> Any:
    rest = numbers % width  # not below 0, also before 1970
    if len(numbers) and (numbers < _LOWEST + rest).any():
        raise pa.ArrowInvalid("overflow")
    return numbers - rest


def _day_numbers(numbers: Any, kind: pa.DataType) -> Any:
    return numbers if kind == types.DATE else np.floor_divide(numbers, DAY_US)


def _date_part(name: str, number: Any) -> Any:
    if name == "dayofweek":
        return (number + 4) % 7 + 1  # Sunday is 1
    if name == "week":  # the week is the year's that its Thursday is in
        thursday = number - (number + 3) % 7 + 3
        return (thursday - _first_day(_calendar(thursday, "Y"))) // 7 + 1
    units = _calendar(number, "Y" if name in ("year", "dayofyear") else "M")
    if name in ("day", "dayofyear"):
        return number - _first_day(units) + 1
    if name == "year":
        return units.astype(np.int64) + 1970
    month = units.astype(np.int64) % 12
    return month // 3 + 1 if name == "quarter" else month + 1


def _calendar(number: Any, unit: str) -> Any:
    """The years or months that days are in."""
    return number.astype("M8[D]").astype(f"M8[{unit}]")


def _first_day(units: Any, *, quarter: bool = False) -> Any:
    """Of years or months; of the quarters that the months are in."""
    if quarter:
        units = (units.astype(np.int64) // 3 * 3).astype("M8[M]")
    return units.astype("M8[D]").astype(np.int64)
