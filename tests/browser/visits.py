"""A browser's window on the dashboard, and all that it complains about."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

LAPTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PAGES = {
    "overview": "/", "sources": "/sources", "letters": "/letters", "views": "/views", "sql": "/sql", "topics": "/topics",
    "pools": "/pools", "agents": "/agents", "events": "/events", "audit": "/audit",
}  # fmt: skip
SERIOUS = ("serious", "critical")


class Visit:
    """Closing it fails if the page had a dialog, an error on its console, or asked somebody else than the dashboard."""

    def __init__(self, browser: Browser, address: str, screenshots: Path) -> None:
        self.address = address
        self._browser, self._screenshots = browser, screenshots
        self.complaints: list[str] = []
        self.page = self._open(LAPTOP)

    def _open(self, window: dict[str, int], scheme: str = "light") -> Page:
        context = self._browser.new_context(viewport=window, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._asked)
        page.on("request", self._requested)
        return page

    def resize(self, window: dict[str, int], scheme: str = "light") -> Page:
        """A new window of another size or colour."""
        self.page.context.close()
        self.page = self._open(window, scheme)
        return self.page

    def close(self) -> None:
        assert self.page.evaluate("window.pwned") is None
        self.page.context.close()
        assert not self.complaints, self.complaints

    def go(self, path: str, there: str = "main h1") -> float:
        """Open a page; how many seconds until that is on the screen."""
        began = time.monotonic()
        self.page.goto(self.address + path, wait_until="commit")
        self.page.wait_for_selector(there, state="attached")
        return time.monotonic() - began

    def shoot(self, name: str, *, full: bool = False) -> None:
        self.page.screenshot(path=self._screenshots / f"{name}.png", full_page=full)

    def faults(self) -> list[str]:
        """What axe-core finds serious on the page that is open."""
        found: Any = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
            for each in found
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def type_into(self, editor: str, text: str) -> None:
        """Replace what an editor has."""
        self.page.locator(f"{editor} .cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text} {message.location.get('url', '')}")

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.complaints.append(f"request: {request.url}")
