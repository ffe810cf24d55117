"""What a source's `mask` hides, in all that the dashboard shows of it: records, rows of views, answers of SELECTs.

A value is hidden by the name of its column, and of a view by the names that the view gives to what it makes of such columns. A
SELECT may name a masked column in its list and nowhere else: under another name, in an expression or in a condition it would be
shown, or could be searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.errors import ForebayError, RefusedRequestError
from forebay.hiding import HIDDEN, Mask
from forebay.web.ground import Ground
from forebay.web.model import ShownTable
from forebay.web.topic_names import reads_topic

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

    from forebay.catalog import Definition
    from forebay.deadletter.masked import LetterMask
    from forebay.sql import Statement


class Masks:
    """Of the sources of a home. Options are read anew each time: a source may have been replaced."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def of_source(self, source: str) -> Mask:
        text = self._ground.sources.facts(source).options.get("mask", "")
        return Mask(tuple(part.strip() for part in text.split(",") if part.strip()))

    def of_sources(self, sources: Iterable[str]) -> Mask:
        """All of them together; of one that is gone there is none."""
        found: dict[str, None] = {}
        for name in sources:
            try:
                found |= dict.fromkeys(self.of_source(name).patterns)
            except ForebayError:
                continue
        return Mask(tuple(found))

    def of_view(self, view: str) -> Mask:
        """What its sources hide, and the columns that it makes of that."""
        known = self._ground.catalog.get(view)
        return Mask() if known is None else self._of_view(known)

    def _of_view(self, view: Definition) -> Mask:
        from forebay.runtime.definitions import view_statement
        from forebay.sql.masked_outputs import masked_outputs
        from forebay.web.masked_types import holds

        sources = view.detail.get("sources", ())
        mask = self.of_sources(sources)
        if not mask:
            return mask
        schemas = [self._schema(each) for each in sources]
        return masked_outputs(
            view_statement(view.sql).query,
            mask,
            lambda path: any(holds(each, path, mask) for each in schemas),
        )

    def _schema(self, source: str) -> pa.Schema | None:
        try:
            return self._ground.connector(source).full_schema()
        except ForebayError:  # a registry or a secret that it takes to know the types
            return None

    def of_tables(self, names: Iterable[str]) -> Mask:
        """Of views, of their tables of late rows, and of sources."""
        patterns: dict[str, None] = {}
        for name in names:
            known = self._ground.catalog.get(name)
            if known is None:
                continue
            if known.kind == "source":
                patterns |= dict.fromkeys(self.of_sources([name]).patterns)
            elif known.kind == "view":
                patterns |= dict.fromkeys(self._of_view(known).patterns)
            else:  # late rows have the columns of the view's source
                owner = self._ground.catalog.get(str(known.detail.get("view", "")))
                sources = {
                    *known.detail.get("sources", ()),
                    *(owner.detail.get("sources", ()) if owner else ()),
                }
                patterns |= dict.fromkeys(self.of_sources(sorted(sources)).patterns)
        return Mask(tuple(patterns))

    # -- tables --------------------------------------------------------------------------------------------

    def check(self, statement: Statement) -> Mask:
        """What its answer must not show; RefusedRequestError where that could not be kept."""
        from forebay import sql

        inner = statement.statement if isinstance(statement, sql.Explain) else statement
        if not isinstance(inner, sql.Select):
            return Mask()
        mask = self.of_tables(sql.tables(inner.query))
        if mask and (reason := _leak(inner.query, mask)):
            raise RefusedRequestError(
                f"a masked column may be named in the list of a SELECT alone: {reason}",
                remedy=f"leave it out; masked are: {', '.join(mask.patterns)}",
            )
        return mask

    # -- records -------------------------------------------------------------------------------------------

    def of_topic(self, topic: str, source: str | None) -> list[tuple[str, LetterMask]]:
        """Who reads a topic, or has letters in it, and hides something of its records."""
        from forebay.deadletter.masked import LetterMask

        found = []
        for name in self._ground.sources.names():
            try:
                mask = self.of_source(name)
                if mask and (name == source or self._concerns(name, topic)):
                    found.append((name, LetterMask(mask, lambda name=name: self._decoding(name))))  # type: ignore[misc]
            except ForebayError:
                continue
        return found

    def _concerns(self, source: str, topic: str) -> bool:
        return topic == self._ground.sources.policy(source).topic or reads_topic(
            self._ground.sources.facts(source).options, topic
        )

    def _decoding(self, source: str) -> tuple[Any, Any]:
        connector = self._ground.connector(source)
        return connector.config, connector.options


def masked_table(table: ShownTable, mask: Mask) -> ShownTable:
    """A table without what is masked in it."""
    if not mask:
        return table
    names = [column.name for column in table.columns]
    rows = [
        [
            mask.row(value, (name,)) if value is not None else None
            for name, value in zip(names, row, strict=True)
        ]
        for row in table.rows
    ]
    return replace(table, rows=rows)


def masked_message(
    message: Message, masks: Sequence[tuple[str, LetterMask]]
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers as they may be shown."""
    from forebay.deadletter.letter import Letter

    key, value, headers = message.key(), message.value(), list(message.headers() or ())
    for name, mask in masks:
        letter = Letter(
            name,
            message.topic(),
            message.partition(),
            message.offset(),
            None,
            key,
            value,
            tuple(headers),
            "",
            "",
            0,
        )
        shown = mask.letter(letter)
        key, value, headers = shown.key, shown.value, list(shown.headers)
    return key, value, headers


def _leak(query: Any, mask: Mask) -> str:
    """Why values of a masked column could be seen; empty where they cannot."""
    from sqlglot import exp

    if isinstance(query, exp.SetOperation) or query.find(exp.SetOperation) is not None:
        return "not in a UNION, which gives columns other names"
    for alias in query.find_all(exp.TableAlias):
        if alias.columns:
            return "not of a table whose columns are given other names"
    if query.find(exp.Pivot) is not None:
        return "not in a PIVOT"
    for join in query.find_all(exp.Join):
        if any(mask.names(each.name) for each in join.args.get("using") or ()):
            return "not in a join"
    for star in query.find_all(exp.Star):
        if not isinstance(star.parent, exp.Select | exp.Column | exp.Count):
            return "not by a * in an expression"
    for column in query.find_all(exp.Column):
        path = [part.name for part in column.parts]
        if not isinstance(column.this, exp.Star) and mask.hides(path):
            listed = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
            if not listed:
                return f"{column.sql()} stands elsewhere"
        elif isinstance(column.this, exp.Star) and not isinstance(column.parent, exp.Select):
            return "not by a * in an expression"
    for dot in query.find_all(exp.Dot):
        if mask.hides([part.name for part in dot.parts if hasattr(part, "name")]):
            return f"{dot.sql()} is a part of it"
    return ""


__all__ = ["HIDDEN", "Masks", "masked_message", "masked_table"]
