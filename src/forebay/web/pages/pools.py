"""Pools: what is in flight, the frontier and what holds it back, retries, hot keys."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from forebay.web.model import PoolPartition, PoolRow
from forebay.web.pages import parts, words
from forebay.web.pages.frame import Face, call

_PARTITIONS: Final = (
    {"label": "Partition", "mono": True}, {"label": "Frontier", "align": "end"}, {"label": "Done beyond it", "align": "end"},
    {"label": "Gaps", "align": "end"}, {"label": "In flight", "align": "end"}, {"label": "Lag", "align": "end"},
)  # fmt: skip
_KEYS: Final = ({"label": "Key", "mono": True, "wide": True}, {"label": "Records that wait", "align": "end"})


async def show(face: Face) -> None:
    with face.page("/pools", "Pools"):
        parts.text("Pools", tag="h1")
        whole = ui.element("div").classes("stack loose")
    drawn: dict[str, _Pool] = {}

    async def refresh() -> None:
        rows = await call(face.backend.pools)
        if [row.name for row in rows] != list(drawn) or not rows:
            whole.clear()
            drawn.clear()
            with whole:
                for row in rows:
                    drawn[row.name] = _Pool(row)
                if not rows:
                    with parts.panel():
                        parts.empty("No pool runs in this process.", "A pool handles many records at a time on one consumer. Start one with its dashboard:",
                                    "forebay pool run module:handler --ui")  # fmt: skip
        for row in rows:
            drawn[row.name].show(row)

    await face.live(refresh)


class _Pool:
    def __init__(self, row: PoolRow) -> None:
        with parts.box("stack"):
            with parts.box("line"):
                parts.text(row.name, "mono", "h2")
                self._state = parts.badge("")
                self._message = parts.text("", "muted small anywhere", "span")
            self._names = list(row.stats)
            self._tiles = parts.tiles(*(name.replace("_", " ").capitalize() for name in self._names))
            with parts.box("cols"):
                with parts.panel("Partitions", note="all before the frontier is done", flush=True):
                    self._partitions = parts.Grid(f"Partitions of {row.name}", _PARTITIONS)
                with parts.panel("Hot keys", note="keys that most records wait for", flush=True):
                    self._keys = parts.Grid(f"Hot keys of {row.name}", _KEYS)
                    self._cool = parts.text("No key has records that wait.", "muted")
                    self._cool.style("padding: 0 16px 12px")

    def show(self, row: PoolRow) -> None:
        self._state.set_text(words.said(row.state))
        parts.dress(self._state, f"badge {words.tone(row.state)}")
        self._message.set_text(row.message)
        for name, tile in zip(self._names, self._tiles, strict=True):
            value = row.stats.get(name)
            tile.show(f"{value:,.2f}" if isinstance(value, float) else words.count(value))
        self._partitions.show([_partition(each) for each in row.partitions])
        self._keys.show(
            [{"id": key.key, "cells": [key.key, words.count(key.waiting)]} for key in row.hot_keys]
        )
        self._keys.set_visibility(bool(row.hot_keys))
        self._cool.set_visibility(not row.hot_keys)


def _partition(row: PoolPartition) -> dict[str, Any]:
    return {
        "id": f"{row.topic}-{row.partition}",
        "cells": [
            f"{row.topic}-{row.partition}", words.count(row.frontier), words.count(row.beyond), {"text": words.count(row.gaps), "tone": "warn" if row.gaps else ""},
            words.count(row.in_flight), words.count(row.lag) if row.lag is not None else None,
        ],
    }  # fmt: skip
