"""What a JVM says on stderr, without the one line that says nothing to anybody.

Spark's launcher adds the module jdk.incubator.vector to each JVM, and Java warns of it at each start. The module stays:
Spark's linear algebra is quicker with it. Everything else is passed on as it comes, byte for byte.
"""

from __future__ import annotations

import os
import sys
import threading

from forebay import threads

NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
STDERR = 2
LAST_S = 2.0  # how long the last words of a JVM that has ended may take to get here


class Filter:
    """Takes pieces as they are read, and gives what is to be passed on. Drops the line once, where a line begins."""

    def __init__(self) -> None:
        self._held = b""  # the beginning of a line that may become the one
        self._done = False
        self._line_begins = True

    def __call__(self, piece: bytes) -> bytes:
        if self._done:
            return piece
        passed = b""
        text, self._held = self._held + piece, b""
        while text:
            if self._line_begins and text.startswith(NOISE):
                self._done = True
                return passed + text[len(NOISE) :]
            if self._line_begins and NOISE.startswith(text):
                self._held = text
                return passed
            end = text.find(b"\n") + 1 or len(text)
            passed, self._line_begins, text = passed + text[:end], text[end - 1 : end] == b"\n", text[end:]
        return passed

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held


class Stderr:
    """A pipe for a JVM to write to; give `into` to who starts it, and close it after that."""

    def __init__(self) -> None:
        self._out, self.into = os.pipe()
        self._ended = threading.Event()
        threads.start("forebay-jvm-stderr", self._copy, lambda error: None)

    def close(self) -> None:
        os.close(self.into)

    def wait_for_end(self) -> None:
        """Until all that a JVM said that has ended is passed on."""
        self._ended.wait(LAST_S)

    def _copy(self) -> None:
        passing = Filter()
        try:
            while piece := os.read(self._out, 65536):
                _write(passing(piece))
            _write(passing.rest())
        finally:
            self._ended.set()
            os.close(self._out)


def _write(data: bytes) -> None:
    """To our own stderr, or to what stands in for it: a live line puts its own there, which prints above it.

    One that is closed must not stop the reading: the JVM would wait for ever.
    """
    try:
        if sys.stderr is not None and sys.stderr is not sys.__stderr__:
            sys.stderr.write(data.decode(errors="replace"))
            return
        while data:
            data = data[os.write(STDERR, data) :]
    except (OSError, ValueError):
        pass
