"""What handlers of a transactional pool send. It is checked when it is sent: the handler is still there to hear of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from forebay.errors import OutputError
from forebay.kafka.producer import OutgoingRecord

MOST_BYTES = (
    1_000_000  # of a record, unless 'kafka.message.max.bytes' says otherwise: the library's own limit
)
OVERHEAD = 64  # of a record, at most; and of a header, a little less
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

Data = bytes | str | None


class Outbox:
    """What one record has sent in one attempt."""

    __slots__ = ("_most", "records")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.records: list[OutgoingRecord] = []

    def put(
        self,
        topic: str,
        value: Data,
        key: Data,
        headers: Sequence[tuple[str, Data]],
        partition: int | None,
    ) -> None:
        """OutputError for what the client library would not take."""
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise OutputError(f"a record cannot be sent to {topic!r}: that is no name of a topic")
        if partition is not None and (type(partition) is not int or not 0 <= partition < 1 << 31):
            raise OutputError(f"a record cannot be sent to '{topic}': {partition!r} is no partition")
        record = OutgoingRecord(
            topic,
            _bytes(key, "key", topic),
            _bytes(value, "value", topic),
            _headers(headers, topic),
            partition,
        )
        size = OVERHEAD + len(record.value or b"") + len(record.key or b"")
        size += sum(OVERHEAD // 4 + len(name.encode()) + len(data or b"") for name, data in record.headers)
        if size > self._most:
            raise OutputError(
                f"a record cannot be sent to '{topic}': it has {size:,} bytes, and the most is {self._most:,}"
            )
        self.records.append(record)


def _headers(headers: Sequence[tuple[str, Data]], topic: str) -> list[tuple[str, bytes | None]]:
    found = []
    for each in headers:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise OutputError(f"a record cannot be sent to '{topic}': {each!r} is no header, which is a pair")
        name = _bytes(each[0], "header's name", topic)
        if name is None:
            raise OutputError(f"a record cannot be sent to '{topic}': a header has no name")
        found.append((name.decode(), _bytes(each[1], "header's value", topic)))
    return found


def _bytes(data: Any, what: str, topic: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise OutputError(
                f"a record cannot be sent to '{topic}': its {what} has half of a surrogate pair, which is no text"
            ) from None
    raise OutputError(
        f"a record cannot be sent to '{topic}': its {what} is a {type(data).__name__}, and neither bytes nor text"
    )
