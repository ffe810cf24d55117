"""A Kafka source whose records' schemas change: what it is held against, and the columns that it gains."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from forebay.connectors.contract import SourceConfig
from forebay.errors import OptionConflictError, UnsupportedSqlError
from forebay.formats.protobuf_schema import MESSAGE
from forebay.formats.schema_evolution import Watch
from forebay.kafka.columns import layout
from forebay.options import Options
from forebay.registry import newest, origin, registry

SINCE = "schema.evolution.from"


def pinned(options: Options) -> dict[str, str]:
    """The id of the newest schema, where later ones are to be held against it."""
    schemas = origin(options)
    if options["schema.evolution"] == "ignore" or options[SINCE] or schemas is None:
        return {}
    found = newest(schemas, str(options["format"]).upper())
    if len(found) == 1:
        return {SINCE: str(found[0].schema.id)}
    subjects = ", ".join(schemas.subjects) or "any subject"
    raise OptionConflictError(
        f"'schema.evolution' = '{options['schema.evolution']}' compares with the newest schema, and the registry "
        f"has {'several that differ' if found else 'none'} under {subjects}",
        option="schema.evolution",
        remedy=f"register it first, or name the ids of those that are known: '{SINCE}' = '17'",
    )


def evolved(config: SourceConfig, options: Options, schema_id: int) -> SourceConfig:
    """The source with what a schema adds to its columns, behind those that there are."""
    schemas = origin(options)
    parts = layout(config.schema, options)
    assert schemas is not None
    watch = Watch(schemas, parts.values, options[MESSAGE])
    values = watch.evolved(registry(schemas.settings).schema(schema_id))
    fields = [
        values[place] if part == "value" else parts.keys[place] for part, place in parts.declared
    ] + list(values)[len(parts.values) :]
    _check_names(fields)
    since = ", ".join(map(str, dict.fromkeys((*options[SINCE], schema_id))))
    return replace(config, schema=pa.schema(fields), options={**config.options, SINCE: since})


def _check_names(fields: list[pa.Field]) -> None:
    names = [field.name.lower() for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnsupportedSqlError(
            f"the new field {twice} has the name of a column of the key",
            remedy="drop the source, and create it with another name for the key's",
        )
