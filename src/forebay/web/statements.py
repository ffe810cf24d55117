"""SQL of the worksheet and of the API: run in the session, or as far as a home that is only looked at can answer it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forebay import actors
from forebay.errors import (
    BadRequestError,
    ForebayError,
    NeedsSessionError,
    ReadOnlyError,
    RefusedRequestError,
    UnexpectedError,
)
from forebay.runtime.audited import is_change, noted, target_of, verb_of
from forebay.web.failures import failure_of
from forebay.web.ground import Ground
from forebay.web.masks import Masks, masked_table
from forebay.web.model import Completion, Execution, ShownTable, StatementAnswer
from forebay.web.shown import inert, plain_table, table_of

if TYPE_CHECKING:
    from forebay.runtime.results import Result
    from forebay.sql import Statement

MOST_ROWS = 10_000
SHOWN = 200  # characters of a statement beside its answer
_WORD = re.compile(r"[\w.]*$")
_TABLES = re.compile(r"\b(?:FROM|JOIN|VIEW|SOURCE)\s+([A-Za-z_]\w*)", re.IGNORECASE)
MOST_COMPLETIONS = 100
SCHEMAS = ("forebay_catalog", "laminar_catalog")
PAYLOADS = ("dead_letters", "source_errors", "events")  # tables with bytes of records, or words about them


class Statements:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._masks = Masks(ground)

    # -- running -------------------------------------------------------------------------------------------

    def execute(self, script: str, actor: str, limit: int) -> Execution:
        """One after another; the first that fails ends it."""
        answers: list[StatementAnswer] = []
        try:
            from forebay import sql

            statements = sql.parse(script)
        except ForebayError as error:
            return Execution((), failure_of(error))
        for place, statement in enumerate(statements):
            began = time.monotonic()
            try:
                answers.append(self._answer(script, place, statement, actor, limit, began))
            except ForebayError as error:
                return Execution(answers, failure_of(error))
            except Exception as error:
                unexpected = UnexpectedError(f"{type(error).__name__}: {error}")
                return Execution(answers, failure_of(unexpected))
        return Execution(answers)

    def _answer(
        self, script: str, place: int, statement: Statement, actor: str, limit: int, began: float
    ) -> StatementAnswer:
        self._check_hidden(statement)
        mask = self._masks.check(statement)
        action, target = verb_of(statement), target_of(statement)
        if is_change(statement) and self._ground.read_only:
            self._ground.audit.add(
                actor, action, target, outcome="refused", message="the dashboard is read-only"
            )
            raise ReadOnlyError(f"the dashboard is read-only, and does not run {action}")
        with actors.acting_as(actor):
            result = self._run(script, place, statement)
        table = self._table(result, limit)
        table = None if table is None else masked_table(table, mask)
        return StatementAnswer(
            inert(_shown(statement)),
            table,
            inert(result.done),
            [inert(each) for each in result.notes],
            int((time.monotonic() - began) * 1000),
        )

    def _run(self, script: str, place: int, statement: Statement) -> Result:
        session = self._ground.session
        if session is not None:
            return next(session.each(script, skip=place))
        with noted(self._ground.audit, statement) as note:
            result = self._ground.home.run(statement)
            result = self._by_files(statement) if result is None else result
            note.message = result.done
            return result

    def _check_hidden(self, statement: Statement) -> None:
        """Where payloads are hidden, records are not read by SQL either: not of a source, not of a letter."""
        from forebay import sql

        if not self._ground.hide_payloads:
            return
        inner = statement.statement if isinstance(statement, sql.Explain) else statement
        hidden = {
            *self._ground.sources.names(),
            *(f"{schema}.{name}" for schema in SCHEMAS for name in PAYLOADS),
        }
        reads = sql.tables(inner.query) if isinstance(inner, sql.Select) else ()
        extended = isinstance(inner, sql.Describe) and inner.extended
        found = [name for name in reads if name in hidden or name.lower() in hidden]
        if found or extended:
            raise RefusedRequestError(
                f"payloads are hidden, and {found[0] if found else 'DESCRIBE EXTENDED'} may show some",
                remedy="start the dashboard without --hide-payloads, or read a view",
            )

    def _by_files(self, statement: Statement) -> Result:
        """What takes a session in SQL, and works by files of the home all the same."""
        from forebay import sql
        from forebay.runtime.letter_statements import letter_statement
        from forebay.runtime.placing import placed
        from forebay.runtime.results import Result
        from forebay.runtime.source_flow import pause, resume

        ground = self._ground
        with placed(statement):
            match statement:
                case sql.PauseSource():
                    return Result(done=pause(ground.path, ground.catalog, statement.name))
                case sql.ResumeSource():
                    return Result(done=resume(ground.path, ground.catalog, statement.name))
                case sql.AlterSource():
                    return Result(done=altered(ground, statement))
                case (
                    sql.ReplayDeadLetters()
                    | sql.DiscardDeadLetters()
                    | sql.ReopenDeadLetters()
                    | sql.RecoverDeadLetters()
                ):
                    return letter_statement(statement, ground.home.dead_letters(statement.source))
        raise NeedsSessionError(
            f"{verb_of(statement)} takes a session, and this dashboard only looks at the home",
        )

    def alter(self, source: str, clause: str) -> str:
        """ALTER SOURCE … ON ERROR with this clause; StatementError where it is wrong."""
        from forebay import sql

        script = f"ALTER SOURCE {source} ON ERROR = {clause}"
        statements = sql.parse(script)
        if (
            len(statements) != 1
            or not isinstance(statements[0], sql.AlterSource)
            or statements[0].name != source
        ):
            raise BadRequestError("this is no error policy", remedy="skip, fail, or 'dead_letter' WITH (…)")
        return self._run(script, 0, statements[0]).done

    def _table(self, result: Result, limit: int) -> ShownTable | None:
        limit = max(1, min(limit, MOST_ROWS))
        plain = result.plain_rows()
        if plain is not None:
            return plain_table(plain.columns, plain.rows, limit)
        if not result.has_rows():
            return None
        rows = result.first(limit + 1)
        return table_of(rows.slice(0, limit), -1 if rows.num_rows > limit else 0)

    # -- completing ----------------------------------------------------------------------------------------

    def complete(self, text: str, cursor: int) -> list[Completion]:
        """What the word before the cursor may become; whole phrases where the line begins with one."""
        before = text[: max(0, min(cursor, len(text)))]
        found = _WORD.search(before)
        word = found[0] if found else ""
        line = before.split("\n")[-1].lstrip()
        if not word and not line:
            return []
        for typed in (line, word):
            if not typed:
                continue
            made = [
                Completion(choice, kind, -len(typed))
                for kind, choice in self._choices(text)
                if choice.lower().startswith(typed.lower()) and choice.lower() != typed.lower()
            ]
            if made:
                return made[:MOST_COMPLETIONS]
        return []

    def _choices(self, text: str) -> Iterator[tuple[str, str]]:
        from forebay.runtime.catalog_tables import TABLES
        from forebay.sql.phrases import FUNCTIONS, PHRASES

        catalog = self._ground.catalog
        views = {each.name: each for each in catalog.all("view")}
        sources = {each.name: each for each in catalog.all("source")}
        yield from (("view", name) for name in views)
        yield from (("source", name) for name in sources)
        for name in dict.fromkeys(_TABLES.findall(text)):
            yield from (("column", inert(column)) for column in self._columns(name, views, sources))
        yield from (("table", f"forebay_catalog.{name}") for name in TABLES)
        yield from (("keyword", phrase) for phrase in PHRASES)
        yield from (("function", name) for name in FUNCTIONS)

    def _columns(self, name: str, views: dict[str, Any], sources: dict[str, Any]) -> Sequence[str]:
        from forebay.runtime.definitions import table_of_view

        try:
            if name in sources:
                return self._ground.sources.facts(name).columns
            if name in views:
                table = table_of_view(self._ground.path, self._ground.catalog, name)
                return [each.name for each in table.open().schema().fields]
        except Exception:  # a table that is being made: no reason not to complete the rest
            return ()
        return ()


def altered(ground: Ground, statement: Any) -> str:
    """ALTER SOURCE without a session: queries that run elsewhere read the policy from the source's folder."""
    from forebay.connectors.registry import default_registry
    from forebay.runtime.sources import Sources

    sources = Sources(ground.path, ground.catalog, default_registry())
    try:
        return sources.alter(statement)
    finally:
        sources.close()


def _shown(statement: Statement) -> str:
    """Beside its answer. A CREATE SOURCE may have secrets in it, so a statement that changes something is only named."""
    named = f"{verb_of(statement)} {target_of(statement)}".strip()
    text = named if is_change(statement) else statement.text or named
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
