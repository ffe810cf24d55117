"""The columns of a Kafka source: which part of a record each comes from, and those that options add."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from forebay import column_types as types
from forebay.errors import OptionConflictError, OptionValueError, UnsupportedSqlError
from forebay.formats.debezium_format import CHANGE
from forebay.kafka.options import INCLUDES
from forebay.options import Options

METADATA = pa.schema(
    [
        pa.field("_partition", types.INT, nullable=False),
        pa.field("_offset", types.BIGINT, nullable=False),
        pa.field("_timestamp", types.TIMESTAMP, nullable=True),
    ]
)
HEADERS = pa.field("_headers", types.map_of(types.STRING, types.BINARY), nullable=True)
RAW_COLUMNS = pa.schema([pa.field("key", types.BINARY), pa.field("value", types.BINARY)])
CHANGE_LOG = "debezium-json"  # the format whose rows are changes, each with a weight

_INCLUDED = {
    "key": pa.field("_key", types.BINARY, nullable=True),
    **{field.name.removeprefix("_"): field for field in (*METADATA, HEADERS)},
}


@dataclass(frozen=True)
class Layout:
    """Where the columns of a source come from.

    `keys` and `values` are the declared columns of each part; `declared` says of each declared column
    which of them it is; `added` are the columns behind those, by what they hold.
    """

    declared: tuple[tuple[str, int], ...]  # ("key" or "value", its place there)
    keys: pa.Schema
    values: pa.Schema
    added: tuple[tuple[str, pa.Field], ...]  # ("partition", _partition INT NOT NULL), …
    schema: pa.Schema  # all of them, in order


def layout(columns: pa.Schema, options: Options) -> Layout:
    """UnsupportedSqlError or OptionError where the options do not fit the columns."""
    columns = declared_columns(columns, options)
    key_names = _key_names(columns, options)
    declared: list[tuple[str, int]] = []
    parts: dict[str, list[pa.Field]] = {"key": [], "value": []}
    for field in columns:
        part = "key" if field.name.lower() in key_names else "value"
        declared.append((part, len(parts[part])))
        parts[part].append(field)
    if options["format"] == "raw" and [field.name for field in parts["value"]] not in ([], ["value"]):
        raise UnsupportedSqlError(
            "format 'raw' has the columns key and value",
            remedy="CREATE SOURCE t (key BINARY, value BINARY) …, each BINARY or STRING",
        )
    added = _added(columns, options)
    full = pa.schema([*columns, *(field for _, field in added)])
    return Layout(tuple(declared), pa.schema(parts["key"]), pa.schema(parts["value"]), added, full)


def declared_columns(columns: pa.Schema, options: Options) -> pa.Schema:
    """Format raw knows its columns by itself."""
    return columns if len(columns) or options["format"] != "raw" else RAW_COLUMNS


def _key_names(columns: pa.Schema, options: Options) -> set[str]:
    if not options["key.columns"]:
        return {"key"} if options["format"] == "raw" else set()
    known = {field.name.lower() for field in columns}
    wanted = [name.lower() for name in options["key.columns"]]
    for name in wanted:
        if name not in known:
            raise OptionValueError(
                f"'key.columns' names '{name}', which is not a column",
                option="key.columns",
                remedy="there are: " + ", ".join(field.name for field in columns),
            )
    return set(wanted)


def _added(columns: pa.Schema, options: Options) -> tuple[tuple[str, pa.Field], ...]:
    """What the format and the options add behind the declared columns, no two of a name."""
    found: list[tuple[str, pa.Field, str]] = []
    if options["format"] == CHANGE_LOG:
        found += [("value", field, "format") for field in CHANGE]
    if options["include.metadata"]:
        found += [(field.name.removeprefix("_"), field, "include.metadata") for field in METADATA]
    if options["include.headers"]:
        found.append(("headers", HEADERS, "include.headers"))
    for what, _, _ in INCLUDES:
        option = f"include.{what}.as"
        if options[option] is not None:
            kind = _INCLUDED[what]
            found.append((what, pa.field(options[option], kind.type, kind.nullable), option))
    taken = {field.name.lower() for field in columns}
    for _, field, option in found:
        if field.name.lower() in taken:
            raise OptionConflictError(
                f"there would be two columns '{field.name}': it is one that '{option}' adds",
                option=option,
                remedy="rename one of them",
            )
        taken.add(field.name.lower())
    return tuple((what, field) for what, field, _ in found)
