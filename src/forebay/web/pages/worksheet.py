"""SQL: completion, a caret at what is wrong, the result as a table and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from forebay.web.model import Completion, Execution, ShownTable, StatementAnswer
from forebay.web.pages import charts, parts, tables, words
from forebay.web.pages.editor import Editor
from forebay.web.pages.frame import Face, call

LIMIT: Final = 1000
DRAWN: Final = 500  # rows of a chart


async def show(face: Face, text: str = "") -> None:
    async def offers(typed: str, cursor: int) -> Sequence[Completion]:
        return await call(face.backend.complete, typed, cursor)

    with face.page("/sql", "SQL"):
        with parts.box("line"):
            parts.text("SQL", tag="h1")
            parts.text("Ctrl+Enter runs it, Ctrl+Space completes", "muted small no-phone", "span")
            ui.space()
            run = parts.button("Run", lambda: execute(), kind="main-action", icon="play_arrow")
        editor = Editor(
            "SQL statements", text or "SHOW SOURCES;", "SQL", on_run=lambda: execute(), offers=offers
        )
        with parts.box("stack loose") as results:
            results._props["aria-live"] = "polite"
            parts.empty(
                "Nothing has run yet.",
                "Every view and source can be asked; statements that change something are in the audit log.",
            )

    async def execute() -> None:
        run.disable()
        try:
            done = await face.attempt(face.backend.execute, editor.value, face.actor, LIMIT)
        finally:
            run.enable()
        if done is not None:
            _mark(editor, done)
            results.clear()
            with results:
                _show(done)


def _mark(editor: Editor, done: Execution) -> None:
    """Underline the place that is wrong."""
    error = done.error
    lines = editor.value.split("\n")
    if error is None or error.line is None or error.column is None or not 1 <= error.line <= len(lines):
        editor.underline()
        return
    begin = sum(len(line) + 1 for line in lines[: error.line - 1]) + min(
        error.column - 1, len(lines[error.line - 1])
    )
    end = begin
    while end < len(editor.value) and (editor.value[end].isalnum() or editor.value[end] in "_."):
        end += 1
    editor.underline((begin, max(end, min(begin + 1, len(editor.value)))))


def _show(done: Execution) -> None:
    error = done.error
    if error is not None:
        with parts.panel():
            with parts.box("line"):
                parts.badge(error.code, "bad")
                parts.text(error.message, "bad anywhere pre grow")
            if error.caret:
                parts.text(error.caret, "definition", "pre")._props["tabindex"] = "0"
            if error.remedy:
                parts.text(error.remedy, "muted")
    for place, answer in enumerate(reversed(done.answers)):
        _answer(answer, place)
    if not done.answers and error is None:
        parts.empty("There was no statement.", "Type one above.")


def _answer(answer: StatementAnswer, place: int) -> None:
    with parts.panel(flush=answer.table is not None):
        with parts.box("panel-head"):
            parts.text(answer.statement[:200], "mono muted small anywhere grow")
            parts.text(f"{answer.took_ms:,} ms", "muted small")
        if answer.words:
            parts.text(answer.words, "pre anywhere").style("padding: 0 16px 12px" if answer.table else "")
        for note in answer.notes:
            parts.text(note, "muted small").style("padding: 0 16px" if answer.table else "")
        if answer.table is not None:
            _table(answer.table, place)


def _table(table: ShownTable, place: int) -> None:
    if not table.rows:
        parts.empty("No row.")
        return
    drawable = tables.numbers(table)
    with parts.box("line") as bar:
        bar.style("padding: 0 16px")
        cut = (
            " (there are more)"
            if table.cut < 0
            else f" of {len(table.rows) + table.cut:,}"
            if table.cut
            else ""
        )
        parts.text(f"{words.many(len(table.rows), 'row')}{cut}", "muted small")
        ui.space()
    if drawable:
        with bar:
            kind = ui.toggle({"table": "Table", "bar": "Bars", "line": "Lines"}, value="table").props(
                "no-caps dense unelevated"
            )
    inside = ui.element("div")

    def draw() -> None:
        inside.clear()
        with inside:
            if drawable and kind.value != "table":
                _chart(table, drawable, kind.value == "line")
                return
            grid = parts.Grid("Result", tables.columns(table))
            pager = parts.Pager(100, lambda: turn())

            def turn() -> None:
                grid.show(tables.rows(ShownTable(table.columns, pager.cut(table.rows)), pager.page * 100))

            turn()

    if drawable:
        kind.on_value_change(draw)
    draw()


def _chart(table: ShownTable, drawable: Sequence[int], line: bool) -> None:
    """Numbers over the first column that is none, or over the first column."""
    across = next((place for place in range(len(table.columns)) if place not in drawable), 0)
    up = [place for place in drawable if place != across][:6] or list(drawable[:1])
    rows = table.rows[:DRAWN]
    charts.bars(
        "Chart of the result",
        [words.plain(row[across]) for row in rows],
        {f"{place + 1}. {table.columns[place].name}": [_number(row[place]) for row in rows] for place in up},
        line,
    )


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
