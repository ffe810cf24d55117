"""Keeps a table small between batches: few files, a short Delta log, nothing older than the view's retention.

A step takes a bounded time and comes every few batches. What was removed from the table stays on disk for the retention,
for subscribers who go on behind an older version; files that were merged stay for ten minutes, for those who have opened
one, since the merged file has their rows (`merged.py`). Then it goes with the entry of the log
that removed it, so that each entry is read once and no folder is searched. Only what killed tasks left is searched
for, once a day and in the background.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from forebay import threads
from forebay.object_path import TablePath
from forebay.views import compaction
from forebay.views.delta_entry import DRAFT, now_ms
from forebay.views.paths import OWN
from forebay.views.versions import Versions

log = logging.getLogger("forebay.views")

EVERY = 32  # files written between two steps; with the tiers above it makes a table of less than 100
BUDGET_S = 0.1  # no merge begins later in a step
MERGED_MS = 600_000  # a SELECT that was planned before files were merged has this long to read them
SWEEP_S = 24 * 3600.0
ORPHAN_S = 24 * 3600.0  # a file that is younger may be a batch's that is not committed yet
PROPERTIES = {
    # The log is shortened here, after the files that an entry names: deltalake would take entries first.
    "delta.enableExpiredLogCleanup": "false",
    # Each checkpoint repeats what was removed since then. A week of it would be millions of rows, every ten seconds.
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
}


@dataclass(frozen=True)
class TableSize:
    """How large a table is, and when files that it does not need any more were last removed (0: never)."""

    files: int
    size: int
    vacuumed_ms: int


class Tidier:
    """Of one table, used between batches by its single writer, or by one at a time of those who append to it."""

    def __init__(self, table: TablePath, retention_s: float, *, others_append: bool = False) -> None:
        self._path = table
        self._others_append = others_append
        self._retention_ms = int(retention_s * 1000)
        self._versions = Versions(table)
        # Files since the last step; a process that has just begun does not know. Tables that get their batches together do
        # not have their steps together: the batch would take as long as all of them.
        self._written = EVERY - zlib.crc32(table.parent.name.encode()) % EVERY
        self._swept: float | None = None

    def wrote(self, files: int) -> bool:
        """A batch wrote so many files; returns whether it is time for a step."""
        self._written += files
        return self._written >= EVERY

    def step(self, table: DeltaTable, persist: Callable[[], None]) -> int | None:
        """Do what is to be done; `persist` forces to the disk what deltalake has committed. Returns the table's newest version,
        which is on the disk; None where it is not known, because something failed.

        Whatever fails is tried again later: the batch is in the table, and goes on.
        """
        self._written = 0
        try:
            self._set_properties(table, persist)
            self._versions.begin_merging(table.version())
            version, files = self._merge(table)
            before, needed = now_ms() - self._retention_ms, {file.path for file in files}
            self._versions.expire(before, needed)
            self._versions.remove_merged(max(before, now_ms() - MERGED_MS), needed)
            self._versions.shorten_log()
            self._mark("vacuumed")
            self._sweep_daily(before)
        except (DeltaError, OSError, pa.ArrowException) as error:
            log.warning("the table at %s could not be tidied now: %s", self._path, error)
            return None
        return version

    def _set_properties(self, table: DeltaTable, persist: Callable[[], None]) -> None:
        """Also of tables that an earlier version has made."""
        known = table.metadata().configuration
        if any(known.get(key) != value for key, value in PROPERTIES.items()):
            table.alter.set_table_properties(PROPERTIES)
            persist()

    def _merge(self, table: DeltaTable) -> tuple[int, list[compaction.DataFile]]:
        """Returns the table's version and its files afterwards. What a merge changes is known: deltalake would list the log
        again after each, and that is most of what a step costs.
        """
        began = time.monotonic()
        version, files = table.version(), compaction.data_files(table)
        schema = pa.schema(table.schema().to_arrow())
        while (due := compaction.due(files)) and time.monotonic() - began < BUDGET_S:
            version, made = compaction.merge(
                self._path, schema, version, due, self._versions.merged, others_append=self._others_append
            )
            gone = {file.path for file in due}
            files = [*(file for file in files if file.path not in gone), *([made] if made else [])]
        return version, files

    def _mark(self, what: str) -> None:
        mark = self._path / OWN / what
        mark.parent.mkdir(exist_ok=True)
        mark.touch()

    # -- what killed tasks left ----------------------------------------------------------------------

    def _sweep_daily(self, before_ms: int) -> None:
        if self._swept is None:
            self._swept = _time_of(self._path / OWN / "swept")
        if time.time() - self._swept >= SWEEP_S:
            self._swept = time.time()
            name = f"forebay-sweep-{self._path.parent.name}"
            threads.start(name, lambda: sweep(self._path, before_ms), lambda error: None)
            self._mark("swept")


def sweep(table: TablePath, before_ms: int) -> None:
    """Remove files that no version knows of, and that are too old to become part of one."""
    before = min(before_ms / 1000, time.time() - ORPHAN_S)
    old = {
        found
        for folder in ("", "_change_data")
        for found in _files(table / folder, f"{folder}/" if folder else "", before)
    }
    if old:
        old -= {file.path for file in compaction.data_files(DeltaTable(str(table)))}
    if old:
        for version in Versions(table).all():
            old -= version.files()
    for name in old:
        (table / name).unlink(missing_ok=True)
    for draft in (table / "_delta_log").glob(f"{DRAFT}*"):
        if draft.stat().st_mtime < before:
            draft.unlink(missing_ok=True)
    if old:
        log.info("%d files that no version of the table at %s has are removed", len(old), table)


def _files(folder: TablePath, prefix: str, before: float) -> list[str]:
    return [prefix + file.name for file in folder.glob("*.parquet") if _time_of(file) < before]


def size_of(table: DeltaTable, path: TablePath) -> TableSize:
    files = compaction.data_files(table)
    return TableSize(
        len(files), sum(file.size for file in files), int(_time_of(path / OWN / "vacuumed") * 1000)
    )


def _time_of(file: TablePath) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
