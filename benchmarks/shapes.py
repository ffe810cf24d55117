"""The columns of the records, declared once; each peer writes them in its own dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Our own little type language: long, int, double, string, time (epoch milliseconds), or a nested
# {"struct": {...}}, {"array": type}, {"map": type}.
Type = str | Mapping[str, Any]

_TRADE: dict[str, Type] = {
    "trade_id": "long",
    "symbol": "string",
    "price": "double",
    "quantity": "int",
    "side": "string",
    "venue": "string",
}
COLUMNS: dict[str, dict[str, Type]] = {
    # Short names: as JSON about 34 bytes, of which names are a good part.
    "small": {"id": "long", "q": "int", "p": "double"},
    "medium": {**_TRADE, "event_time": "time"},
    "large": {
        **_TRADE,
        "account": {"struct": {"id": "long", "name": "string", "country": "string"}},
        "legs": {"array": {"struct": {"venue": "string", "price": "double", "quantity": "int"}}},
        "tags": {"map": "string"},
        "note": "string",
        "event_time": "time",
    },
}
COLUMNS["live"] = {
    "k": "long",
    "x": "long",
    "symbol": "string",
    "price": "double",
    "quantity": "int",
}  # x: made when, ms
PRICE_ABOVE = 150.0  # half of the records
_AVRO = {"long": "long", "int": "int", "double": "double", "string": "string"}


def names(size: str) -> tuple[str, str]:
    """The columns that the questions call quantity and price."""
    return ("q", "p") if size == "small" else ("quantity", "price")


def avro_schema(size: str) -> str:
    """The writer's schema: plain types, nothing nullable."""
    return json.dumps(_avro({"struct": COLUMNS[size]}, "trade"))


def _avro(kind: Type, name: str) -> Any:
    if kind == "time":
        return {"type": "long", "logicalType": "timestamp-millis"}
    if isinstance(kind, str):
        return _AVRO[kind]
    ((nesting, inner),) = kind.items()
    if nesting == "struct":
        fields = [{"name": n, "type": _avro(t, f"{name}_{n}")} for n, t in inner.items()]
        return {"type": "record", "name": name, "fields": fields}
    return {"type": nesting, "items" if nesting == "array" else "values": _avro(inner, name)}


def spark_type(kind: Type, time: str = "TIMESTAMP") -> str:
    """Spark's DDL, which Forebay's SQL shares."""
    simple = {"long": "BIGINT", "int": "INT", "double": "DOUBLE", "string": "STRING", "time": time}
    if isinstance(kind, str):
        return simple[kind]
    ((nesting, inner),) = kind.items()
    if nesting == "struct":
        return f"STRUCT<{', '.join(f'{n}: {spark_type(t, time)}' for n, t in inner.items())}>"
    if nesting == "array":
        return f"ARRAY<{spark_type(inner, time)}>"
    return f"MAP<STRING, {spark_type(inner, time)}>"


def spark_columns(columns: Mapping[str, Type], time: str = "TIMESTAMP") -> str:
    return ", ".join(f"{name} {spark_type(kind, time)}" for name, kind in columns.items())
