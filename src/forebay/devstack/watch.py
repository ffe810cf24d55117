"""Become a JVM that does not outlive the Python process that wants it.

Run as a script by `process`: `python -I -S watch.py OWNER_PID SCRATCH COMMAND…`. It forks once: the
parent turns into COMMAND (so the owner's child *is* the JVM, with its pid and its exit code), the
child stays behind as a small watcher. When the owner dies, however it dies, the watcher ends the JVM
and removes SCRATCH, a folder of temporary data ('' for none).

Not PR_SET_PDEATHSIG: that fires when the *thread* that started the JVM ends, and stacks are started
from threads. Not a pipe: a forked worker of the owner would hold its end open.

Only the standard library's core is imported, because this runs before every JVM.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

_POLL_SECONDS = 0.2


def main(argv: list[str]) -> None:
    owner, scratch, command = int(argv[0]), argv[1], argv[2:]
    owner_fd = _open(owner)
    if os.getppid() != owner:
        sys.exit("the process that wanted this JVM is gone")
    jvm = os.getpid()
    jvm_fd = _open(jvm)
    if os.fork() != 0:
        os.execv(command[0], command)  # noqa: S606 - no shell is the point
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if _owner_ends_first(owner, owner_fd, jvm, jvm_fd):
        _end(jvm)
        if scratch:
            _remove(scratch)


def _open(pid: int) -> int:
    """A handle that can never mean another process, or -1 where the kernel has none (macOS)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _owner_ends_first(owner: int, owner_fd: int, jvm: int, jvm_fd: int) -> bool:
    if owner_fd >= 0 and jvm_fd >= 0:
        poller = select.poll()
        poller.register(owner_fd, select.POLLIN)
        poller.register(jvm_fd, select.POLLIN)
        return jvm_fd not in {fd for fd, _ in poller.poll()}
    while os.getppid() == jvm:
        if not _exists(owner):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _end(jvm: int) -> None:
    """SIGKILL: data is temporary, or Kafka's and H2's, which are made to survive a crash."""
    # The watcher is the JVM's child: as long as that is its parent, the pid is still the JVM's.
    while os.getppid() == jvm:
        os.kill(jvm, signal.SIGKILL)
        time.sleep(0.02)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(scratch: str) -> None:
    import shutil

    shutil.rmtree(scratch, ignore_errors=True)
    try:
        # The stack's own folder goes with its last service.
        os.rmdir(os.path.dirname(scratch))  # noqa: PTH106, PTH120 - pathlib is slow to import
    except OSError:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
