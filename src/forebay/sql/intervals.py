"""Lengths of time as SQL writes them, in milliseconds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PRINTED = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1_000),
    ("millisecond", 1),
)

EXAMPLE = "write it like INTERVAL '5' SECOND, INTERVAL '1' MINUTE or INTERVAL '250' MILLISECOND"


class IntervalError(ValueError):
    """Not a fixed length of time; the text says why."""


def interval_ms(node: Any) -> int:
    """Milliseconds of an INTERVAL expression or of a string like '5 minutes'."""
    micros = _micros(node)
    if micros % 1000:
        raise IntervalError("times are kept in whole milliseconds")
    return int(micros // 1000)


def _micros(node: Any) -> Decimal:
    if isinstance(node, exp.Paren):
        return _micros(node.this)
    if isinstance(node, exp.Add):
        return _micros(node.this) + _micros(node.expression)
    if isinstance(node, exp.Literal) and node.is_string:
        return _from_words(node.name)
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise IntervalError("this is not a constant INTERVAL")
    unit = node.args.get("unit")
    if unit is None:
        return _from_words(node.this.name)
    if isinstance(unit, exp.IntervalSpan):
        raise IntervalError("an interval here has one unit")
    return _amount(node.this.name, unit.name)


def _from_words(text: str) -> Decimal:
    words = text.lower().split()
    if words[:1] == ["interval"]:
        words = words[1:]
    if not words or len(words) % 2:
        raise IntervalError(f"'{text}' is not a length of time")
    return sum((_amount(words[at], words[at + 1]) for at in range(0, len(words), 2)), Decimal(0))


def _amount(number: str, unit: str) -> Decimal:
    name = unit.lower()
    scale = _MICROSECONDS.get(name) or _MICROSECONDS.get(name.removesuffix("s"))
    if scale is None:
        if name.removesuffix("s") in ("month", "quarter", "year"):
            raise IntervalError(f"a {name.removesuffix('s')} has no fixed length")
        raise IntervalError(f"'{unit}' is not a unit of time")
    try:
        amount = Decimal(number.strip())
    except InvalidOperation:
        raise IntervalError(f"'{number}' is not a number") from None
    if not amount.is_finite() or abs(amount) > 10**15:
        raise IntervalError(f"'{number}' is out of range")
    return amount * scale


def split_ms(milliseconds: int) -> tuple[int, str]:
    """Amount and unit, in the largest unit that holds it exactly: 60000 is (1, 'minute')."""
    if milliseconds == 0:
        return 0, "second"
    return next((milliseconds // size, unit) for unit, size in _PRINTED if milliseconds % size == 0)


def spark_interval(milliseconds: int) -> str:
    """The text Spark's window functions take: '1 minute', '90 seconds'."""
    amount, unit = split_ms(milliseconds)
    return f"{amount} {unit}" if amount == 1 else f"{amount} {unit}s"
