"""An Avro schema, the writer's or the reader's: from its JSON text to a tree without names left to look up.

Read by a walk of our own. fastavro's parser takes what no datum can follow (a record with one field
twice, a union in a union, a `fixed` of size -1) and ends the process on a deeply nested schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.errors import OptionValueError, UnsupportedSqlError
from forebay.formats.refusal import shorten

OPTION = "avro.schema"
FILE_OPTION = "avro.schema.file"
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH = 64
"""Decoders recurse as deep as the schema, so its depth is bounded."""

RECURSIVE = "recursive"
"""The type of a place where a record that is not over yet occurs again, by its `name`: the tree ends here."""

_LARGEST_FIXED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Avro:
    """One type as its schema has it. What a type does not have is empty."""

    type: str
    logical: str | None = None
    name: str = ""
    aliases: tuple[str, ...] = ()
    size: int = 0
    symbols: tuple[str, ...] = ()
    symbol: str | None = None
    """What an enum makes of a symbol that it does not know."""
    decimal: tuple[int, int] | None = None
    """Precision and scale, if the logical type is a valid decimal."""
    fields: tuple[Field, ...] = ()
    parts: tuple[Avro, ...] = ()
    """The types of a record's fields, a union's branches, an array's items or a map's values."""
    depth: int = 1
    empty: bool = False
    """Whether a value takes no bytes at all."""

    def __str__(self) -> str:
        match self.type:
            case "union":
                return f"a union of {', '.join(map(str, self.parts))}"
            case "array" | "map":
                return f"{self.type} of {self.parts[0]}"
            case _:
                text = f"{self.type} {self.name}".strip()
                return f"{text} ({self.logical})" if self.logical else text


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; its type is among the record's parts. `default` is () or the default as JSON has it."""

    name: str
    aliases: tuple[str, ...] = ()
    default: tuple[()] | tuple[Any] = ()


def written_schema(options: Mapping[str, str]) -> str | None:
    """The schema's text that a statement gives, itself or by its file; None if it gives none."""
    path = options.get(FILE_OPTION)
    if not path:
        return options.get(OPTION) or None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionValueError(
            f"'{FILE_OPTION}' cannot be read: {path}: {reason}",
            option=FILE_OPTION,
            remedy="it is the path of an .avsc file, as seen from where the session runs",
        ) from None


def parse(text: str, references: Sequence[str] = (), origin: str = f"'{OPTION}'") -> Avro:
    """OptionValueError if this is not an Avro schema, UnsupportedSqlError if it is too deep.

    `references` are schemas whose names this one uses, each after those that it uses itself; `origin` says
    in messages where the schema is from.
    """
    parser = _SchemaParser(origin)
    for reference in references:
        parser.schema(_loaded(reference, origin), "", 1)
    return parser.schema(_loaded(text, origin), "", 1)


