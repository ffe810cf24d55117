"""Statements back to text: canonical, pretty, and parsing to an equal statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from forebay.sql import statements as st
from forebay.sql.clauses import INCLUDED
from forebay.sql.text import identifier, string

Mask = Callable[[str, str], str]

_FORMATS = frozenset({"json", "avro", "protobuf", "csv", "raw", "debezium-json"})
_REGISTRY = "schema.registry."
_EMITS = {"changes": "EMIT CHANGES", "window_close": "EMIT ON WINDOW CLOSE"}


def to_sql(statement: st.Statement, mask: Mask | None = None) -> str:
    """The statement's canonical text, without a semicolon.

    `mask(key, text)` gives the text to print for an option's value: the caller hides secrets with it.
    """
    printed = mask or (lambda _key, text: text)
    match statement:
        case st.CreateSource():
            return _create_source(statement, printed)
        case st.AlterSource():
            return f"ALTER SOURCE {identifier(statement.name)} {_on_error(statement.on_error, printed)}"
        case st.SetSource():
            return f"ALTER SOURCE {identifier(statement.name)} SET ({', '.join(_pairs(statement.options, printed))})"
        case st.CreateView():
            head = (
                f"CREATE {_flags(statement.or_replace)}MATERIALIZED VIEW {_exists(statement.if_not_exists)}"
            )
            options = f" WITH ({', '.join(_pairs(statement.options, printed))})" if statement.options else ""
            lines = [f"{head}{identifier(statement.name)}{options} AS", st.query_text(statement.query)]
            return "\n".join(
                [*lines, *_late(statement.late), *([_EMITS[statement.emit]] if statement.emit else [])]
            )
        case st.Drop():
            kind = {"source": "SOURCE", "view": "MATERIALIZED VIEW", "sink": "SINK"}[statement.kind]
            exists = "IF EXISTS " if statement.if_exists else ""
            return (
                f"DROP {kind} {exists}{identifier(statement.name)}{' CASCADE' if statement.cascade else ''}"
            )
        case st.Show():
            return f"SHOW {statement.kind.upper()}"
        case st.ShowCreate():
            return f"SHOW CREATE {statement.kind.upper()} {identifier(statement.name)}"
        case st.Describe():
            extended = "EXTENDED " if statement.extended else ""
            kind = f"{statement.kind.upper()} " if statement.kind else ""
            return f"DESCRIBE {extended}{kind}{identifier(statement.name)}"
        case st.StartView():
            return f"START VIEW {identifier(statement.name)}"
        case st.DetachView():
            return f"ALTER VIEW {identifier(statement.name)} DETACH"
        case st.StopView():
            return f"STOP VIEW {identifier(statement.name)}"
        case st.PauseSource():
            return f"PAUSE SOURCE {identifier(statement.name)}"
        case st.ResumeSource():
            return f"RESUME SOURCE {identifier(statement.name)}"
        case st.Explain():
            return f"EXPLAIN {to_sql(statement.statement, mask)}"
        case st.Select():
            return st.query_text(statement.query)
        case st.Subscribe():
            return f"SUBSCRIBE {identifier(statement.view)}"
        case st.ReplayDeadLetters():
            clauses = {"TO": statement.target, "PATCH": statement.patch}
            return _letters("REPLAY", statement.source, statement.where, clauses, statement.dry_run)
        case st.DiscardDeadLetters():
            return _letters(
                "DISCARD", statement.source, statement.where, {"REASON": statement.reason}, statement.dry_run
            )
        case st.ReopenDeadLetters():
            return _letters("REOPEN", statement.source, statement.where, {}, statement.dry_run)
        case st.RecoverDeadLetters():
            return _letters("RECOVER", statement.source, None, {}, statement.dry_run)


def _letters(verb: str, source: str, where: Any, clauses: Mapping[str, str | None], dry_run: bool) -> str:
    parts = [f"{verb} DEAD LETTERS FROM {identifier(source)}"]
    if where is not None:
        parts.append(f"WHERE {st.query_text(where)}")
    parts += [f"{word} {string(text)}" for word, text in clauses.items() if text is not None]
    return " ".join(parts + (["DRY RUN"] if dry_run else []))


def _late(late: st.LateClause) -> list[str]:
    lines = [f"ALLOW LATENESS {st.interval_text(late.allowed_ms)}"] if late.allowed_ms else []
    if late.kept:
        lines.append(f"LATE DATA TO {'DEAD LETTERS' if late.table is None else identifier(late.table)}")
    return lines


def _flags(or_replace: bool) -> str:
    return "OR REPLACE " if or_replace else ""


def _exists(if_not_exists: bool) -> str:
    return "IF NOT EXISTS " if if_not_exists else ""


def _create_source(source: st.CreateSource, mask: Mask) -> str:
    with_spelling = source.spelling == "with"
    kind = "SOURCE TABLE" if with_spelling else "SOURCE"
    parts = [
        f"CREATE {_flags(source.or_replace)}{kind} {_exists(source.if_not_exists)}{identifier(source.name)}"
    ]
    if source.columns:
        parts[0] += " " + _block(_columns(source))
    options = dict(source.options)
    if with_spelling:
        block = _block([f"'connector' = {string(source.connector)}", *_pairs(options, mask)])
        parts[0] += f" WITH {block}"
    else:
        clauses = _clauses(options, mask)
        parts[0] += f" FROM {source.connector.upper()} {_block(_pairs(options, mask))}"
        parts += clauses
    if source.on_error:
        parts.append(_on_error(source.on_error, mask))
    return "\n".join(parts)


def _columns(source: st.CreateSource) -> list[str]:
    from forebay.sql.types import type_name  # only a source has types

    lines = [
        f"{identifier(column.name)} {type_name(column.type)}{'' if column.nullable else ' NOT NULL'}"
        for column in source.columns
    ]
    if source.watermark:
        watermark = source.watermark
        line = f"WATERMARK FOR {identifier(watermark.column)}"
        line = line if watermark.delay_ms is None else f"{line} AS {watermark.text}"
        lines.append(f"{line} PER KEY {identifier(watermark.key)}" if watermark.key else line)
    return lines


def _clauses(options: dict[str, st.OptionValue], mask: Mask) -> list[str]:
    """FORMAT, USING SCHEMA REGISTRY and INCLUDE, whose options are taken out of `options`."""
    clauses = []
    name = options["format"].text if "format" in options else ""
    if name in _FORMATS:
        del options["format"]
        own = _take(options, f"{name}.")
        clauses.append(
            f"FORMAT {name.upper().replace('-', '_')}"
            + (f" {_block(_pairs(own, mask, f'{name}.'))}" if own else "")
        )
    registry = _take(options, _REGISTRY)
    if registry:
        clauses.append(f"USING SCHEMA REGISTRY {_block(_pairs(registry, mask, _REGISTRY))}")
    included = [
        f"{what} AS {identifier(options.pop(key).text)}"
        for what in INCLUDED
        if (key := f"include.{what.lower()}.as") in options and options[key].text
    ]
    if included:
        clauses.append(f"INCLUDE {', '.join(included)}")
    return clauses


def _take(options: dict[str, st.OptionValue], prefix: str) -> dict[str, st.OptionValue]:
    # A key must not be empty, so one that is nothing but the prefix stays where it is.
    keys = [key for key in options if key.startswith(prefix) and key[len(prefix) :].strip()]
    return {key: options.pop(key) for key in keys}


def _pairs(options: Mapping[str, st.OptionValue], mask: Mask, prefix: str = "") -> list[str]:
    return [
        f"{_key(key.removeprefix(prefix))} = {string(mask(key, value.text))}"
        for key, value in options.items()
    ]


def _key(key: str) -> str:
    # Bare keys are lower case, and their underscores mean dots.
    plain = key.isascii() and key.isidentifier() and key.islower() and "_" not in key
    return key if plain else string(key)


def _on_error(on_error: st.OnError, mask: Mask) -> str:
    head = f"ON ERROR = {string(on_error.strategy)}"
    if not on_error.options:
        return head
    lines = [
        f"{key if key.isidentifier() and key.isascii() else string(key)} = {string(mask(key, value.text))}"
        for key, value in on_error.options.items()
    ]
    return f"{head} WITH {_block(lines)}"


def _block(lines: Iterable[str]) -> str:
    body = ",\n".join(f"  {line}" for line in lines)
    return f"(\n{body}\n)" if body else "()"
