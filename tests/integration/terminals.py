"""A command in a terminal of its own, as a person has it: what it shows, and what is typed into it."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte

LINES = 50


class Terminal:
    """`seen` is what was shown and not expected yet; `all` is everything."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int, columns: int) -> None:
        self.process = process
        self.all = self._seen = self._raw = ""
        self._handle = handle
        self._columns = columns
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

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

    def screen(self, timeout: float = 60) -> list[str]:
        """What a person sees once it has ended, line by line, from the first on."""
        deadline = time.monotonic() + timeout
        while self._read(wait_s=0.2) or self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; seen:\n{self.all}"
        shown = pyte.HistoryScreen(self._columns, LINES, history=10_000)
        stream = pyte.Stream(shown)
        stream.feed(self._raw)
        above = ["".join(row[place].data for place in range(self._columns)) for row in shown.history.top]
        return [line.rstrip() for line in (*above, *shown.display)]

    def _read(self, wait_s: float = 0.2) -> bool:
        """Whether something came."""
        if not select.select([self._handle], [], [], wait_s)[0]:
            return False
        try:
            text = self._decoder.decode(os.read(self._handle, 65536))
        except OSError:  # the other side is gone
            return False
        # A terminal would answer when prompt_toolkit asks where the cursor is.
        os.write(self._handle, b"\x1b[1;1R" * text.count("\x1b[6n"))
        self._raw += text
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        self._seen += plain
        self.all += plain
        return True


@contextmanager
def terminal(
    home: Path, *arguments: str, columns: int = 120, window: bool = False, **environment: str
) -> Iterator[Terminal]:
    """`forebay` with these arguments; ended when the block ends.

    `window`: the terminal has a size of its own, for `screen()`. The prompt draws for one, and would go by where the cursor
    is, which nobody here knows.
    """
    handle, inner = pty.openpty()
    if window:
        termios.tcsetwinsize(handle, (LINES, columns))
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", *arguments],
        env={
            **os.environ, "FOREBAY_HOME": str(home), "FOREBAY_MASTER": "local[2]", "TERM": "xterm",
            "COLUMNS": str(columns), "LINES": str(LINES), **environment,
        },
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    try:
        yield Terminal(process, handle, columns)
    finally:
        process.kill()
        process.wait()
        os.close(handle)
