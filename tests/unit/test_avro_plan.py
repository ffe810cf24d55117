"""The writer's schema against the declared columns: what can be read, and what is refused at CREATE."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_string

from forebay.errors import OptionValueError, UnsupportedSqlError
from forebay.formats.avro_plan import MAX_NODES, compile_plan
from forebay.formats.avro_schema import MAX_DEPTH, parse


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": name, "type": kind} for name, kind in fields],
        **more,
    }


def columns(ddl: str) -> StructType:
    """`a INT NOT NULL, b STRING` as a StructType, without a session."""
    found = TYPES.get(ddl)
    assert found is not None
    return found


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}
