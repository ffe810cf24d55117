"""`forebay` as a process of its own, forked from one that has imported what the commands import.

A fresh Python takes a second to import it, and there are a hundred commands. For those that start no Spark. Several
threads may run commands at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["forebay.runtime.session", "forebay.registry.client", "typer", "rich.table"]
)
# An exit code can be read once, and `start()` reads those of all processes that have ended: two threads that read the
# same one leave 255 to whoever comes second. So no thread reads while another starts or reads.
_exit_codes = threading.Lock()


def forebay(
    *arguments: str, environment: Mapping[str, str], cwd: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / "stdout", Path(folder) / "stderr"]
        process = _processes.Process(target=_command, args=(arguments, dict(environment), cwd, streams))
        with _exit_codes:
            process.start()
        ended = wait([process.sentinel], timeout)
        with _exit_codes:
            if not ended:
                process.kill()
            process.join()
            code = process.exitcode
            process.close()
        if not ended:
            raise subprocess.TimeoutExpired(arguments, timeout)
        assert code is not None
        return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in streams))


def _command(
    arguments: tuple[str, ...], environment: dict[str, str], cwd: Path | None, streams: list[Path]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)
    for descriptor, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv[:] = ["forebay", *arguments]
    from forebay.cli.main import (
        main,  # after the fork: its consoles look at the environment when they are made
    )

    main()
