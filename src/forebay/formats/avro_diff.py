"""What changed between two Avro schemas, field by field, in words."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.formats.avro_schema import Avro, Field
from forebay.formats.schema_diff import OTHER_TYPE, Change


def changes(old: Avro, new: Avro) -> list[Change]:
    """In the order of the new schema, what was removed at the end."""
    before, after = dict(_fields(old, "")), dict(_fields(new, ""))
    found = []
    renamed: set[str] = set()
    for path, (field, kind) in after.items():
        was = _place(path, field, before)
        if was is None:
            note = "added, with a default" if field and field.default else "added, without a default"
            found.append(Change(path, "", kind, note))
            continue
        renamed.add(was)
        if was != path:
            found.append(Change(path, before[was][1], kind, f"renamed from {was}, by an alias"))
        elif before[was][1] != kind:
            found.append(Change(path, before[was][1], kind, OTHER_TYPE))
    gone = [path for path in before if path not in renamed]
    return found + [Change(path, before[path][1], "", "removed") for path in gone]


def _place(path: str, field: Field, before: dict[str, tuple[Field, str]]) -> str | None:
    parent = path.rpartition(".")[0]
    aliases = [f"{parent}.{alias}" if parent else alias for alias in field.aliases]
    return next((name for name in (path, *aliases) if name in before), None)


def _fields(kind: Avro, path: str) -> Iterator[tuple[str, tuple[Field, str]]]:
    """Every field of every record in it, by its path, with its type in words."""
    if kind.type == "record":
        for field, part in zip(kind.fields, kind.parts, strict=True):
            where = f"{path}.{field.name}" if path else field.name
            yield where, (field, _words(part))
            yield from _fields(part, where)
        return
    for part in kind.parts:
        yield from _fields(part, path if kind.type == "union" else f"{path}[]")


def _words(kind: Avro) -> str:
    """A type without what is inside of its records, which have lines of their own."""
    match kind.type:
        case "union":
            return " | ".join(map(_words, kind.parts))
        case "array" | "map":
            return f"{kind.type}<{_words(kind.parts[0])}>"
        case "enum":
            return f"enum {kind.name} ({', '.join(kind.symbols)})"
        case "fixed":
            return f"{kind} of {kind.size} bytes"
        case _ if kind.decimal:
            return f"{kind.type} (decimal({kind.decimal[0]},{kind.decimal[1]}))"
        case _:
            return str(kind)
