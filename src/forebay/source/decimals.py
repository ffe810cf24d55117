"""Averages of DECIMAL, rounded as Spark rounds them."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

_DIGITS = 38
_CONTEXT = Context(prec=80)  # digits; Python would round to 28


def averages(sums: Any, counts: Any, kind: pa.DataType) -> pa.Array:
    """To 38 digits behind the point, then to those of the type, half away from zero each time. ArrowInvalid if one is too large."""
    found: list[Decimal | None] = []
    for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True):
        if total is None:
            found.append(None)
            continue
        whole = unscaled(total, sums.type.scale) * 10 ** (_DIGITS - sums.type.scale)
        rounded = _half_up(_half_up(whole, count), 10 ** (_DIGITS - kind.scale))
        if abs(rounded) >= 10**kind.precision:
            raise pa.ArrowInvalid("overflow")
        found.append(Decimal(rounded).scaleb(-kind.scale, _CONTEXT))
    return pa.array(found, kind)


def unscaled(number: Decimal, scale: int) -> int:
    return int(number.scaleb(scale, _CONTEXT))


def _half_up(number: int, divisor: int) -> int:
    quotient, rest = divmod(abs(number), divisor)
    return (quotient + (2 * rest >= divisor)) * (-1 if number < 0 else 1)
