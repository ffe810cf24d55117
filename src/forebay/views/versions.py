"""What each version of a view's table changed, for as long as the view's retention.

deltalake lists the whole of `_delta_log` several times a batch, 1 ms for every 1,000 files: a week of 100-ms batches would
make each take seconds. So only the newest versions stay there. Older ones are kept in segments, a line a version, for
subscribers and for the vacuum, and go when they are older than the retention.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from forebay.files import make_folder, write_whole

LIVE = 1_000  # versions that stay in the Delta log, besides those that a reader needs to open the table
SEGMENT = 200  # versions in a segment: as many are read or removed at a time, in some 50 ms
CHECKPOINTS_KEPT = 2  # somebody may be opening the table by the one before
OWN = "_forebay"  # folders with an underscore are no data to Delta


@dataclass(frozen=True)
class TableVersion:
    """Files are relative to the table's folder."""

    number: int
    at_ms: int
    added: list[str]  # with rows that are new
    removed: list[str]  # with rows that are gone
    changed: list[str]  # where there are any, they alone say what changed
    dropped: list[str]  # not needed from the next version on, but to tell what changed

    def files(self) -> set[str]:
        return {*self.added, *self.removed, *self.changed, *self.dropped}


def read_entry(entry: Path) -> Iterator[dict[str, Any]]:
    """The actions of an entry of the Delta log."""
    for line in entry.read_text().splitlines():
        yield json.loads(line)


def entry_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


class Versions:
    """The versions of one table that are still known."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._log = table / "_delta_log"
        self._segments = table / OWN / "versions"
        self._last_read: tuple[Path, dict[int, TableVersion]] | None = None
        self._expired = -1  # the files of versions up to this one are gone already

    def get(self, number: int) -> TableVersion | None:
        """None if it is too old."""
        try:
            return self._live(number)
        except FileNotFoundError:
            for segment in self._segment_files():
                if _first(segment) <= number <= _last(segment):
                    return self._read(segment).get(number)
            return None

    def oldest(self) -> int:
        segments = self._segment_files()
        return _first(segments[0]) if segments else min(self._numbers(), default=0)

    def all(self) -> Iterator[TableVersion]:
        for segment in self._segment_files():
            yield from self._read(segment).values()
        for number in self._numbers():
            try:
                yield self._live(number)
            except FileNotFoundError:  # in a segment since
                found = self.get(number)
                if found is not None:
                    yield found

    def expire(self, before_ms: int, needed: Container[str]) -> None:
        """Remove the files that only versions of before that time had, and those versions from the segments.

        `needed` are the files of the newest version: somebody may have restored an older one.
        """
        if segments := self._segment_files():  # one a step
            versions = self._read(segments[0])
            if all(version.at_ms < before_ms for version in versions.values()):
                self._remove_files(versions.values(), needed)
                segments[0].unlink(missing_ok=True)
            return
        live = [number for number in self._numbers() if number > self._expired]
        for number in live[:SEGMENT]:
            version = self._live(number)
            if version.at_ms >= before_ms:
                return
            self._remove_files([version], needed)
            self._expired = number

    def shorten_log(self) -> None:
        """Take old versions and checkpoints out of the Delta log; versions that are not expired go to a segment."""
        checkpoints = sorted(self._log.glob("*.checkpoint*.parquet"))
        summed = sorted({_first(path) for path in checkpoints})
        if len(summed) < CHECKPOINTS_KEPT:
            return
        needed = summed[-CHECKPOINTS_KEPT]
        for path in checkpoints:
            if _first(path) < needed:
                path.unlink(missing_ok=True)
        old = [number for number in self._numbers() if number < needed]
        gone = [number for number in old if number <= self._expired][:SEGMENT]
        surplus = old[len(gone) : max(len(old) - LIVE, 0)][:SEGMENT]
        if len(surplus) == SEGMENT:
            self._write([self._live(number) for number in surplus])
            gone += surplus
        for number in gone:
            entry_of(self._table, number).unlink(missing_ok=True)

    def _remove_files(self, versions: Iterable[TableVersion], needed: Container[str]) -> None:
        for version in versions:
            for name in (*version.dropped, *version.changed):
                # The log may name files elsewhere, if somebody has cloned a table over this one: these are not ours.
                if name not in needed and (self._table / name).parent in (
                    self._table,
                    self._table / "_change_data",
                ):
                    (self._table / name).unlink(missing_ok=True)

    def _live(self, number: int) -> TableVersion:
        entry = entry_of(self._table, number)
        found = TableVersion(number, 0, [], [], [], [])
        at_ms = int(entry.stat().st_mtime * 1000)
        for action in read_entry(entry):
            for kind, body in action.items():
                match kind:
                    case "commitInfo":
                        at_ms = body.get("timestamp", at_ms)
                    case "add" if body["dataChange"]:
                        found.added.append(unquote(body["path"]))
                    case "remove":
                        found.dropped.append(unquote(body["path"]))
                        if body["dataChange"]:
                            found.removed.append(unquote(body["path"]))
                    case "cdc":
                        found.changed.append(unquote(body["path"]))
        return TableVersion(number, at_ms, found.added, found.removed, found.changed, found.dropped)

    def _numbers(self) -> list[int]:
        return sorted(_first(path) for path in self._log.glob("*.json") if path.stem.isdigit())

    def _segment_files(self) -> list[Path]:
        return sorted(self._segments.glob("*.jsonl"))

    def _write(self, versions: list[TableVersion]) -> None:
        make_folder(self._segments)
        name = f"{versions[0].number:020d}-{versions[-1].number:020d}.jsonl"
        lines = [json.dumps(asdict(version), separators=(",", ":")) for version in versions]
        write_whole(self._segments / name, "\n".join(lines).encode())

    def _read(self, segment: Path) -> dict[int, TableVersion]:
        """A subscriber asks for one version after another: the segment of the last one is kept."""
        if self._last_read is None or self._last_read[0] != segment:
            try:
                lines = segment.read_text().splitlines()
            except FileNotFoundError:  # expired just now
                return {}
            found = [TableVersion(**json.loads(line)) for line in lines]
            self._last_read = segment, {version.number: version for version in found}
        return self._last_read[1]


def now_ms() -> int:
    return int(time.time() * 1000)


def _first(path: Path) -> int:
    return int(path.name[:20])


def _last(path: Path) -> int:
    return int(path.stem[-20:])
