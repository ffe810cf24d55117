"""Records of an Avro schema as JSON that a person can read and edit, and back.

Bytes are text of the characters 0 to 255, as in Avro's own JSON. Decimals are numbers, dates and timestamps are ISO 8601
text where a calendar has them; their plain numbers are taken, too. A union is its value; one with several branches
besides null names the branch: `{"string": "x"}`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from forebay.formats.avro_schema import RECURSIVE, Avro
from forebay.formats.refusal import describe, shorten

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "timestamp-millis": timedelta(milliseconds=1),
    "timestamp-micros": timedelta(microseconds=1),
    "local-timestamp-millis": timedelta(milliseconds=1),
    "local-timestamp-micros": timedelta(microseconds=1),
    "date": timedelta(days=1),
}
_BITS = {"int": 32, "long": 64}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class AvroJson:
    """Of one schema. `strict` refuses fields that the schema does not have."""

    def __init__(self, schema: Avro, *, strict: bool = False) -> None:
        self._schema = schema
        self._strict = strict
        self._records: dict[str, Avro] = {}
        self._find(schema)

    def shown(self, datum: Any) -> Any:
        """What `read_datum` gives, as JSON has it. Decimals are `Decimal`."""
        return self._shown(self._schema, datum)

    def taken(self, value: Any) -> Any:
        """JSON as fastavro writes it: a branch of a union by its name. ValueError says which field does not fit."""
        return self._taken(self._schema, value, "")

    def _find(self, node: Avro) -> None:
        if node.type == "record":
            self._records[node.name] = node
        for part in node.parts:
            self._find(part)

    # -- from a datum ---------------------------------------------------------------------------------

    def _shown(self, node: Avro, value: Any) -> Any:
        match node.type:
            case "record" | "recursive":
                node = self._records[node.name]
                fields = zip(node.fields, node.parts, value, strict=True)
                return {field.name: self._shown(part, item) for field, part, item in fields}
            case "array":
                return [self._shown(node.parts[0], item) for item in value]
            case "map":
                return {name: self._shown(node.parts[0], item) for name, item in value.items()}
            case "union":
                index, inner = value
                branch = node.parts[index]
                shown = self._shown(branch, inner)
                return shown if branch.type == "null" or _plain(node) else {_name(branch): shown}
            case "int" | "long":
                return _calendar(node, value)
            case "float" | "double":
                return value if math.isfinite(value) else str(Decimal(value))
            case "bytes" | "fixed" if node.decimal is not None:
                with localcontext() as exact:
                    exact.prec = 3 * len(value) + 1  # a byte is less than three digits
                    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-node.decimal[1])
            case "bytes" | "fixed":
                return value.decode("latin-1")
        return value

    # -- to what is written ---------------------------------------------------------------------------

    def _taken(self, node: Avro, value: Any, path: str) -> Any:
        match node.type:
            case "record" | "recursive":
                return self._record(self._records[node.name], value, path)
            case "array" if isinstance(value, list):
                return [self._taken(node.parts[0], item, f"{path}[{at}]") for at, item in enumerate(value)]
            case "map" if isinstance(value, dict):
                return {
                    name: self._taken(node.parts[0], item, f"{path}[{name!r}]")
                    for name, item in value.items()
                }
            case "union":
                return self._union(node, value, path)
            case "null" if value is None:
                return None
            case "boolean" if isinstance(value, bool):
                return value
            case "int" | "long":
                return _whole(node, value, path)
            case "float" | "double":
                return _floating(node, value, path)
            case "bytes" | "fixed":
                return _binary(node, value, path)
            case "string" if isinstance(value, str):
                return value
            case "enum" if isinstance(value, str) and value in node.symbols:
                return value
        raise _unfit(node, value, path)

    def _record(self, node: Avro, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _unfit(node, value, path)
        known = {field.name for field in node.fields}
        strange = [name for name in value if name not in known]
        if strange and self._strict:
            raise ValueError(f"{_at(path, strange[0])}: the schema has no such field")
        found = {}
        for field, part in zip(node.fields, node.parts, strict=True):
            given = value.get(field.name, *field.default)
            if given is None and field.name not in value and not field.default and not _nullable(part):
                raise ValueError(f"{_at(path, field.name)}: it is missing, and has no default")
            found[field.name] = self._taken(part, given, _at(path, field.name))
        return found

    def _union(self, node: Avro, value: Any, path: str) -> Any:
        """As fastavro takes a branch: its name and the value."""
        if not _plain(node) and isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for branch in node.parts:
                if _name(branch) == name:
                    return name, self._taken(branch, inner, path)
        others = [branch for branch in node.parts if branch.type != "null"]
        if len(others) == 1 and not (value is None and _nullable(node)):
            return _name(others[0]), self._taken(others[0], value, path)  # whose error says more
        # A double takes every number, a float does not: among both it is the one that keeps the digits.
        for branch in sorted(node.parts, key=lambda each: each.type == "float"):
            try:
                made = self._taken(branch, value, path)
            except ValueError:
                continue
            return None if branch.type == "null" else (_name(branch), made)
        raise _unfit(node, value, path)


def _plain(union: Avro) -> bool:
    """Whether a value says by itself which branch it is of."""
    return sum(branch.type != "null" for branch in union.parts) <= 1


def _name(branch: Avro) -> str:
    return branch.name or branch.type


def _nullable(node: Avro) -> bool:
    return node.type == "null" or (node.type == "union" and any(part.type == "null" for part in node.parts))


def _calendar(node: Avro, value: int) -> Any:
    unit = _UNITS.get(node.logical or "")
    if unit is None:
        return value
    try:
        moment = _EPOCH + value * unit
    except OverflowError:
        return value  # milliseconds that somebody wrote as microseconds, perhaps: no calendar has them
    if node.logical == "date":
        return moment.date().isoformat()
    text = moment.replace(tzinfo=None).isoformat(
        timespec="milliseconds" if unit == timedelta(milliseconds=1) else "microseconds"
    )
    return text if str(node.logical).startswith("local") else f"{text}Z"


def _whole(node: Avro, value: Any, path: str) -> int:
    unit = _UNITS.get(node.logical or "")
    if unit is not None and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _unfit(node, value, path) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        elif str(node.logical).startswith("local"):
            raise _unfit(node, value, path)
        value, rest = divmod(moment - _EPOCH, unit)
        if rest:
            raise ValueError(f"{path}: {shorten(str(moment))} is more exact than {node} can be")
    bits = _BITS[node.type]
    if type(value) is not int or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _unfit(node, value, path)
    return value


def _floating(node: Avro, value: Any, path: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _unfit(node, value, path)
    try:
        return float(value)
    except OverflowError:
        raise _unfit(node, value, path) from None


def _binary(node: Avro, value: Any, path: str) -> bytes:
    if node.decimal is not None and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _decimal(node, Decimal(repr(value)) if isinstance(value, float) else Decimal(value), path)
    try:
        made = value.encode("latin-1")
    except (AttributeError, UnicodeEncodeError):
        raise _unfit(node, value, path) from None
    if node.type == "fixed" and len(made) != node.size:
        raise ValueError(f"{path}: expected {node.size} bytes, found {len(made)}")
    return bytes(made)


def _decimal(node: Avro, value: Decimal, path: str) -> bytes:
    """More digits than the precision are for whoever reads it to refuse, as they do of the record as it was."""
    assert node.decimal is not None
    scale = node.decimal[1]
    with localcontext() as exact:
        exact.prec = len(value.as_tuple().digits) + 1
        if not value.is_finite() or value.scaleb(scale) != value.scaleb(scale).to_integral_value():
            raise _unfit(node, value, path, f"a decimal with {scale} digits behind the point")
        number = int(value.scaleb(scale))
    size = node.size if node.type == "fixed" else (number + (number < 0)).bit_length() // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise _unfit(node, value, path) from None


def _unfit(node: Avro, value: Any, path: str, expected: str = "") -> ValueError:
    kind = node.name if node.type == RECURSIVE else str(node)
    found = value if isinstance(value, Decimal) else describe(value)
    where = f"{path}: " if path else ""
    return ValueError(f"{where}expected {expected or kind}, found {found}")


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
