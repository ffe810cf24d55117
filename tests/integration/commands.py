"""`forebay` as a process of its own, forked from one that has imported what the commands import.

A fresh Python takes a second to import it, and there are a hundred commands. For those that start no Spark.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["forebay.runtime.session", "forebay.registry.client", "typer", "rich.table"]
)


def forebay(
    *arguments: str, environment: Mapping[str, str], cwd: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / "stdout", Path(folder) / "stderr"]
        process = _processes.Process(target=_command, args=(arguments, dict(environment), cwd, streams))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout)
        done = subprocess.CompletedProcess(
            arguments, process.exitcode, *(path.read_text() for path in streams)
        )
        process.close()
        return done


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
