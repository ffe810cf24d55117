"""Which topics have letters of this process's pool and of a blackboard's agents: looked for now and then, by one thread.

A topic of letters is often made with its first letter, and an agent's with the agent. So one look is not enough.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from forebay import threads
from forebay.errors import ForebayError, UnknownTopicError
from forebay.web.model import Problem
from forebay.web.shown import inert

log = logging.getLogger("forebay.web")

EVERY_S = 5.0
CLOSE_S = 5.0

LetterTopic = tuple[str, Mapping[str, str]]
"""A topic, and options of a Kafka source that reach its brokers."""


class LetterWatch:
    """`topics` says which there are now, `look_at` has the desk look at one. From its making until it is closed."""

    def __init__(
        self, topics: Callable[[], Iterable[LetterTopic]], look_at: Callable[[str, Mapping[str, str]], None]
    ) -> None:
        self._topics, self._look_at = topics, look_at
        self._watched: set[str] = set()
        self._failed: dict[str, ForebayError] = {}
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-ui-letters", self._run, self._closed)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)

    def problems(self) -> list[Problem]:
        """Topics whose letters cannot be looked at, and why."""
        return [
            Problem(
                "warning", f"the letters in topic {inert(topic)} are not shown", inert(error.message),
                error.remedy or "look whether its brokers run and can be reached: forebay doctor", "/letters",
            )
            for topic, error in sorted(self._failed.items())
        ]  # fmt: skip

    def _run(self) -> None:
        while not self._closed.is_set():
            self._look()
            self._closed.wait(EVERY_S)

    def _look(self) -> None:
        try:
            found = list(self._topics())
        except ForebayError as error:
            log.info("which topics have letters is not known: %s", error.message)
            return
        for topic, options in found:
            if topic in self._watched or self._closed.is_set():
                continue
            try:
                self._look_at(topic, options)
            except UnknownTopicError:
                continue  # made with its first letter
            except ForebayError as error:
                if topic not in self._failed:
                    log.warning("the letters in topic '%s' are not looked at: %s", topic, error.message)
                self._failed[topic] = error
            else:
                self._watched.add(topic)
                self._failed.pop(topic, None)
