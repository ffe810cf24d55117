"""What a command waits for, said as soon as it waits: one changing line in a terminal, a line each elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.status import Status

from forebay.cli.output import words


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
        if self._status is not None:
            self._status.stop()

    def say(self, what: str) -> None:
        if what == self._said:
            return
        self._said = what
        if not words.is_terminal:
            words.print(f"{what} …", markup=False, highlight=False, soft_wrap=True)
        elif self._status is None:
            self._status = words.status(f"{what} …")
            self._status.start()
        else:
            self._status.update(f"{what} …")
