"""A command in a terminal of its own, as a person has it: what it shows, and what is typed into it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """`seen` is what was shown and not expected yet; `all` is everything."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int) -> None:
        self.process = process
        self.all = self._seen = ""
        self._handle = handle

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode() + b"\r")

    def expect(self, words: str, timeout: float = 30) -> None:
        assert self.shows(words, timeout), f"{words!r} did not come; seen:\n{self._seen}"

    def shows(self, words: str, within: float) -> bool:
        """Whether these words come in time; what came before them is done with."""
        deadline = time.monotonic() + within
        while words not in self._seen:
            if time.monotonic() >= deadline:
                return False
            self._read()
        self._seen = self._seen.split(words, 1)[1]
        return True

    def _read(self) -> None:
        if select.select([self._handle], [], [], 0.2)[0]:
            text = os.read(self._handle, 65536).decode(errors="replace")
            # A terminal would answer when prompt_toolkit asks where the cursor is.
            os.write(self._handle, b"\x1b[1;1R" * text.count("\x1b[6n"))
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
            self._seen += plain
            self.all += plain


@contextmanager
def terminal(home: Path, *arguments: str, columns: int = 120, **environment: str) -> Iterator[Terminal]:
    """`forebay` with these arguments; ended when the block ends."""
    handle, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments],
        env={
            **os.environ, "FOREBAY_HOME": str(home), "FOREBAY_MASTER": "local[2]", "TERM": "xterm",
            "COLUMNS": str(columns), "LINES": "50", **environment,
        },
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    try:
        yield Terminal(process, handle)
    finally:
        process.kill()
        process.wait()
        os.close(handle)
