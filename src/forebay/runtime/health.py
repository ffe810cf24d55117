"""Whether the systems behind a session's sources answer, and how far the groups are behind.

Asking takes as long as a broker likes, so a thread asks now and then, and whoever wants to know has the last
answer at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forebay import threads
from forebay.connectors.contract import HealthStatus, SourceConnector

EVERY_S = 1.0  # lag is right to the second; planning asks the same brokers more often than that
KEPT_S = 30.0  # longer than any one question takes; an answer older than that says nothing about now
CLOSE_S = 5.0


@dataclass(frozen=True)
class _Answer:
    connector: SourceConnector
    health: HealthStatus
    at: float


class HealthWatch:
    """Looks after the sources that `sources()` names, from its start until it is closed."""

    def __init__(
        self,
        sources: Callable[[], Mapping[str, SourceConnector]],
        on_change: Callable[[str, HealthStatus], None] = lambda source, health: None,
    ) -> None:
        self._sources = sources
        self._on_change = on_change  # hears when a source's brokers go away, and when they are back
        self._answers: dict[str, _Answer] = {}
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-health", self._run, self._closed)

    def last(self) -> dict[str, HealthStatus]:
        """The last word on each source; nothing of one that was not asked yet. Never waits."""
        now, sources = time.monotonic(), self._sources()
        return {
            name: answer.health if now - answer.at < KEPT_S else _SILENT
            for name, answer in list(self._answers.items())
            if sources.get(name) is answer.connector
        }

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            sources = self._sources()
            for name, connector in sources.items():
                if self._closed.is_set():
                    return
                self._take(name, _Answer(connector, asked(connector), time.monotonic()))
            for name in self._answers.keys() - sources.keys():
                del self._answers[name]
            self._closed.wait(EVERY_S)

    def _take(self, name: str, answer: _Answer) -> None:
        before = self._answers.get(name)
        self._answers[name] = answer
        was = before is None or before.connector is not answer.connector or before.health.healthy
        if was != answer.health.healthy and self._sources().get(name) is answer.connector:
            self._on_change(name, answer.health)


def asked(connector: SourceConnector) -> HealthStatus:
    """What a connector says of its brokers. Blocks; never raises."""
    try:
        return connector.health_check()
    except Exception as error:
        # Of somebody else's connector: it must not silence the others.
        return HealthStatus(False, str(error))


_SILENT = HealthStatus(False, f"no answer for {KEPT_S:.0f} s")
