"""What pages are made of: a table, a graph, bytes, tiles, panels, questions. Data goes in as text and as nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nicegui import ui
from nicegui.element import Element

STATIC: Final = Path(__file__).parent.parent / "static"


def static(name: str) -> str:
    """The address of a file of ours. It has the file's digest in it, so that a browser may keep it for ever."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


class Grid(Element, component=STATIC / "grid.js"):
    """A dense table; `static/grid.js` says what a cell may be. `current` is the row that is open."""

    def __init__(
        self,
        label: str,
        columns: Sequence[Mapping[str, Any]],
        *,
        on_open: Callable[[str], Any] | None = None,
        on_select: Callable[[list[str]], Any] | None = None,
    ) -> None:
        super().__init__()
        self._props["label"] = label
        self._props["columns"] = [dict(column) for column in columns]
        self._props["rows"] = []
        if on_open is not None:
            self._props["clickable"] = True
            self.on("open", lambda event: on_open(str(event.args)))
        if on_select is not None:
            self._props["selectable"] = True
            self._props["selected"] = []

            def chosen(ids: list[str]) -> Any:
                self.select(ids)
                return on_select(ids)

            self.on("select", lambda event: chosen([str(id) for id in event.args]))

    @property
    def selected(self) -> list[str]:
        return list(self._props.get("selected", []))

    def select(self, ids: Sequence[str]) -> None:
        self._props["selected"] = list(ids)
        self.update()

    def columns(self, columns: Sequence[Mapping[str, Any]]) -> None:
        if self._props["columns"] != [dict(column) for column in columns]:
            self._props["columns"] = [dict(column) for column in columns]
            self.update()

    def show(self, rows: Sequence[Mapping[str, Any]], current: str | None = None) -> None:
        """These rows, if they are others than those that are shown."""
        if self._props["rows"] != rows or self._props.get("current") != current:
            self._props["rows"] = rows
            self._props["current"] = current
            self.update()


class Graph(Element, component=STATIC / "graph.js"):
    """The pipeline; `layout.py` makes its columns."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._props["label"] = label

    def show(self, columns: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, str]]) -> None:
        if self._props.get("columns") != columns or self._props.get("edges") != edges:
            self._props["columns"] = columns
            self._props["edges"] = edges
            self.update()


class Bytes(Element, component=STATIC / "bytes.js"):
    """A payload in parts: `{text, bad, dim}`."""

    def __init__(self, label: str, parts: Sequence[Mapping[str, Any]], *, hex: bool = False) -> None:
        super().__init__()
        self._props["label"] = label
        self._props["parts"] = [dict(part) for part in parts]
        self._props["hex"] = hex


def text(words: str, classes: str = "", tag: str = "div") -> ui.label:
    """Words in an element of their own."""
    label = ui.label(words).classes(classes)
    label.tag = tag
    return label


def dress(element: Element, classes: str) -> None:
    """Other classes; what is hidden stays hidden, which is a class, too."""
    element.classes(replace=classes if element.visible else f"{classes} hidden")


@contextmanager
def box(classes: str = "", tag: str = "div") -> Iterator[Element]:
    with ui.element(tag).classes(classes) as element:
        yield element


@contextmanager
def panel(title: str | None = None, *, flush: bool = False, note: str = "") -> Iterator[Element]:
    """A card with a heading."""
    with ui.element("section").classes("panel" + (" flush" if flush else "")) as element:
        if title is not None:
            element._props["aria-label"] = title
            with box("panel-head"):
                text(title, tag="h2")
                if note:
                    text(note, "muted small")
        yield element


class Tile:
    """A number with its name."""

    def __init__(self, label: str) -> None:
        with box("tile"):
            text(label, "tile-label")
            self._value = text("–", "tile-value")
            self._note = text("", "tile-note")

    def show(self, value: str, note: str = "", tone: str = "") -> None:
        self._value.set_text(value)
        self._note.set_text(note)
        dress(self._value, f"tile-value {tone}".strip())


def tiles(*labels: str) -> list[Tile]:
    with box("tiles"):
        return [Tile(label) for label in labels]


def badge(words: str, tone: str = "") -> ui.label:
    return text(words, f"badge {tone}".strip(), "span")


def button(
    words: str,
    action: Callable[..., Any] | None = None,
    *,
    kind: str = "plain",
    icon: str | None = None,
    disabled: bool = False,
) -> ui.button:
    """`kind`: plain, main-action, danger or ghost."""
    made = ui.button(words, on_click=action, icon=icon, color=None).classes(kind).props("unelevated no-caps")
    if disabled:
        made.disable()
    return made


def icon_button(name: str, label: str, action: Callable[..., Any] | None = None) -> ui.button:
    """A button without words has a name for those who do not see it."""
    made = ui.button(icon=name, on_click=action, color=None).classes("ghost").props("flat dense")
    made._props["aria-label"] = label
    made._props["title"] = label
    return made


def empty(title: str, hint: str = "", command: str = "") -> None:
    """Nothing here: why, and what to do about it."""
    with box("empty"):
        text(title, "empty-title")
        if hint:
            text(hint)
        if command:
            text(command, tag="code")


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    with box("facts", "dl"):
        for name, value in pairs:
            text(name, tag="dt")
            text(value, tag="dd")


def named(field: Any, label: str) -> Any:
    """A field with a name for those who do not see its label."""
    field._props["aria-label"] = label
    return field


async def confirm(
    title: str, words: str, action: str, *, danger: bool = False, reason: str | None = None
) -> str | None:
    """Ask. None: no. Otherwise what was given as the reason, or an empty text where none is asked for."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        dialog._props["aria-label"] = title
        text(title, tag="h2")
        if words:
            text(words, "pre anywhere")
        given = ui.input(reason).props("outlined dense autofocus") if reason else None
        with box("line"):
            ui.space()
            button("Cancel", lambda: dialog.submit(None))

            def agreed() -> None:
                if given is not None and not str(given.value or "").strip():
                    given.props("error")
                    return
                dialog.submit("" if given is None else str(given.value).strip())

            button(action, agreed, kind="danger" if danger else "main-action")
    answer = await dialog
    dialog.delete()
    return None if answer is None else str(answer)


class Pager:
    """Which part of a long list is shown."""

    def __init__(self, size: int, turned: Callable[[], Any]) -> None:
        self.page, self.size, self._turned = 0, size, turned
        with box("pager") as self._bar:
            self._back = icon_button("chevron_left", "Previous page", lambda: self._turn(-1))
            self._words = text("", tag="span")
            self._on = icon_button("chevron_right", "Next page", lambda: self._turn(1))
        self._words._props["aria-live"] = "polite"

    def _turn(self, by: int) -> Any:
        self.page = max(0, self.page + by)
        return self._turned()

    def first(self) -> None:
        self.page = 0

    def show(self, total: int) -> None:
        last = max(0, (total - 1) // self.size)
        self.page = min(self.page, last)
        begin = self.page * self.size
        self._words.set_text(f"{min(begin + 1, total):,}–{min(begin + self.size, total):,} of {total:,}")
        self._back.set_enabled(self.page > 0)
        self._on.set_enabled(self.page < last)
        self._bar.set_visibility(total > self.size)

    def cut(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows of this page; all of them are here."""
        self.show(len(rows))
        return rows[self.page * self.size : (self.page + 1) * self.size]
