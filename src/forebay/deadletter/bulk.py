"""Letters made and sent in native code: raw bytes never become Python objects, and delivery is awaited once.

The same letters as `letter.py` and `writer.KafkaDestination` make, which take its place where the wheel is
absent or does not know a setting. They also send what it hands back: a letter that its topic finds too
large, and all of them where its TLS does not take the broker's certificate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.connectors.contract import Stretch
from forebay.deadletter.destinations import PATIENCE_MS, SAY_S, KafkaDestination
from forebay.deadletter.letter import Letter
from forebay.deadletter.policy import ErrorPolicy
from forebay.kafka.settings import connection_settings, from_native, native_settings
from forebay.native import native, stretches
from forebay.options import Options

if TYPE_CHECKING:
    from forebay_native import Letters

_WAIT_MS = 500


class BulkLetters:
    """For one task. Its reader writes letters into `handle`; none is sent before it is granted."""

    def __init__(self, handle: Letters, plain: KafkaDestination) -> None:
        self.handle = handle
        self._plain = plain

    @staticmethod
    def open(
        source: str, policy: ErrorPolicy, options: Options, topic_ids: Mapping[str, str]
    ) -> BulkLetters | None:
        """None where letters are for the plain writer. `topic_ids` are those of the topics that the task reads."""
        if native() is None or policy.topic is None:
            return None
        from forebay_native import Letters

        settings = connection_settings(options)
        if policy.brokers:
            settings["bootstrap.servers"] = policy.brokers
        try:
            handle = Letters(
                native_settings(settings),
                policy.topic,
                source,
                carries_value=policy.include_raw,
                most=policy.max_raw_bytes,
                patience_ms=PATIENCE_MS,
                topic_ids=dict(topic_ids),
            )
        except ValueError:
            return None  # the reader of the same settings has said so
        return BulkLetters(handle, KafkaDestination(source, policy.topic, options, policy.brokers))

    def grant(self, count: int) -> list[Stretch]:
        """Let the first so many letters of the last batch go. Where those are that were kept out."""
        with self._translating():
            kept_out = self.handle.grant(count)
        self._send_returned()
        return stretches(kept_out)

    def flush(self) -> None:
        """Until all that were granted are durable. A broker that is away is waited for, up to PATIENCE_MS."""
        began, say_s = time.monotonic(), SAY_S
        while True:
            with self._translating():
                waiting = self.handle.flush(_WAIT_MS)
            if not waiting:
                break
            if time.monotonic() - began > say_s:
                say_s *= 2
                self._plain.say_waiting(waiting, self.handle.trouble)
        self._send_returned()
        self._plain.flush()

    def _send_returned(self) -> None:
        for letter in self.handle.returned():
            self._plain.write(Letter.from_kafka(letter.key, letter.value, letter.headers))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        from forebay_native import BrokerError

        try:
            yield
        except BrokerError as error:
            raise self._plain.error(from_native(error), error.message) from None
