"""What a command waits for, said as soon as it waits: one changing line in a terminal, a line each elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.live import Live
from rich.status import Status
from rich.text import Text

from forebay.cli.output import words

QUIET_S = 0.5


class Elapsed:
    """Words with the seconds that have gone by since they were first said, as they are drawn.

    For so long as `quiet_s` nothing is drawn: what is quicker needs no word.
    """

    def __init__(self, what: str, quiet_s: float = 0.0) -> None:
        self._what = what
        self._quiet_s = quiet_s
        self._since = time.monotonic()

    def __rich__(self) -> Text:
        passed = time.monotonic() - self._since
        if passed < self._quiet_s:
            return Text()
        return Text(f"{self._what} …" + (f" {int(passed)} s" if passed >= 1 else ""), no_wrap=True)


class Phases:
    """`say(...)` names what is being waited for now."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._said = ""

    def __enter__(self) -> Phases:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def say(self, what: str) -> None:
        if what == self._said:
            return
        self._said = what
        if not words.is_terminal:
            words.print(f"{what} …", markup=False, highlight=False, soft_wrap=True)
        elif self._status is None:
            self._status = words.status(Elapsed(what))
            self._status.start()
        else:
            self._status.update(Elapsed(what))

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()
        self._status, self._said = None, ""


class Shown:
    """For somebody who waits (`forebay.patience`). Without a terminal nothing is shown: only how it ended counts."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __call__(self, what: str | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if what is not None and words.is_terminal:
            self._live = Live(Elapsed(what, QUIET_S), console=words, refresh_per_second=8, transient=True)
            self._live.start()
