"""What a browser shows while a group of letters is repaired and replayed: one picture, and a short recording of all of it."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

WINDOW = {"width": 1280, "height": 860}
WIDTH = 900  # of the recording: a README shows no more
COLOURS, EXACT = (
    256,
    64,
)  # so many of a palette are the commonest colours as they are: grounds must not change their tint
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
PATIENCE_MS = 60_000
EUROS = re.compile(r'"([\d.]+) EUR"')


def record(url: str, folder: Path) -> None:
    """Writes desk.png and desk.gif."""
    folder.mkdir(parents=True, exist_ok=True)
    with _window() as page:
        film = Film(page)
        page.goto(url)
        expect(page.locator(".problem a").first).to_be_visible()
        page.wait_for_timeout(20_000)  # some history is nicer to look at than none
        film.shoot(2200)
        page.get_by_role("link", name="Look at it").first.click()
        page.wait_for_selector(".grid tbody tr a[href*=group]")
        film.shoot(1800)
        page.locator(".grid tbody tr a[href*=group]").first.click()
        expect(page.locator(".verdict")).to_contain_text("refuses")
        film.shoot(2200)
        ids = [_repair(page)]
        expect(page.locator(".verdict")).to_contain_text("accepts")
        page.wait_for_timeout(400)
        film.shoot(2400)
        _picture(page, folder / "desk.png")
        page.get_by_role("button", name="Replay the repaired record").click()
        expect(page.locator(".job").first).to_contain_text("1 in the view")
        film.shoot(2200)
        page.get_by_role("tab", name="Whole group").click()
        page.get_by_label("Pattern").fill(" EUR$")
        expect(page.get_by_text(re.compile("samples would be accepted"))).to_contain_text("5 of 5")
        page.wait_for_timeout(400)
        film.shoot(2400)
        befores = page.locator(".payload", has_text="EUR").all_inner_texts()
        ids += [str(json.loads(before)["id"]) for before in befores]
        page.get_by_role("button", name="Replay all, repaired").click()
        page.get_by_label("At most so many a second").fill("15")
        page.wait_for_timeout(400)
        film.shoot(1500)
        page.get_by_role("dialog").get_by_role("button", name="Replay").click()
        expect(page.locator(".meter")).to_be_visible()
        for _ in range(3):
            page.wait_for_timeout(500)
            film.shoot(700)
        expect(page.locator(".job").first).to_contain_text("done")
        expect(page.locator(".job").first.locator(".badge", has_text="on the way")).to_have_count(0)
        film.shoot(2500)
        page.goto(f"{url}/sql")
        _type(page, f"SELECT id, customer, amount FROM all_orders WHERE id IN ({', '.join(ids)});")  # noqa: S608
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".grid tbody tr")).to_have_count(len(ids))
        page.wait_for_timeout(400)
        film.shoot(4000)
        film.save(folder / "desk.gif")


class Film:
    """Pictures of a page, each for a while."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._frames: list[Image.Image] = []
        self._times: list[int] = []

    def shoot(self, ms: int) -> None:
        shot = _shot(self._page)
        small = shot.resize((WIDTH, round(shot.height * WIDTH / shot.width)), Image.Resampling.LANCZOS)
        self._frames.append(small)
        self._times.append(ms)

    def save(self, target: Path) -> None:
        # One palette for all: what does not change then has the same bytes, and is written once.
        whole = Image.new("RGB", (WIDTH, sum(frame.height for frame in self._frames)))
        for place, frame in enumerate(self._frames):
            whole.paste(frame, (0, place * frame.height))
        palette = _palette(whole)
        drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames]
        drawn[0].save(
            target, save_all=True, append_images=drawn[1:], duration=self._times, loop=0, optimize=True
        )


def _repair(page: Page) -> str:
    """As somebody types it: the amount without the currency. The order's id."""
    wrong = page.locator(".payload").first.inner_text()
    right = EUROS.sub(r"\1", wrong)
    _type(page, right)
    return str(json.loads(right)["id"])


def _type(page: Page, text: str) -> None:
    """Instead of what the editor has."""
    page.locator(".editor .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def _picture(page: Page, target: Path) -> None:
    shot = _shot(page)
    shot.quantize(palette=_palette(shot), dither=Image.Dither.NONE).save(target, optimize=True)


def _palette(image: Image.Image) -> Image.Image:
    found = sorted(image.getcolors(image.width * image.height) or [], reverse=True)[:EXACT]
    common = [part for _, colour in found for part in colour]  # type: ignore[union-attr]
    others = image.quantize(COLOURS - EXACT, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    made = Image.new("P", (1, 1))
    made.putpalette([*common, *others[: 3 * (COLOURS - EXACT)]])
    return made


def _shot(page: Page) -> Image.Image:
    # The demo's folder is of no interest, and has another name each time.
    page.evaluate("document.querySelector('.where').textContent = '~/shop/.forebay'")
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


@contextmanager
def _window() -> Iterator[Page]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("the pictures need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        page = browser.new_page(viewport=WINDOW)  # type: ignore[arg-type]
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield page
        browser.close()
