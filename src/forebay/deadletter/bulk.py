"""Letters made and sent in native code: raw bytes never become Python objects, and delivery is awaited once.

The same letters as `letter.py` and `writer.KafkaDestination` make, which take its place where the wheel is
absent or does not know a setting. They also send what it hands back: a letter that its topic finds too
large, and all of them where its TLS does not take the broker's certificate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from forebay.connectors.contract import Stretch
from forebay.deadletter.letter import Letter
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.writer import PATIENCE_MS, SAY_S, KafkaDestination
from forebay.kafka.settings import connection_settings, native_settings
from forebay.native import native
from forebay.options import Options

_WAIT_MS = 500


class BulkLetters:
    """For one task. Its reader writes letters into `handle`; none is sent before it is granted."""

    def __init__(self, handle: Any, plain: KafkaDestination) -> None:
        self.handle = handle
        self._plain = plain

    @staticmethod
    def open(
        source: str, policy: ErrorPolicy, options: Options, topic_ids: Mapping[str, str]
    ) -> BulkLetters | None:
        """None where letters are for the plain writer. `topic_ids` are those of the topics that the task reads."""
        module = native()
        if module is None or policy.topic is None:
            return None
        settings = connection_settings(options)
        if policy.brokers:
            settings["bootstrap.servers"] = policy.brokers
        carried = policy.include_raw, policy.max_raw_bytes
        try:
            handle = module.Letters(
                native_settings(settings), policy.topic, source, *carried, PATIENCE_MS, dict(topic_ids)
            )
        except ValueError:
            return None  # the reader of the same settings has said so
        return BulkLetters(handle, KafkaDestination(source, policy.topic, options, policy.brokers))

    def grant(self, count: int) -> list[Stretch]:
        """Let the first so many letters of the last batch go. Where those are that were kept out."""
        try:
            kept_out = self.handle.grant(count)
        except RuntimeError as error:
            raise self._plain.error(*_reason(error)) from None
        self._send_returned()
        return [Stretch(*each) for each in kept_out]

    def flush(self) -> None:
        """Until all that were granted are durable. A broker that is away is waited for, up to PATIENCE_MS."""
        began, say_s = time.monotonic(), SAY_S
        while True:
            try:
                waiting = self.handle.flush(_WAIT_MS)
            except RuntimeError as error:
                raise self._plain.error(*_reason(error)) from None
            if not waiting:
                break
            if time.monotonic() - began > say_s:
                say_s *= 2
                self._plain.say_waiting(waiting, self.handle.trouble)
        self._send_returned()
        self._plain.flush()

    def _send_returned(self) -> None:
        for key, value, headers in self.handle.returned():
            self._plain.write(Letter.from_kafka(key, value, headers))


def _reason(error: RuntimeError) -> tuple[KafkaError, str]:
    code, text = error.args
    return KafkaError(code or KafkaError._MSG_TIMED_OUT, text), text
