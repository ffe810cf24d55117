"""Dates and timestamps from text, to the days and microseconds since 1970 that Arrow holds.

The patterns decide what is taken; `fromisoformat` alone takes much more (week dates, `24:00`, any
separator) and differs between versions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from forebay.formats.refusal import MINUS_ZERO, unfit

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
# A zone is at most 18 hours away, as in Java and so in Spark.
_ZONE = r"(Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?"
_TIMESTAMP = re.compile(_DATE.pattern + "[T ]" + _CLOCK + _ZONE)

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min - _EPOCH) // _MICROSECOND
_LAST = (datetime.max - _EPOCH) // _MICROSECOND


def is_day(days: int) -> bool:
    """Whether so many days since 1970 are within the years 0001 to 9999."""
    return date.min.toordinal() <= days + _EPOCH_DAY <= date.max.toordinal()


def is_moment(micros: int) -> bool:
    """Whether so many microseconds since 1970 are within the years 0001 to 9999."""
    return _FIRST <= micros <= _LAST


def to_days(value: Any) -> int:
    """A DATE: `YYYY-MM-DD` and nothing else."""
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value).toordinal() - _EPOCH_DAY
        except ValueError:  # the 30th of February
            pass
    raise unfit("DATE (YYYY-MM-DD)", value)


def timestamp(*, zoned: bool) -> Callable[[Any], int]:
    """A TIMESTAMP (text without a zone is UTC), or a TIMESTAMP_NTZ, where a zone is refused.

    Integers are milliseconds since 1970-01-01 00:00. Digits after the microseconds are cut off.
    """
    expected = "TIMESTAMP (ISO 8601 text" if zoned else "TIMESTAMP_NTZ (ISO 8601 text without a zone"
    expected += ", or epoch milliseconds; years 0001 to 9999)"

    def to_micros(value: Any) -> int:
        if type(value) is int:
            micros = value * 1000
            if _FIRST <= micros <= _LAST:
                return micros
        elif type(value) is str and (match := _TIMESTAMP.fullmatch(value)) and (zoned or not match[1]):
            try:
                micros = _micros(datetime.fromisoformat(value))
            except ValueError:  # the 30th of February
                raise unfit(expected, value) from None
            if _FIRST <= micros <= _LAST:
                return micros
        elif value is MINUS_ZERO:
            return 0
        raise unfit(expected, value)

    return to_micros


def _micros(moment: datetime) -> int:
    micros = (moment.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    offset = moment.utcoffset()
    # In integers, because the moment in UTC may lie outside of what a datetime holds.
    return micros - offset // _MICROSECOND if offset else micros
