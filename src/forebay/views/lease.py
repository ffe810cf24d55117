"""One driver writes a table in an object store, on whichever machine: a lease that it renews, in an object beside the table.

Whoever takes the lease writes a higher epoch into it, by a conditional put, so two cannot both have it. How old it is, is said by
the store's own clock: those of the machines may differ. A driver that was held up looks before it writes, finds that it has the
lease no more, and ends. What it may have begun meets an entry of the table's log that the new holder has put there.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from forebay import threads
from forebay.errors import AlreadyRunningError, StorageError
from forebay.object_path import ObjectPath, TablePath
from forebay.views.delta_entry import entry_of, write_entry
from forebay.views.paths import OWN
from forebay.views.versions import read_entry

LASTS_S = 30.0  # without being renewed
RENEW_S = 10.0
FRESH_S = 15.0  # what was renewed so lately is still held: others wait for twice as long
EPOCH = "forebay.epoch"
_OF_EACH = ("timestamp", "operation", "operationParameters", "engineInfo", "txnId")


@dataclass(frozen=True)
class LeaseHolder:
    """Who has a lease, as it is written down. `released`: nobody has it any more."""

    epoch: int
    machine: str
    home: str
    process: int
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine} (home {self.home})"


class TableLease:
    """Of the view of one table. `name` is that of the object."""

    def __init__(self, view: str, table: ObjectPath, home: Path, name: str = "lease.json") -> None:
        self._view = view
        self._path = table / OWN / name
        self._clock = table / OWN / f"clock-{os.getpid()}"
        self._home = home
        self._mine: LeaseHolder | None = None
        self._tag: str | None = None
        self._renewed = 0.0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._lost: str | None = None

    def acquire(self, tables: Sequence[TablePath]) -> None:
        """AlreadyRunningError if another driver has it. From one that was killed elsewhere it is taken when it has run out,
        and what that one may still write to these tables is refused."""
        known, tag = self._read()
        takes_over = known is not None and not known.released
        if known is not None and takes_over and not self._is_of_this_home(known):
            age = self._age_s()
            if age < LASTS_S:
                raise AlreadyRunningError(
                    f"view '{self._view}' is being run by {known}",
                    remedy=f"stop it there; if that process is gone, its lease ends in {LASTS_S - age:.0f} s: try again then",
                )
        mine = LeaseHolder(
            (known.epoch if known else 0) + 1, socket.gethostname(), str(self._home), os.getpid()
        )
        try:
            self._write(mine, tag)
        except FileExistsError:
            raise AlreadyRunningError(f"another driver has just taken view '{self._view}'") from None
        if takes_over:
            for table in tables:
                fence(table, mine.epoch)
        self._end = threading.Event()
        threads.keep_running(f"forebay-lease-{self._view}", self._keep, self._end)

    def check(self) -> None:
        """Before something is written: AlreadyRunningError if somebody else has it now."""
        with self._lock:
            if self._mine is not None and self._lost is None and time.monotonic() - self._renewed > FRESH_S:
                self._renew()
            if self._lost is not None:
                raise AlreadyRunningError(
                    f"view '{self._view}' was taken over by {self._lost}, while this process did not answer"
                )

    def release(self) -> None:
        self._end.set()
        with self._lock:
            mine, self._mine = self._mine, None
            if mine is None or self._lost is not None:
                return
            try:
                released = LeaseHolder(mine.epoch, mine.machine, mine.home, mine.process, released=True)
                self._path.replace_if(_json(released), self._tag)
            except (StorageError, OSError):
                pass  # it runs out by itself

    def _keep(self) -> None:
        while not self._end.wait(RENEW_S):
            with self._lock:
                if self._mine is None or self._lost is not None:
                    return
                try:
                    self._renew()
                except (StorageError, OSError):
                    continue  # whoever writes asks again

    def _renew(self) -> None:
        assert self._mine is not None
        try:
            self._write(self._mine, self._tag)
        except FileExistsError:
            known, tag = self._read()
            if known == self._mine:  # the answer to an earlier try was lost
                self._tag, self._renewed = tag, time.monotonic()
            else:
                self._lost = str(known) if known is not None else "somebody who has removed its lease"

    def _write(self, lease: LeaseHolder, tag: str | None) -> None:
        asked = time.monotonic()
        data = _json(lease)
        tag = self._path.create(data) if tag is None else self._path.replace_if(data, tag)
        self._mine, self._tag, self._renewed = lease, tag, asked

    def _read(self) -> tuple[LeaseHolder | None, str | None]:
        try:
            tag = self._path.stat().e_tag
            return LeaseHolder(**json.loads(self._path.read_bytes())), tag
        except FileNotFoundError:
            return None, None

    def _age_s(self) -> float:
        """By the clock of the store."""
        self._clock.write_bytes(b"")
        now = self._clock.stat().st_mtime
        self._clock.unlink(missing_ok=True)
        return max(0.0, now - self._path.stat().st_mtime)

    def _is_of_this_home(self, known: LeaseHolder) -> bool:
        """Then its process is gone: whoever asks has the lock in the home."""
        return known.machine == socket.gethostname() and known.home == str(self._home)


def fence(table: TablePath, epoch: int) -> None:
    """What was begun on an older version of a table cannot become the next one.

    What the newest entry says of the table (how far its writer had come) is said by this one, too: it is the newest now.
    """
    if not DeltaTable.is_deltatable(str(table)):
        return
    for _ in range(100):
        version = int(DeltaTable(str(table)).version())
        try:
            write_entry(table, version + 1, [], _said_of(table, version), [(EPOCH, epoch)])
            return
        except FileExistsError:
            continue  # the one before was quicker, for the last time


def _said_of(table: TablePath, version: int) -> dict[str, Any]:
    """What the entry of a version has as information, but for what every entry has of its own."""
    for action in read_entry(entry_of(table, version)):
        if (found := action.get("commitInfo")) is not None:
            return {name: value for name, value in found.items() if name not in _OF_EACH}
    return {}


def _json(lease: LeaseHolder) -> bytes:
    return json.dumps(asdict(lease)).encode()
