"""What every page stands in: the bar on top, the way to the other pages, light or dark, and how a page stays live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from nicegui import ui
from starlette.requests import Request

from forebay.errors import ForebayError
from forebay.web.backend import Backend
from forebay.web.pages import parts

log = logging.getLogger("forebay.web")

P = ParamSpec("P")
R = TypeVar("R")

PAGES: Final = (
    ("/", "Overview", "account_tree"),
    ("/sources", "Sources", "input"),
    ("/letters", "Dead letters", "mark_email_unread"),
    ("/views", "Views", "table_chart"),
    ("/sql", "SQL", "terminal"),
    ("/topics", "Topics", "dns"),
    ("/pools", "Pools", "hub"),
    ("/agents", "Agents", "smart_toy"),
    ("/events", "Events", "history"),
    ("/audit", "Audit", "verified_user"),
)

# NiceGUI's own threads end with the first server of a process, and a live tail holds one while it waits.
_THREADS: Final = ThreadPoolExecutor(16, thread_name_prefix="forebay-page")

LIVE_S: Final = 2.0  # how often a page looks: the sampler behind it takes about as long
_HEAD: Final = (
    f'<script src="{parts.static("theme.js")}"></script><link rel="stylesheet" href="{parts.static("forebay.css")}">'
    '<meta name="referrer" content="same-origin">'
)


class Face:
    """What a page has at hand: the backend, who asks, and where words go."""

    def __init__(self, backend: Backend, request: Request) -> None:
        self.backend = backend
        self.actor = str(getattr(request.state, "actor", None) or "dashboard")
        self._logged_in = getattr(request.state, "login", None) is not None
        self._trouble: ui.label | None = None

    @property
    def read_only(self) -> bool:
        return bool(self.backend.read_only)

    async def attempt(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Do something that a person asked for. What goes wrong is said; then the answer is None."""
        try:
            return await call(function, *args, **kwargs)
        except ForebayError as error:
            say(str(error.message), error.remedy or "", bad=True)
        return None

    async def look(self, refresh: Callable[[], Awaitable[Any]]) -> None:
        """Refresh a page. What goes wrong stands on top of it until it goes well again."""
        try:
            await refresh()
        except ForebayError as error:
            self._say_trouble(f"{error.message}. {error.remedy or ''}".strip())
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:  # a page that cannot be refreshed says so, and goes on
            log.warning("event=page_refresh_failed error=%s", type(error).__name__, exc_info=True)
            self._say_trouble(
                f"This page cannot be refreshed ({type(error).__name__}). The server's log has the reason."
            )
        else:
            self._say_trouble("")

    async def live(self, refresh: Callable[[], Awaitable[Any]], every: float = LIVE_S) -> None:
        """Refresh now, and then again and again as long as somebody looks."""
        await self.look(refresh)
        ui.timer(every, lambda: self.look(refresh), immediate=False)

    def _say_trouble(self, words: str) -> None:
        if self._trouble is not None and self._trouble.text != words:
            self._trouble.set_text(words)
            self._trouble.set_visibility(bool(words))

    @contextmanager
    def page(self, here: str, title: str) -> Iterator[None]:
        """The frame around a page's content; `here` is the entry of the navigation that it belongs to."""
        ui.page_title(f"{title} · Forebay")
        ui.add_head_html(_HEAD)
        theme = ui.context.client.request.cookies.get("forebay-theme", "auto")
        ui.dark_mode({"light": False, "dark": True}.get(theme))
        _no_main()
        with parts.box("frame"):
            with parts.box("top", "header"):
                with parts.box("brand", "a") as brand:
                    brand._props["href"] = "/"
                    _mark()
                    parts.text("Forebay", tag="span")
                parts.text(str(self.backend.home), "where")
                ui.space()
                if self.read_only:
                    parts.badge("read-only", "hold")
                if self.backend.hide_payloads:
                    parts.badge("payloads hidden", "hold")
                parts.icon_button("contrast", "Light, dark or as the system").on(
                    "click", js_handler="() => window.forebayTheme()"
                )
                if self._logged_in:
                    with parts.box("", "form") as out:
                        out._props.update({"method": "post", "action": "/logout"})
                        parts.icon_button("logout", "Log out").props("type=submit")
            with parts.box("side", "nav") as nav:
                nav._props["aria-label"] = "Pages"
                for path, name, icon in PAGES:
                    with parts.box("", "a") as entry:
                        entry._props["href"] = path
                        if path == here:
                            entry._props["aria-current"] = "page"
                        ui.icon(icon).props("aria-hidden=true")
                        parts.text(name, tag="span")
            with parts.box("", "main") as main:
                main._props["tabindex"] = "-1"
                self._trouble = parts.text("", "notice bad")
                self._trouble._props["role"] = "alert"
                self._trouble.set_visibility(False)
                yield
        ui.skip_link(target=main)


async def call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call what blocks, in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(function, *args, **kwargs))


def say(words: str, more: str = "", *, bad: bool = False) -> None:
    """A short word in the corner; text, and never markup."""
    ui.notify(
        words if not more else f"{words} {more}", color="negative" if bad else "dark", position="bottom-right",
        timeout=9000 if bad else 4000, multi_line=True, html=False, close_button="Close" if bad else False,
    )  # fmt: skip


def _no_main() -> None:
    """Quasar makes the whole page a `main`; ours is inside it, beside the navigation, and there is to be one of them."""
    slot = ui.context.client.content.parent_slot
    if slot is not None:
        slot.parent.tag = "div"


def _mark() -> None:
    """The mark: water before a gate."""
    with parts.box("brand-mark", "svg") as svg:
        svg._props.update({"viewBox": "0 0 24 24", "aria-hidden": "true", "fill": "none"})
        for shape, props in (
            ("rect", {"x": "1", "y": "1", "width": "22", "height": "22", "rx": "6", "fill": "#0a5bb8"}),
            ("path", {"d": "M4 10c2-2 4-2 6 0s4 2 6 0", "stroke": "#fff", "stroke-width": "2", "stroke-linecap": "round"}),
            ("path", {"d": "M4 15c2-2 4-2 6 0s4 2 6 0", "stroke": "#9cc8f7", "stroke-width": "2", "stroke-linecap": "round"}),
            ("path", {"d": "M19.5 5v14", "stroke": "#fff", "stroke-width": "2", "stroke-linecap": "round"}),
        ):  # fmt: skip
            ui.element(shape)._props.update(props)
