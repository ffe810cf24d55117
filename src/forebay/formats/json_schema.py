"""The columns that a JSON schema speaks of: its properties, as far as they are of one type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from forebay import column_types as types

_PLAIN: dict[str, pa.DataType] = {
    "boolean": types.BOOLEAN,
    "integer": types.BIGINT,
    "number": types.DOUBLE,
    "string": types.STRING,
}
_TEXTS: dict[str, pa.DataType] = {"date-time": types.TIMESTAMP, "date": types.DATE}


def json_schema_columns(schema: Any) -> pa.Schema:
    """Each nullable: a JSON field may always be absent. What is of no one type is NULL."""
    found = _type(schema, schema, ("#",))
    return pa.schema(list(found) if isinstance(found, pa.StructType) else [])


def _type(schema: Any, root: Any, above: tuple[str, ...]) -> pa.DataType:
    if not isinstance(schema, dict):
        return types.NULL
    if isinstance(target := schema.get("$ref"), str):
        # A schema that contains itself has no end, and a column's type has one.
        return types.NULL if target in above else _type(_target(target, root), root, (*above, target))
    for word in ("oneOf", "anyOf"):
        if isinstance(branches := schema.get(word), list):
            others = [branch for branch in branches if branch != {"type": "null"}]
            return _type(others[0], root, above) if len(others) == 1 else types.NULL
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kinds = [name for name in kind if name != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "object" if isinstance(properties := schema.get("properties"), dict) and properties:
            return pa.struct([pa.field(n, _type(s, root, above)) for n, s in properties.items()])
        case "object" if isinstance(more := schema.get("additionalProperties"), dict):
            return types.map_of(types.STRING, _type(more, root, above))
        case "array":
            return types.array_of(_type(schema.get("items"), root, above))
        case "string":
            return _TEXTS.get(str(schema.get("format")), types.STRING)
    return _PLAIN.get(str(kind), types.NULL)


def _target(reference: str, root: Any) -> Any:
    """What a reference within the schema leads to; None for one that leads out of it."""
    head, *steps = reference.split("/")
    found = root if head == "#" else None
    for step in steps:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
