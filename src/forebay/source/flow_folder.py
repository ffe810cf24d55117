"""Where the reads of a source tell each other, and everybody who looks, what they have in flight and why.

The process that plans a read writes its plan (`Plan`) before each batch, into a file of its own; the driver writes what a
batch's records took, and whether the source is paused. Plans of processes that are gone count for nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from forebay.files import make_folder, write_whole
from forebay.source.batch_size import Cause
from forebay.source.budget import InFlight
from forebay.source.catch_up import CatchUp

ASIDE = "aside-"  # and the view whose table is slow
ALL = "all"  # the read that serves all views


@dataclass(frozen=True)
class Plan:
    """What a read has decided last. `records` and `bytes` are in flight: planned, and not in the tables yet."""

    read: str  # its name, see `view_read`
    views: tuple[str, ...]
    pid: int
    at_ms: int
    records: int
    bytes: int
    most: int  # records that the batch could have had
    cause: Cause
    why: str
    behind: int | None = None
    reads: float | None = None  # records a second
    arrives: float | None = None
    ahead: tuple[str, ...] = ()  # partitions that get less, since they are ahead in event time

    @property
    def in_flight(self) -> InFlight:
        return InFlight(self.records, self.bytes)

    @property
    def catch_up(self) -> CatchUp | None:
        return None if self.behind is None else CatchUp(self.behind, self.reads, self.arrives)

    @property
    def aside(self) -> bool:
        """Whether it is only what a slow table has not taken yet, and nobody reads."""
        return self.read.startswith(ASIDE)

    @property
    def waits(self) -> bool:
        """Whether it fetches nothing for a reason of its own."""
        return self.cause in (Cause.PAUSED, Cause.BACKPRESSURE)

    def __str__(self) -> str:
        if self.cause in (Cause.PAUSED, Cause.BACKPRESSURE, Cause.WAITING):
            return self.why
        return f"at most {self.most:,} records a batch; {self.why}"


@dataclass(frozen=True)
class FlowFolder:
    """In the folder of a source."""

    root: Path

    @staticmethod
    def of(source: Path) -> FlowFolder:
        return FlowFolder(source / "flow")

    # -- pausing -------------------------------------------------------------------------------------

    @property
    def _pause(self) -> Path:
        return self.root / "paused"

    def pause(self) -> bool:
        """From now on no batch is planned. False if it was so already. It outlives processes and power failures."""
        if self.paused_ms() is not None:
            return False
        make_folder(self.root, 0o700)
        write_whole(self._pause, str(int(time.time() * 1000)).encode())
        return True

    def resume(self) -> bool:
        """False if it was not paused."""
        try:
            self._pause.unlink()
        except FileNotFoundError:
            return False
        return True

    def paused_ms(self) -> int | None:
        """Since when it is paused; None if it is not."""
        try:
            return int(self._pause.read_bytes() or b"0")
        except FileNotFoundError:
            return None

    # -- plans ---------------------------------------------------------------------------------------

    def plans(self, besides: tuple[str, int] | None = None) -> list[Plan]:
        """Of the reads that run now, whichever process runs them, but for one read of one process."""
        own = None if besides is None else self._file(*besides)
        files = sorted(path for path in self.root.glob("*.plan") if path != own)
        return [plan for plan in map(_read, files) if plan and _there(plan)]

    def write(self, plan: Plan) -> None:
        make_folder(self.root, 0o700)
        # A plan says what a process does now: after a power failure there is no such process.
        write_whole(self._file(plan.read, plan.pid), json.dumps(asdict(plan)).encode(), durable=False)

    def forget(self, read: str, pid: int | None = None) -> None:
        """The plans of a read that is stopped, or begins anew; only those of one process, if one is given."""
        for path in self.root.glob(f"{read}.*.plan") if pid is None else [self._file(read, pid)]:
            path.unlink(missing_ok=True)

    def _file(self, read: str, pid: int) -> Path:
        return self.root / f"{read}.{pid}.plan"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While one read fits its batch into the budget, no other does."""
        make_folder(self.root, 0o700)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    # -- what records take ---------------------------------------------------------------------------

    def measured(self, read: str, batch: InFlight) -> None:
        """What a batch of a read has brought."""
        if batch.records and self.root.exists():
            text = json.dumps([batch.records, batch.bytes]).encode()
            write_whole(self.root / f"{read}.measured", text, durable=False)

    def record_bytes(self, read: str) -> float:
        """Of one record, in the last batch of a read; 0 if nobody knows."""
        try:
            records, size = json.loads((self.root / f"{read}.measured").read_bytes())
        except (FileNotFoundError, ValueError):
            return 0.0
        return float(size / records)


def view_read(view: str, *, shared: bool) -> str:
    """The name of a read for one view: by a query of its own, or by a shared read that has only this one."""
    return f"alone-{view}" if shared else f"view-{view}"


def _read(path: Path) -> Plan | None:
    try:
        form = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    lists = {key: tuple(form.get(key, ())) for key in ("views", "ahead")}
    return Plan(**form | lists | {"cause": Cause(form["cause"])})


def _there(plan: Plan) -> bool:
    """Whether the process that wrote it is still there, and not another one of its number."""
    if plan.pid == os.getpid():
        return True
    import psutil

    try:
        return psutil.Process(plan.pid).create_time() * 1000 <= plan.at_ms + 1000
    except psutil.Error:
        return False
