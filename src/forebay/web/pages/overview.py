"""The first page: what is wrong, the pipeline, and the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from forebay.web.model import Overview, Problem
from forebay.web.pages import parts, words
from forebay.web.pages.charts import Lines
from forebay.web.pages.frame import Face, call
from forebay.web.pages.layout import columns

TREND: Final = 8  # sources with a line of their own: the busiest
SHOWN: Final = 6  # problems; a page of forty is read by nobody
_ICONS: Final = {"error": "error", "warning": "warning", "info": "info"}


async def show(face: Face) -> None:
    with face.page("/", "Overview"):
        parts.text("Overview", "visually-hidden", "h1")
        wrong = _Problems()
        rate, lag, sources, letters = parts.tiles(
            "Records a second", "Furthest behind", "Sources", "Dead letters"
        )
        with parts.panel("Pipeline", note="topics → sources → views → readers"):
            graph = parts.Graph("Pipeline: topics, sources, views and readers")
        with parts.box("cols"):
            with parts.panel("Records a second", note="the last hour"):
                rates = Lines("Records a second, the last hour")
            with parts.panel("Seconds behind", note="the last hour"):
                lags = Lines("Seconds behind, the last hour", "s")

    turn = 0

    async def refresh() -> None:
        nonlocal turn
        now = await call(face.backend.overview)
        wrong.show(now.problems)
        rate.show(words.rate(now.records_per_s), "all sources together")
        lag.show(
            words.span(now.lag_s),
            f"{words.count(now.lag)} records" if now.lag is not None else "",
            "warn" if (now.lag_s or 0) > 30 else "",
        )
        inside = [node for node in now.nodes if node.kind == "source"]
        views = sum(node.kind == "view" for node in now.nodes)
        sources.show(words.count(len(inside)), f"{words.many(views, 'view')}")
        letters.show(words.count(now.letters), "in all of its life", "bad" if now.letters else "")
        graph.show(*columns(now))
        if turn % 5 == 0:  # an hour's line does not change in two seconds
            await _trend(face, now, rates, lags)
        turn += 1

    await face.live(refresh)


async def _trend(face: Face, now: Overview, rates: Lines, lags: Lines) -> None:
    busiest = sorted(
        (node for node in now.nodes if node.kind == "source"), key=lambda node: -(node.rate or 0)
    )
    history = {node.name: await call(face.backend.history, node.name) for node in busiest[:TREND]}
    rates.show(
        {name: [(point.at_ms, point.records_per_s) for point in points] for name, points in history.items()}
    )
    lags.show({name: [(point.at_ms, point.lag_s) for point in points] for name, points in history.items()})


class _Problems:
    """What is wrong, in words, on top; or that nothing is."""

    def __init__(self) -> None:
        self._shown: Sequence[Problem] | None = None
        with parts.box("stack") as self._box:
            self._box._props["aria-live"] = "polite"

    def show(self, problems: Sequence[Problem]) -> None:
        if problems == self._shown:
            return
        self._shown = problems
        self._box.clear()
        with self._box:
            if not problems:
                with parts.box("problem all-well"):
                    ui.icon("check_circle").props("aria-hidden=true")
                    parts.text("All is well: nothing has failed, and no record was refused.", "title")
            for problem in problems[:SHOWN]:
                card(problem)
            if len(problems) > SHOWN:
                parts.text(
                    f"and {len(problems) - SHOWN} more, of the same kind or less urgent", "muted small"
                )


def card(problem: Problem) -> None:
    """One problem: what, what to do, and where."""
    with parts.box(f"problem {problem.severity}"):
        ui.icon(_ICONS[problem.severity]).props("aria-hidden=true")
        with parts.box("stack tight"):
            parts.text(problem.title, "title")
            parts.text(
                ". ".join(map(_sentence, filter(None, (problem.message, problem.remedy)))), "remedy small"
            )
        if problem.link:
            with parts.box("go", "a") as go:
                go._props["href"] = problem.link
                parts.text("Look at it", tag="span")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".")
