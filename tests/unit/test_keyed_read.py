"""When keys are forgotten: after the idle timeout, by a clock that stands still while something is unread or reading is paused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from forebay.connectors.contract import SourceConfig
from forebay.connectors.registry import default_registry
from forebay.runtime import keyed_read
from forebay.runtime.keyed_read import KeyedRead
from forebay.runtime.read_answer import BatchAnswer
from forebay.source.key_marks import KEY, NEWEST, KeyMarksFile
from forebay.source.serving import BatchHeader
from forebay.source.stream import EventTime

IDLE_MS = 30_000


class Reading:
    """A read of a source with keys a and b: each batch has rows of some of them, and comes after some time."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        schema = pa.schema([pa.field("n", pa.int64())])
        connector = default_registry().make(SourceConfig("gen", "datagen", {}, schema))
        self.read = KeyedRead(path, connector, EventTime("ts", 5_000, IDLE_MS, key="k"))
        self._file = KeyMarksFile(path, lambda one, other: one["row"] == other["row"])
        self._monkeypatch = monkeypatch
        self._now = 0.0
        self._at = 0

    def batch(self, keys: str, after_s: float, *, all_read: bool = True) -> list[str]:
        """The keys that are known afterwards."""
        self._now += after_s
        self._monkeypatch.setattr(keyed_read.time, "monotonic", lambda: self._now)
        found = pa.table(
            {KEY: pa.array(list(keys), pa.string()), NEWEST: pa.array([0] * len(keys), pa.int64())}
        )
        start, end = self._position(self._at), self._position(self._at + 1) | {"watermark": 3_600_000}
        self._at += 1
        self.read.remember(BatchAnswer(BatchHeader(start, end, {}), [], keys=[found]), all_read=all_read)
        known = self._file.at(self._position(self._at)).keys
        return [] if known is None else sorted(known.to_pylist())

    def _position(self, number: int) -> dict[str, Any]:
        return {"row": number}


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(tmp_path / "keys", monkeypatch)


def test_a_key_without_rows_for_the_idle_timeout_is_forgotten(reading: Reading) -> None:
    assert reading.batch("ab", 0) == ["a", "b"]
    assert reading.batch("a", 29) == ["a", "b"]
    assert reading.batch("a", 1) == ["a"]


def test_no_time_counts_while_something_is_unread(reading: Reading) -> None:
    reading.batch("ab", 0, all_read=False)
    assert reading.batch("a", 3600, all_read=False) == ["a", "b"]
    assert reading.batch("a", 3600) == ["a", "b"]
    assert reading.batch("a", 30) == ["a"]


def test_no_time_counts_while_reading_is_paused_or_has_trouble(reading: Reading) -> None:
    reading.batch("ab", 0)
    reading.read.stand_still()
    assert reading.batch("a", 3600) == ["a", "b"]
    assert reading.batch("a", 30) == ["a"]
