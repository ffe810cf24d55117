"""`forebay run` in processes that chaos may kill: the drivers, and the Python workers of their Sparks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from deltalake import DeltaTable
from sessions import checkpoint_of
from waiting import eventually

from forebay.views.paths import paths_of

DAEMONS = {
    "pyspark.daemon",
    "forebay.source.worker_daemon",
}  # which fork Python workers, PySpark's own and ours


FOREBAY = (sys.executable, "-m", "forebay")


class Pipeline:
    """`forebay run` in a process group of its own."""

    def __init__(
        self,
        script: Path,
        home: Path,
        log: Path,
        *arguments: str,
        view: str = "plain",
        program: Sequence[str] = FOREBAY,
    ) -> None:
        self.log = log
        self._home, self._view = home, view
        self._before = self._done()
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                [*program, "run", str(script), "--home", str(home), "--master", "local[2]",
                 *arguments],
                stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def await_running(self, *, first_batch: bool) -> None:
        def running() -> bool:
            assert self.process.poll() is None, f"it ended by itself:\n{self.log.read_text()}"
            if not first_batch:
                return "view sums" in self.log.read_text()
            return self._done() > self._before

        eventually(running, f"the pipeline runs; {self.log}", timeout=120)

    def _done(self) -> int:
        """The last batch of the query that reads for the view."""
        return last(checkpoint_of(self._home, self._view), "commits")

    def kill(self, whole_group: bool) -> None:
        if whole_group:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(30)

    def workers(self) -> list[psutil.Process]:
        """The Python processes that Spark started: those that read, and the one that plans."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                parent = process.parent()
                forked = parent is not None and not DAEMONS.isdisjoint(parent.cmdline())
                if forked and not DAEMONS.isdisjoint(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def finish(self) -> None:
        """Until it has ended by itself, and well."""
        assert self.process.wait(200) == 0, self.log.read_text()

    def await_nothing_left(self) -> None:
        """The first Spark that ends in order writes its archive of classes, which takes a busy machine its time."""
        eventually(lambda: not self.remains(), f"nothing is left of {self.log}", timeout=120)

    def remains(self) -> list[int]:
        """Processes of the group that still live: without their driver, Spark and its workers must end."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found


def last(checkpoint: Path, log: str) -> int:
    """The newest batch in one of Spark's logs: `offsets` has those begun, `commits` those done."""
    folder = checkpoint / log
    numbers = (
        [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()] if folder.is_dir() else []
    )
    return max(numbers, default=-1)


Start = Callable[..., Pipeline]
UNTIL_CAUGHT_UP = ("--until-caught-up", "--timeout", "150")


@contextmanager
def pipelines(script: Path, home: Path, logs: Path, *, view: str = "plain") -> Iterator[Start]:
    """Starts pipelines of one script on one home; whatever of them still runs at the end is killed."""
    started: list[Pipeline] = []

    def start(*arguments: str, program: Sequence[str] = FOREBAY) -> Pipeline:
        log = logs / f"run-{len(started)}.log"
        started.append(Pipeline(script, home, log, *arguments, view=view, program=program))
        return started[-1]

    try:
        yield start
    finally:
        for pipeline in started:
            if pipeline.process.poll() is None:
                pipeline.kill(whole_group=True)


def table_of(home: Path, view: str) -> DeltaTable:
    """As everybody reads it, wherever it is."""
    return DeltaTable(str(paths_of(home, view).table))
