"""One source: how fast, how far behind, what holds it back, what goes wrong; pause, resume, ON ERROR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from forebay.web.model import PartitionRow, SourcePage
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call, say
from forebay.web.pages.source_charts import SourceCharts

PARTITIONS: Final = 50
_PARTITION: Final = (
    {"label": "Partition", "mono": True}, {"label": "Committed", "align": "end", "phone": False}, {"label": "End", "align": "end", "phone": False},
    {"label": "Lag", "align": "end"}, {"label": "Behind", "align": "end"}, {"label": "Watermark", "phone": False}, {"label": "", "wide": True},
)  # fmt: skip
_PLAN: Final = ({"label": "When"}, {"label": "Decision"}, {"label": "Next batch", "align": "end"}, {"label": "In flight", "align": "end", "phone": False}, {"label": "Why", "wide": True})  # fmt: skip
_EVENT: Final = ({"label": "When"}, {"label": "What"}, {"label": "State"}, {"label": "Message", "wide": True})
_BATCH: Final = ({"label": "When"}, {"label": "View", "mono": True}, {"label": "Batch", "align": "end"}, {"label": "Records", "align": "end"}, {"label": "Refused", "align": "end"}, {"label": "Took", "align": "end"})  # fmt: skip


async def show(face: Face, name: str = "") -> None:
    with face.page("/sources", name or "Source"):
        if await face.attempt(face.backend.source, name) is None:
            parts.text(name, "mono", "h1")
            parts.empty(
                f"There is no source '{name}'.", "The list has those that there are: Sources, on the left."
            )
            return
        with parts.box("line"):
            parts.text(name, "mono", "h1")
            state = parts.badge("")
            policy = parts.text("", "muted small", "span")
            ui.space()
            pause = parts.button("Pause", lambda: turn(), icon="pause", disabled=face.read_only)
            parts.button("Change ON ERROR", lambda: change(), icon="rule", disabled=face.read_only)
        hint = parts.text("", "notice warn")
        rate, speed, lag, latency, commits, letters = parts.tiles(
            "Records a second", "Bytes a second", "Behind", "Batch p50 / p99", "Commits", "Dead letters"
        )
        charts = SourceCharts(name)
        with parts.panel("Partitions", flush=True):
            held = parts.text("", "muted small", "p")
            held.style("padding: 0 16px")
            grid = parts.Grid(f"Partitions of {name}", _PARTITION)
            pager = parts.Pager(PARTITIONS, lambda: face.look(refresh))
        with parts.panel("What the reader decided", note="backpressure, catching up, pauses", flush=True):
            plans = parts.Grid("Decisions of the reader", _PLAN)
            no_plans = parts.text("Nothing is read now.", "muted small")
            no_plans.style("padding: 0 16px 12px")
        with parts.box("cols"):
            with parts.panel("Newest batches", flush=True):
                newest = parts.Grid("Newest batches", _BATCH)
            with parts.panel("Events", flush=True):
                happened = parts.Grid("Events", _EVENT)
        with parts.panel("Definition"):
            definition = parts.text("", "definition", "pre")
            definition._props["tabindex"] = "0"

    shown: SourcePage | None = None
    count = 0

    async def refresh() -> None:
        nonlocal shown, count
        page = shown = await call(face.backend.source, name)
        row = page.row
        now = "paused" if row.paused else row.state
        state.set_text(words.said(now))
        parts.dress(state, f"badge {words.tone(now)}")
        policy.set_text(
            f"ON ERROR {words.said(row.on_error)}"
            + (f" → {page.dead_letter_target}" if page.dead_letter_target else "")
        )
        pause.set_text("Resume" if row.paused else "Pause")
        pause.set_icon("play_arrow" if row.paused else "pause")
        wrong = " ".join(filter(None, (row.message, row.hint))) if row.hint else ""
        hint.set_text(wrong)
        hint.set_visibility(bool(wrong))
        rate.show(words.rate(row.rate), f"{words.count(row.records)} in all")
        speed.show(
            f"{words.size(row.byte_rate)}/s" if row.byte_rate is not None else words.UNKNOWN,
            f"{words.size(row.bytes)} in all",
        )
        lag.show(
            words.span(row.lag_s) if row.lag_s is not None else words.UNKNOWN,
            " · ".join(
                filter(None, (f"{words.count(row.lag)} records" if row.lag is not None else "", row.catch_up))
            ),
            "warn" if (row.lag_s or 0) > 30 else "",
        )
        latency.show(
            _latency(page), f"last batch {words.ago(row.last_batch_ms)}" if row.last_batch_ms else ""
        )
        failed = (
            f"{words.many(page.commit_failures, 'failure')}: {page.commit_error}"
            if page.commit_failures
            else ""
        )
        commits.show(
            words.count(page.commits),
            failed or (words.many(page.rebalances, "rebalance") if page.rebalances is not None else ""),
            "bad" if page.commit_failures else "",
        )
        kept_out = (
            f" · {words.count(page.rate_limited)} kept out by the rate limit" if page.rate_limited else ""
        )
        letters.show(
            words.count(row.letters),
            f"{words.count(row.errors)} refused{kept_out}",
            "bad" if row.letters else "",
        )
        held.set_text(
            f"The watermark is {words.utc(page.watermark_ms)}; {page.watermark_held_by} holds it back."
            if page.watermark_held_by
            else (f"The watermark is {words.utc(page.watermark_ms)}." if page.watermark_ms else "")
        )
        held.set_visibility(bool(held.text))
        grid.show([_partition(each) for each in pager.cut(page.partitions)])
        plans.show([
            {"id": f"{plan.read}:{plan.at_ms}", "cells": [
                {"ms": plan.at_ms}, words.said(plan.cause), words.count(plan.records) if plan.records is not None else None,
                f"{words.count(plan.in_flight_records)} · {words.size(plan.in_flight_bytes)}", {"text": plan.why, "title": plan.why},
            ]}
            for plan in page.plans
        ])  # fmt: skip
        plans.set_visibility(bool(page.plans))
        no_plans.set_visibility(not page.plans)
        newest.show([
            {"id": f"{batch.view}:{batch.batch}", "cells": [
                {"ms": batch.at_ms}, batch.view, batch.batch, words.count(batch.records), words.count(batch.rejected), f"{batch.duration_ms:,} ms",
            ]}
            for batch in page.batches[:12]
        ])  # fmt: skip
        happened.show(event_rows(page.events[:12]))
        definition.set_text(page.definition)
        if count % 3 == 0:
            charts.show(await call(face.backend.history, name), page)
        count += 1

    async def turn() -> None:
        assert shown is not None
        if shown.row.paused:
            said = await face.attempt(face.backend.resume, name, face.actor)
        else:
            agreed = await parts.confirm(
                f"Pause {name}?", "Nothing more is read until it is resumed. What is in flight is finished; nothing is lost.", "Pause"
            )  # fmt: skip
            if agreed is None:
                return
            said = await face.attempt(face.backend.pause, name, face.actor)
        if said is not None:
            say(said)
        await face.look(refresh)

    async def change() -> None:
        assert shown is not None
        policy = await _ask_policy(name, shown)
        if policy is None:
            return
        said = await face.attempt(face.backend.set_on_error, name, policy, face.actor)
        if said is not None:
            say(said)
        await face.look(refresh)

    await face.live(refresh)


async def _ask_policy(name: str, page: SourcePage) -> str | None:
    """Which policy, and whether that is meant."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        parts.text(f"What becomes of bad records of {name}?", tag="h2")
        parts.text(
            f"Now: ON ERROR {words.said(page.row.on_error)}. The change is for records that are read from now on.",
            "muted",
        )
        chosen = ui.radio(
            {policy: _POLICIES.get(policy, policy) for policy in page.policies}, value=page.row.on_error
        )
        topic = ui.input("Dead-letter topic (empty: the one that it has)").props("outlined dense")
        topic.bind_visibility_from(chosen, "value", value="dead_letter")
        with parts.box("line"):
            ui.space()
            parts.button("Cancel", lambda: dialog.submit(None))
            parts.button(
                "Change", lambda: dialog.submit(_policy(chosen.value, topic.value)), kind="main-action"
            )
    answer = await dialog
    dialog.delete()
    return None if answer is None or answer == page.row.on_error else str(answer)


