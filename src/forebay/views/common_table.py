"""A view's table that all members of a shared group append to, each from a home of its own.

The table's log decides. Each commit carries which offsets of the source the table has (`taken.py`), and only who has read
all versions before can make the next. So records that another member has added meanwhile are noticed before they are added
twice, however a process was killed, frozen or started again. Whose partitions are whose need not be asked.

Appends never stand in each other's way: whose version is taken by then tries the next one. Merging and removing of files is done
by one member at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from forebay import locks
from forebay.errors import AlreadyRunningError, CheckpointError, ObjectExistsError, StorageError
from forebay.files import make_folder, persist
from forebay.object_path import ObjectPath, TablePath
from forebay.source.accounts import Span, joined_spans
from forebay.views.delta_entry import added, entry_of, now_ms, write_entry
from forebay.views.lease import TableLease
from forebay.views.options import RETENTION_S
from forebay.views.paths import OWN
from forebay.views.table import METADATA, ViewTable, checkpoint_every, nullable
from forebay.views.taken import TakenOffsets
from forebay.views.tidy import Tidier
from forebay.views.versions import read_entry

TAKEN = "forebay.taken"  # in a commit: the offsets that the table has with it
MEMBER = "forebay.member"  # in a commit: who made it
GROUP, QUERY = "forebay.group", "forebay.query"  # properties of the table
WIDEN_TRIES = 10


class OffsetsTakenError(Exception):
    """The table has some of the records of a batch already, and not others. Nothing was added."""

    def __init__(self, spans: Sequence[Span]) -> None:
        named = ", ".join(f"{topic}-{number} [{start}, {end})" for topic, number, start, end in spans)
        super().__init__(f"the table has {named} already")
        self.spans = spans


class CommonTable(ViewTable):
    """As one member writes it. `member` is a name that nobody else has, and that this home keeps."""

    def __init__(self, path: TablePath, member: str, home: Path, retention_s: float = RETENTION_S) -> None:
        super().__init__(path, retention_s)
        self._member = member
        self._home = home
        self._tidier = Tidier(path, retention_s, others_append=True)
        self._seen: int | None = None  # all versions up to this one are read
        self._taken = TakenOffsets()
        self._passed: list[
            Span
        ] = []  # read, and no row of it is for this table: to be said with the next commit

    # -- making it, or joining it --------------------------------------------------------------------

    def create_or_join(self, schema: pa.Schema, group: str, query: str) -> None:
        """ObjectExistsError if the table that is there is of another group, of another query or has other columns."""
        if not self.exists():
            try:
                self.create(schema, {GROUP: group, QUERY: query})
            except DeltaError:
                if not self.exists():
                    raise  # else another member was quicker
        table = self.open()
        known = table.metadata().configuration
        wanted = {field.name: field.type for field in Schema.from_arrow(nullable(schema)).fields}
        for what, ours, theirs in (
            ("group", group, known.get(GROUP)),
            ("query", query, known.get(QUERY)),
            ("set of columns", wanted, {field.name: field.type for field in table.schema().fields}),
        ):
            if ours != theirs:
                raise ObjectExistsError(
                    f"the table at {self.path}, which a group shares, has another {what} than this view: "
                    f"{_shown(theirs)} there, {_shown(ours)} here",
                    remedy="create the view with the same statements as the other members of the group; or choose another location",
                )

    def widen(self, schema: pa.Schema) -> None:
        """Others append meanwhile, and may add the same columns."""
        for _ in range(WIDEN_TRIES):
            try:
                super().widen(schema)
                return
            except DeltaError as error:
                refused = error
        raise refused

    def open(self) -> DeltaTable:
        """Of a member that was silent for long, the log has gone on by more than it keeps."""
        if self._table is not None and not entry_of(self.path, self._table.version()).exists():
            self._table = None
        return super().open()

    # -- what is in it -------------------------------------------------------------------------------

    def has_commits(self) -> bool:
        """Whether this member has ever added something."""
        return self.open().transaction_version(self._member) is not None

    def newest_metadata(self) -> dict[str, str]:
        """Of this member's own commits."""
        for found in self._metadata(self.open().version()):
            if found.get(MEMBER) == self._member:
                return found
        return {}

    def taken(self) -> TakenOffsets:
        """Which records it has now."""
        self._read_on()
        return self._taken

    def _metadata(self, version: int) -> Iterator[dict[str, str]]:
        """Of the commits up to a version, newest first, as far as the log has them."""
        for number in range(version, -1, -1):
            try:
                for action in read_entry(entry_of(self.path, number)):
                    if found := action.get("commitInfo", {}).get(METADATA):
                        yield dict(found)
            except FileNotFoundError:
                return

    def _read_on(self) -> None:
        """All versions that there are now."""
        if self._seen is None or not entry_of(self.path, self._seen).exists():
            version = int(self.open().version())
            said = next((each[TAKEN] for each in self._metadata(version) if TAKEN in each), None)
            if said is None and not entry_of(self.path, 0).exists():
                raise CheckpointError(
                    f"nothing in the log of the table at {self.path} says which records it has",
                    remedy="restore its _delta_log from a backup; or let the group write to another location",
                )
            self._seen, self._taken = (
                version,
                TakenOffsets() if said is None else TakenOffsets.from_json(said),
            )
        while True:
            try:
                actions = [*read_entry(entry_of(self.path, self._seen + 1))]
            except FileNotFoundError:
                return
            for action in actions:
                if said := action.get("commitInfo", {}).get(METADATA, {}).get(TAKEN):
                    self._taken = TakenOffsets.from_json(said)
            self._seen += 1

    # -- adding --------------------------------------------------------------------------------------

    def pass_over(self, spans: Sequence[Span]) -> None:
        """These were read, and have no row for this table. Said with the next commit, or the ranges would be in many parts."""
        self._passed = joined_spans([*self._passed, *spans])

    def add_once(
        self,
        written: Sequence[tuple[str, int, str]],
        query: str,
        batch: int,
        metadata: Mapping[str, str],
        spans: Sequence[Span],
        ids: Mapping[str, str],
    ) -> None:
        """Make files part of the table, with the rows of these records. Nothing if it has all of these records already.

        OffsetsTakenError if it has some of them. Files that were not added are removed.
        """
        actions = [added(path, size, stats) for path, size, stats in written]
        if self._seen is None:
            self._read_on()
        while True:
            there = self._taken.of(spans, ids)
            if there:
                for path, _, _ in written:
                    (self.path / path).unlink(missing_ok=True)
                if there != joined_spans(spans):
                    raise OffsetsTakenError(there)
                return
            taken = self._taken.adding([*spans, *self._passed], ids)
            about = {METADATA: {**metadata, TAKEN: taken.to_json(), MEMBER: self._member}}
            if self._write_next(actions, about, [(query, batch), (self._member, now_ms())]):
                break
            self._read_on()
            self._newest = None
            if self.holds(query, batch):  # by a try whose answer was lost
                return
        self._taken, self._passed = taken, []
        self._newest = query, batch
        self._tidy_in_turn(len(written))

    def _write_next(
        self,
        actions: Sequence[Mapping[str, object]],
        about: Mapping[str, object],
        transactions: Sequence[tuple[str, int]],
    ) -> bool:
        """Make the version after the last one that was read; False if that was not the newest."""
        assert self._seen is not None
        before, entry = entry_of(self.path, self._seen), entry_of(self.path, self._seen + 1)
        if not before.exists():
            return False
        try:
            write_entry(self.path, self._seen + 1, actions, about, transactions)
        except FileExistsError:
            return False
        if not before.exists():  # the log is shortened oldest first: this number was another version's
            entry.unlink(missing_ok=True)
            return False
        self._seen += 1
        return True

    def persist(self) -> None:
        """What deltalake has written. Rows and their entries are on the disk when they are added, whoever adds them."""
        newest = int(self.open().version())
        if not isinstance(self.path, ObjectPath):
            log = self.path / "_delta_log"
            known = newest if self._durable is None else self._durable + 1
            entries = [entry_of(self.path, number) for number in range(known, newest + 1)]
            persist([*(entry for entry in entries if entry.exists()), log])
        self._durable = newest

    # -- keeping it small ----------------------------------------------------------------------------

    def _tidy_in_turn(self, files: int) -> None:
        if self._tidier.wrote(files):
            with self._turn() as ours:
                if ours:
                    self._tidier.step(self.open(), self.persist)
                    if self.open().version() - self._summed_up() >= checkpoint_every():
                        self.sum_up()

    def _summed_up(self) -> int:
        """The version of the newest Delta checkpoint."""
        try:
            return int(json.loads((self.path / "_delta_log" / "_last_checkpoint").read_bytes())["version"])
        except FileNotFoundError:
            return 0

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Whether it is this member's turn to tidy. Two at once would do no harm, but the same work."""
        if not isinstance(self.path, ObjectPath):
            make_folder(self.path / OWN)
            held = locks.take(self.path / OWN / "tidying")
            try:
                yield held is not None
            finally:
                if held is not None:
                    held.release()
            return
        lease = TableLease("tidying", self.path, self._home, "tidying.json")
        try:
            lease.acquire([])
        except (AlreadyRunningError, StorageError, OSError):
            yield False
            return
        try:
            yield True
        finally:
            lease.release()


def is_common(table: TablePath) -> bool:
    """Whether there is a table that members of a group append to."""
    if not DeltaTable.is_deltatable(str(table)):
        return False
    return GROUP in DeltaTable(str(table)).metadata().configuration


def _shown(what: object) -> str:
    if isinstance(what, dict):
        return ", ".join(f"{name} {kind}" for name, kind in what.items())
    return f"'{what}'"
