"""A shell in a terminal, and what a person sees on it, line by line.

The terminal says that it has 80 columns; what is shown is looked at on a sheet that has more, so that a line that is too
long stands out there instead of being torn.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

COLUMNS, ROWS = 80, 40
SHEET = (400, 2000)
# The title of the window is not on the screen: it says how often there was a prompt, and how the command before ended.
_PROMPT = r"""printf '\033]2;%s %s\007' "$?" "$((++prompts))" """


class TypedShell:
    """`type` a command, get the lines that it shows."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._sheet = pyte.Screen(*SHEET)
        self._stream = pyte.ByteStream(self._sheet)
        self._prompts = 1
        self._await_prompt(30)

    def type(self, command: str, timeout: float) -> tuple[list[str], int]:
        """The lines below the command when the prompt is there again, and its exit code."""
        first = self._sheet.cursor.y + 1
        os.write(self._handle, command.encode() + b"\r")
        self._prompts += 1
        code = self._await_prompt(timeout, command)
        return [self._line(number) for number in range(first, self._sheet.cursor.y)], code

    @property
    def transcript(self) -> str:
        return "".join(f"{self._line(number)}\n" for number in range(self._sheet.cursor.y))

    def _line(self, number: int) -> str:
        """Not `display`, which draws the whole sheet."""
        cells = self._sheet.buffer[number]
        return "".join(cells[place].data for place in range(max(cells, default=-1) + 1)).rstrip()

    def _await_prompt(self, timeout: float, command: str = "the shell") -> int:
        deadline = time.monotonic() + timeout
        while True:
            code, _, count = self._sheet.title.partition(" ")
            if count and int(count) == self._prompts and self._line(self._sheet.cursor.y).endswith("$"):
                return int(code)
            assert time.monotonic() < deadline, f"{command} goes on after {timeout} s:\n{self.transcript}"
            if select.select([self._handle], [], [], 0.2)[0]:
                self._stream.feed(os.read(self._handle, 65536))


@contextmanager
def typed_shell(folder: Path, environment: Mapping[str, str]) -> Iterator[TypedShell]:
    handle, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {"TERM": "xterm", "PS1": "$ ", "PROMPT_COMMAND": _PROMPT, "HISTFILE": ""}
    unset = ("COLUMNS", "LINES")
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-i"], cwd=folder, start_new_session=True,
        env={key: text for key, text in environment.items() if key not in unset} | own,
        stdin=inner, stdout=inner, stderr=inner, preexec_fn=_own_terminal,
    )  # fmt: skip
    os.close(inner)
    try:
        yield TypedShell(handle)
    finally:
        process.kill()
        process.wait()
        os.close(handle)


def _own_terminal() -> None:
    """The terminal is the shell's own, so that it has jobs, and the programs in it a window."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
