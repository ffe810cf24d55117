"""An editor of SQL or JSON: marks at what is wrong, completion by the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui import ui
from nicegui.element import Element

from forebay.web.model import Completion
from forebay.web.pages.parts import STATIC

Offers = Callable[[str, int], Awaitable[Sequence[Completion]]]


class Editor(Element, component=STATIC / "editor.js"):
    """`value` is what was typed last."""

    def __init__(
        self,
        label: str,
        value: str,
        language: str,
        *,
        on_change: Callable[[], Any] | None = None,
        on_run: Callable[[], Any] | None = None,
        offers: Offers | None = None,
        read_only: bool = False,
    ) -> None:
        _ = ui.codemirror  # it registers the JavaScript that ours imports
        super().__init__()
        self.value = value
        self._props.update({
            "value": value, "language": language, "label": label, "marks": [], "completes": offers is not None, "readonly": read_only,
        })  # fmt: skip

        def changed(event: Any) -> Any:
            self.value = str(event.args)
            return on_change() if on_change is not None else None

        def ran(event: Any) -> Any:
            self.value = str(event.args)
            return on_run() if on_run is not None else None

        async def asked(event: Any) -> None:
            assert offers is not None
            found = await offers(str(event.args["text"]), int(event.args["cursor"]))
            self.run_method(
                "offer", event.args["id"], [{"label": one.text, "kind": one.kind, "start": one.start} for one in found]
            )  # fmt: skip

        self.on("change", changed)
        self.on("run", ran)
        if offers is not None:
            self.on("complete", asked)

    def set(self, value: str) -> None:
        """Show another text."""
        self.value = value
        self._props["value"] = value
        self.update()

    def underline(self, *spans: tuple[int, int]) -> None:
        """Underline these characters, and no others."""
        marks = [list(span) for span in spans]
        if self._props["marks"] != marks:
            # The text that was typed goes along: an update shows all of the element anew.
            self._props["value"] = self.value
            self._props["marks"] = marks
            self.update()
