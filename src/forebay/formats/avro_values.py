"""A datum's plain values to what Arrow holds for the columns, by the plan."""

from __future__ import annotations

import struct
from base64 import b64decode
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from forebay.formats.avro_datum import read_value
from forebay.formats.avro_reading import DURATION, MAX_PRECISION, AvroPlan
from forebay.formats.contract import RefusalKind
from forebay.formats.refusal import Number, RefusedError, mismatch, shorten, unfit
from forebay.formats.scalars import nearest_float

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_MICROSECOND = timedelta(microseconds=1)
_FIRST_MICROS = (datetime.min - datetime(1970, 1, 1)) // _MICROSECOND
_LAST_MICROS = (datetime.max - datetime(1970, 1, 1)) // _MICROSECOND


def convert(plan: AvroPlan, value: Any) -> Any:
    """One value that its node keeps. RefusedError if the column cannot hold it."""
    if plan["avro"] == "union":
        index, inner = value
        return convert(plan["branches"][index], inner)
    match plan["as"]:
        case "null" | "boolean":
            return value
        case "never":
            raise mismatch("NOT NULL, but the value is null")
        case "refused":
            raise mismatch(plan["expected"])
        case "string" if plan["avro"] == "enum":
            return _symbol(plan, value)
        case "string":
            return value if isinstance(value, str) else _text(plan, value)
        case "binary":
            return value if isinstance(value, bytes) else value.encode()
        case "integer":
            end = 2 ** (plan["bits"] - 1)
            return _within(plan, value, value, -end, end - 1)
        case "float" | "double":
            if plan["as"] == "float" or plan.get("via") == "float":
                return nearest_float(value) if isinstance(value, int) else value
            return float(value)
        case "date":
            return _within(plan, value, value, _FIRST_DAY, _LAST_DAY)
        case "millis":
            return _within(plan, value, value * 1000, _FIRST_MICROS, _LAST_MICROS)
        case "micros":
            return _within(plan, value, value, _FIRST_MICROS, _LAST_MICROS)
        case "decimal":
            return rescaled(plan, value)
        case "uuid":
            return str(UUID(bytes=value))
        case "duration":
            return dict(zip(DURATION, struct.unpack("<III", value), strict=True))
        case "struct":
            return convert_record(plan, value)
        case "array":
            return [_inside(f"[{at}]", plan["items"], item) for at, item in enumerate(value)]
        case "map":
            return [(key, _inside(f"[{shorten(key)!r}]", plan["items"], item)) for key, item in value.items()]
    raise AssertionError(plan["as"])


def convert_record(plan: AvroPlan, values: list[Any]) -> dict[str, Any]:
    """The columns that the writer has, by name, in the order in which they are declared."""
    kept = [pair for pair in zip(plan["fields"], values, strict=True) if pair[0]["column"] is not None]
    kept += [(field, read_value(field, b64decode(field["datum"]))) for field in plan.get("defaults", ())]
    kept.sort(key=lambda pair: int(pair[0]["column"]))
    return {field["name"]: _inside(f".{field['name']}", field, value) for field, value in kept}


def _inside(step: str, plan: AvroPlan, value: Any) -> Any:
    try:
        return convert(plan, value)
    except RefusedError as refused:
        refused.enter(step)
        raise


def _within(plan: AvroPlan, written: int, value: int, first: int, last: int) -> int:
    if first <= value <= last:
        return value
    raise unfit(plan["expected"], written)


def _symbol(plan: AvroPlan, value: str) -> str:
    """The reader's symbol: the same, or its default for those that it does not know."""
    symbol = plan.get("becomes", {}).get(value, value)
    if symbol is None:
        raise mismatch(f"the symbol {shorten(value)!r} is not one of the reader's, which has no default")
    return str(symbol)


def _text(plan: AvroPlan, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _no(plan, "bytes that are not UTF-8") from None


def rescaled(plan: AvroPlan, value: bytes) -> Decimal:
    """A decimal: big-endian two's complement, rescaled from the writer's scale to the column's."""
    if not value:
        raise _no(plan, "no bytes")
    unscaled = int.from_bytes(value, "big", signed=True)
    if abs(unscaled) >= 10**MAX_PRECISION:
        raise _no(plan, f"a number of more than {MAX_PRECISION} digits")
    written = _scaled(unscaled, plan["written"])
    shift = plan["scale"] - plan["written"]
    rescaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    if rest or abs(rescaled) >= 10 ** plan["precision"]:
        raise unfit(plan["expected"], Number(f"{written:f}"))
    return _scaled(rescaled, plan["scale"])


def _scaled(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _no(plan: AvroPlan, found: str) -> RefusedError:
    return RefusedError(RefusalKind.TYPE_CONVERSION, f"expected {plan['expected']}, found {found}")
