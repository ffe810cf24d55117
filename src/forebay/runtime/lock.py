"""One process runs a view at a time. The lock goes with the process, however it ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import locks
from forebay.errors import AlreadyRunningError
from forebay.files import make_folder
from forebay.object_path import ObjectPath, TablePath
from forebay.views.owner import settle_owner
from forebay.views.paths import OWN, ViewPaths

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from forebay.views.lease import TableLease


class ViewLock:
    """Held by the process that runs a view, or that is about to drop it.

    Where its tables are not in the home, another home may have them, too: a lock or a lease beside the table is held as well,
    unless the table is one that all members of a group append to.
    """

    def __init__(self, view: str, paths: ViewPaths) -> None:
        self._view = view
        self._path = paths.lock
        self._paths = paths
        self._held: list[BaseFileLock] = []
        self._lease: TableLease | None = None
        self._releasing = threading.Lock()

    def acquire(self) -> None:
        """AlreadyRunningError, at once, if another holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._take(self._path)
        try:
            if self._paths.elsewhere and self._paths.member is None:
                self._take_table(self._paths.table)
                settle_owner(self._view, self._paths)
        except BaseException:
            self.release()
            raise

    def _take(self, path: Path) -> None:
        held = locks.take(path, f"process {os.getpid()}")
        if held is None:
            holder = locks.note_of(path) or "another process"
            raise AlreadyRunningError(f"view '{self._view}' is being run by {holder}")
        self._held.append(held)

    def _take_table(self, table: TablePath) -> None:
        if not isinstance(table, ObjectPath):
            make_folder(table / OWN)
            self._take(table / OWN / "lock")
            return
        from forebay.views.lease import TableLease  # with deltalake, which a lock in the home does not need

        lease = TableLease(self._view, table, self._paths.root)
        lease.acquire([table, self._paths.groups / "log", self._paths.late])
        self._lease = lease

    def check(self) -> None:
        """Before something is written: AlreadyRunningError if another driver has taken the view over."""
        lease = self._lease
        if lease is not None:
            lease.check()

    def release(self) -> None:
        """Safe to call twice, also at once: a query that fails lets go by itself while somebody stops it."""
        with self._releasing:
            if self._lease is not None:
                self._lease.release()
                self._lease = None
            while self._held:
                self._held.pop().release()