def _policy(chosen: Any, topic: Any) -> str:
    """What follows ON ERROR."""
    named = str(topic or "").strip().replace("'", "''")
    return (
        f"'dead_letter' WITH (dead_letter_topic = '{named}')"
        if chosen == "dead_letter" and named
        else str(chosen)
    )


_POLICIES: Final = {
    "skip": "skip: they are counted and left out",
    "dead_letter": "dead letter: they are kept, with the reason, to be repaired and replayed",
    "fail": "fail: the views over it stop at the first one",
}


def _latency(page: SourcePage) -> str:
    if page.batch_ms_p50 is None:
        return words.UNKNOWN
    return f"{page.batch_ms_p50:,} / {page.batch_ms_p99:,} ms"


def _partition(row: PartitionRow) -> dict[str, Any]:
    notes = ["holds the watermark back"] if row.holds_watermark else []
    if row.idle:
        notes.append("idle")
    return {
        "id": f"{row.topic}-{row.partition}",
        "cells": [
            f"{row.topic}-{row.partition}", words.count(row.committed) if row.committed is not None else None,
            words.count(row.end) if row.end is not None else None, words.count(row.lag) if row.lag is not None else None,
            words.span(row.lag_s) if row.lag_s is not None else None, {"ms": row.watermark_ms} if row.watermark_ms is not None else None,
            {"text": ", ".join(notes), "tone": "badge warn" if row.holds_watermark else "muted"} if notes else "",
        ],
    }  # fmt: skip


def event_rows(events: Sequence[Any]) -> list[dict[str, Any]]:
    """Events as the rows of a table."""
    return [
        {"id": f"{event.at_ms}:{place}", "cells": [
            {"ms": event.at_ms}, event.kind, {"text": words.said(event.state), "tone": f"badge {words.tone(event.state)}"} if event.state else "",
            {"text": " ".join(filter(None, (event.message, event.hint))), "title": " ".join(filter(None, (event.message, event.hint)))},
        ]}
        for place, event in enumerate(events)
    ]  # fmt: skip
