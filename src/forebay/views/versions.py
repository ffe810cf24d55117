"""What each version of a view's table changed, for as long as the view's retention.

deltalake lists the whole of `_delta_log` several times a batch, 1 ms for every 1,000 files: a week of 100-ms batches would
make each take seconds. So only the newest versions stay there. Older ones are kept in segments, a line a version, for
subscribers and for the vacuum, and go when they are older than the retention.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from forebay.files import make_folder, write_whole
from forebay.object_path import TablePath, files_in, names_in
from forebay.views.delta_entry import entry_of
from forebay.views.merged import MergedFiles
from forebay.views.paths import OWN

LIVE = 300  # versions that stay in the Delta log, besides those that a reader needs to open the table
SEGMENT = 200  # versions in a segment: as many are read or removed at a time, in some 50 ms
CHECKPOINTS_KEPT = 2  # somebody may be opening the table by the one before


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


def read_entry(entry: TablePath) -> Iterator[dict[str, Any]]:
    """The actions of an entry of the Delta log."""
    for line in entry.read_text().splitlines():
        yield json.loads(line)


class Versions:
    """The versions of one table that are still known."""

    def __init__(self, table: TablePath) -> None:
        self._table = table
        self._log = table / "_delta_log"
        self._segments = table / OWN / "versions"
        self._last_read: tuple[TablePath, dict[int, TableVersion]] | None = None
        self._expired = -1  # the files of versions up to this one are gone already
        self.merged = MergedFiles(table, table / OWN / "merged")
        self._unmerged = (
            table / OWN / "merged-up-to"
        )  # of versions up to this one, files that were merged are gone

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
        self.merged.expire(before_ms)
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

    def begin_merging(self, newest: int) -> None:
        """Before the first merge that says where rows are. What was merged before stays for the retention."""
        if not self._unmerged.exists():
            make_folder(self._unmerged.parent)
            write_whole(self._unmerged, str(newest).encode())

    def remove_merged(self, before_ms: int, needed: Container[str]) -> None:
        """Remove the files that a merge of before that time has replaced: the merged one has their rows."""
        done = reached = int(self._unmerged.read_text())
        for version in self._following(done, SEGMENT):
            if version.at_ms >= before_ms:
                break
            merged = [name for name in version.dropped if name not in version.removed and name not in needed]
            self._remove_names(merged)
            reached = version.number
        if reached > done:
            write_whole(self._unmerged, str(reached).encode())

    def _following(self, number: int, count: int) -> Iterator[TableVersion]:
        """The next versions that are known."""
        number = max(number, self.oldest() - 1)
        newest = max(self._numbers(), default=-1)
        for following in range(number + 1, min(number + count, newest) + 1):
            found = self.get(following)
            if found is not None:
                yield found

    def shorten_log(self) -> None:
        """Take old versions and checkpoints out of the Delta log; versions that are not expired go to a segment."""
        checkpoints = files_in(self._log, "*.checkpoint*.parquet")
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
            self._remove_names(name for name in (*version.dropped, *version.changed) if name not in needed)

    def _remove_names(self, names: Iterable[str]) -> None:
        for name in names:
            # The log may name files elsewhere, if somebody has cloned a table over this one: these are not ours.
            if (self._table / name).parent in (self._table, self._table / "_change_data"):
                (self._table / name).unlink(missing_ok=True)
                self.merged.forget(name)

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
        return sorted(
            int(name[:20]) for name in names_in(self._log) if name.endswith(".json") and name[:-5].isdigit()
        )

    def _segment_files(self) -> list[TablePath]:
        return files_in(self._segments, "*.jsonl")

    def _write(self, versions: list[TableVersion]) -> None:
        make_folder(self._segments)
        name = f"{versions[0].number:020d}-{versions[-1].number:020d}.jsonl"
        lines = [json.dumps(asdict(version), separators=(",", ":")) for version in versions]
        write_whole(self._segments / name, "\n".join(lines).encode())

    def _read(self, segment: TablePath) -> dict[int, TableVersion]:
        """A subscriber asks for one version after another: the segment of the last one is kept."""
        if self._last_read is None or self._last_read[0] != segment:
            try:
                lines = segment.read_text().splitlines()
            except FileNotFoundError:  # expired just now
                return {}
            found = [TableVersion(**json.loads(line)) for line in lines]
            self._last_read = segment, {version.number: version for version in found}
        return self._last_read[1]


def _first(path: TablePath) -> int:
    return int(path.name[:20])


def _last(path: TablePath) -> int:
    return int(path.stem[-20:])