def _loaded(text: str, origin: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionValueError(f"{origin} is not JSON: {error}", option=OPTION) from None


class _SchemaParser:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._named: dict[str, Avro] = {}
        self._open: set[str] = set()

    def schema(self, given: Any, namespace: str, depth: int) -> Avro:
        if depth > MAX_DEPTH:
            raise self._too_deep()
        match given:
            case str() if given in PRIMITIVES:
                return Avro(given, empty=given == "null")
            case str():
                return self._reference(given, namespace)
            case list():
                return self._union(given, namespace, depth)
            case {"type": str(kind)} if kind in PRIMITIVES:
                decimal = _decimal(given) if kind == "bytes" else None
                return Avro(kind, _logical(given), decimal=decimal, empty=kind == "null")
            case {"type": "array", "items": items}:
                return self._container("array", (self.schema(items, namespace, depth + 1),))
            case {"type": "map", "values": values}:
                return self._container("map", (self.schema(values, namespace, depth + 1),))
            case {"type": "record" | "enum" | "fixed", "name": str(name)} if name:
                return self._define(given, _full_name(name, given.get("namespace"), namespace), depth)
            case {"type": "array" | "map" | "record" | "enum" | "fixed" as kind}:
                needed = {"array": "items", "map": "values"}.get(kind, "name")
                raise self._wrong(f"{kind} without '{needed}'")
            case {"type": str(kind)}:
                return self._reference(kind, namespace)
            case {"type": inner}:
                return self.schema(inner, namespace, depth + 1)
        raise self._wrong(f"{shorten(json.dumps(given))} is not a type")

    def _reference(self, name: str, namespace: str) -> Avro:
        full = _full_name(name, None, namespace)
        if full in self._open:
            return Avro(RECURSIVE, name=full)
        if full not in self._named:
            raise self._wrong(f"the type {shorten(full)!r} is not defined (before it is used)")
        return self._named[full]

    def _union(self, given: list[Any], namespace: str, depth: int) -> Avro:
        branches = tuple(self.schema(branch, namespace, depth + 1) for branch in given)
        if not branches:
            raise self._wrong("a union needs branches")
        if any(branch.type == "union" for branch in branches):
            raise self._wrong("a union cannot contain a union")
        if len({branch.name or branch.type for branch in branches}) < len(branches):
            raise self._wrong("a union cannot contain the same type twice")
        return self._container("union", branches)

    def _define(self, given: dict[str, Any], full: str, depth: int) -> Avro:
        if full in self._named or full in self._open:
            raise self._wrong(f"the type {shorten(full)!r} is defined twice")
        match given:
            case {"type": "record", "fields": list(fields)}:
                self._open.add(full)
                made = self._record(fields, full, _aliases(given, full), depth)
                self._open.discard(full)
            case {"type": "enum", "symbols": list(symbols)}:
                made = self._enum(given, symbols, full)
            case {"type": "fixed", "size": int(size)} if _is_size(size):
                made = Avro(
                    "fixed",
                    _logical(given),
                    full,
                    _aliases(given, full),
                    size,
                    decimal=_decimal(given),
                    empty=size == 0,
                )
            case {"type": kind}:
                needed = {"record": "a list of 'fields'", "enum": "a list of 'symbols'"}.get(kind, "a 'size'")
                raise self._wrong(f"the {kind} {full} needs {needed}")
        self._named[full] = made
        return made

    def _enum(self, given: dict[str, Any], symbols: list[Any], full: str) -> Avro:
        if not all(isinstance(symbol, str) for symbol in symbols):
            raise self._wrong(f"the symbols of the enum {full} are strings")
        if len(set(symbols)) < len(symbols):
            raise self._wrong(f"the enum {full} has a symbol twice")
        default = given.get("default")
        if default is not None and default not in symbols:
            raise self._wrong(f"the default of the enum {full} is not one of its symbols")
        return Avro("enum", name=full, aliases=_aliases(given, full), symbols=tuple(symbols), symbol=default)

    def _record(self, fields: list[Any], full: str, aliases: tuple[str, ...], depth: int) -> Avro:
        namespace = full.rpartition(".")[0]
        types: dict[str, Avro] = {}
        found: list[Field] = []
        for given in fields:
            match given:
                case {"name": str(name), "type": kind} if name not in types:
                    types[name] = self.schema(kind, namespace, depth + 1)
                    others = given.get("aliases")
                    named = tuple(a for a in others if isinstance(a, str)) if isinstance(others, list) else ()
                    found.append(Field(name, named, (given["default"],) if "default" in given else ()))
                case {"name": str(name), "type": _}:
                    raise self._wrong(f"the record {full} has the field {shorten(name)!r} twice")
                case _:
                    raise self._wrong(f"a field of the record {full} needs a 'name' and a 'type'")
        return self._container("record", tuple(types.values()), full, aliases, tuple(found))

    def _container(
        self,
        kind: str,
        parts: tuple[Avro, ...],
        name: str = "",
        aliases: tuple[str, ...] = (),
        fields: tuple[Field, ...] = (),
    ) -> Avro:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > MAX_DEPTH:  # by references, too
            raise self._too_deep()
        empty = kind == "record" and all(part.empty for part in parts)
        return Avro(kind, name=name, aliases=aliases, fields=fields, parts=parts, depth=depth, empty=empty)

    def _wrong(self, reason: str) -> OptionValueError:
        return OptionValueError(f"{self._origin} is not an Avro schema: {reason}", option=OPTION)

    def _too_deep(self) -> UnsupportedSqlError:
        return UnsupportedSqlError(
            f"{self._origin} is nested deeper than {MAX_DEPTH} levels",
            remedy="let the writer send a flatter record",
        )


def _is_size(size: int) -> bool:
    return type(size) is int and 0 <= size <= _LARGEST_FIXED


def _full_name(name: str, namespace: Any, enclosing: str) -> str:
    if "." in name:
        return name.removeprefix(".")
    space = namespace if isinstance(namespace, str) else enclosing
    return f"{space}.{name}" if space else name


def _aliases(given: dict[str, Any], full: str) -> tuple[str, ...]:
    """The other full names of a type; what is not a name is ignored, as the specification has it."""
    others = given.get("aliases")
    if not isinstance(others, list):
        return ()
    namespace = full.rpartition(".")[0]
    return tuple(_full_name(other, None, namespace) for other in others if isinstance(other, str) and other)


def _logical(given: dict[str, Any]) -> str | None:
    logical = given.get("logicalType")
    return logical if isinstance(logical, str) else None


def _decimal(given: dict[str, Any]) -> tuple[int, int] | None:
    """An invalid logical type is ignored, as the specification has it."""
    if given.get("logicalType") != "decimal":
        return None
    match given.get("precision"), given.get("scale", 0):
        case (int(precision), int(scale)) if 0 <= scale <= precision and precision > 0:
            return precision, scale
    return None
