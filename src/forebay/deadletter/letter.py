"""A dead letter: a record that did not decode, with where it is from and why.

In Kafka the letter is the record itself: its key and value byte for byte, its own headers first and
untouched, and behind them what happened, under Kafka Connect's names and under `forebay.*`. The last
header counts the record's own, so that a record which itself carries such names is read back exactly.
In files and for programs it is JSON, one object a letter.

A task that is repeated writes its letters again. A letter's identity is where its record is, and in which topic of
that name; whoever reads letters counts one identity once.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from forebay.deadletter.identity import Identity

Stage = Literal["KEY", "VALUE"]
Headers = tuple[tuple[str, bytes | None], ...]

REPLAY_ID = "forebay.replay.id"
REPLAYED_FROM = "forebay.replayed.from"
"""Headers of a record that was replayed: by which replay, and of which letter's record."""

_CONNECT = "__connect.errors."
_OWN = "forebay."
_COUNT = "forebay.headers"  # always last
SHOWN = 100  # characters of a message in a repr
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotALetterError(ValueError):
    """A record of a dead-letter topic, or a line of a file, that Forebay did not write."""


@dataclass(frozen=True, repr=False)
class Letter:
    """A record that was refused or could not be handled, with its bytes and the reason."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None  # the record's own; None where the broker has none
    key: bytes | None
    value: bytes | None  # whole, or its head, or None where the policy leaves it out: see `whole`
    headers: Headers  # the record's own, in order, names may repeat
    kind: str
    message: str
    failed_at_ms: int
    field: str | None = None  # the path of the column at fault, where one is
    stage: Stage = "VALUE"
    size: int = 0  # bytes of the whole value; -1: not known, it was too large to be held
    sha256: str | None = None  # of the whole value, where it is not all here and was ever held
    topic_id: str = (
        ""  # tells the topic from one of the same name before or after it; empty where it is not known
    )
    stacktrace: str | None = None  # of the handler that failed, where one did

    def __repr__(self) -> str:
        size = "unknown size" if self.size < 0 else f"{self.size:,} bytes"
        return f"<letter {self.identity.place} of {self.source}, {size}: {self.kind}: {_first(self.message)}>"

    @property
    def identity(self) -> Identity:
        """Which record it is about: topic, partition, offset, and the topic's id where that is known."""
        return Identity(self.topic, self.partition, self.offset, self.topic_id)

    @property
    def whole(self) -> bool:
        """Whether `value` is all that the record held. If not, the record must be read again to replay it."""
        return self.sha256 is None and len(self.value or b"") == self.size

    def cut(self, limit: int) -> Letter:
        """With at most so many bytes of the value; `size` and `sha256` tell of the rest."""
        if self.value is None or len(self.value) <= limit:
            return self
        return replace(self, value=self.value[:limit], sha256=self.sha256 or _sha256(self.value))

    def without_value(self) -> Letter:
        """With no byte of the value; `size` and `sha256` tell of it."""
        if self.value is None:
            return self
        return replace(self, value=None, sha256=self.sha256 or _sha256(self.value))

    # -- as a Kafka record ---------------------------------------------------------------------------

    def to_kafka(self) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Key, value and headers of the record in the dead-letter topic."""
        source, kind, message = _bytes(self.source), _bytes(self.kind), _bytes(self.message)
        headers: list[tuple[str, bytes | None]] = [
            *self.headers,
            (_CONNECT + "topic", _bytes(self.topic)),
            (_CONNECT + "partition", b"%d" % self.partition),
            (_CONNECT + "connector.name", source),
            (_CONNECT + "stage", b"KEY_CONVERTER" if self.stage == "KEY" else b"VALUE_CONVERTER"),
            (_CONNECT + "class.name", b"forebay"),
            (_CONNECT + "exception.class.name", kind),
            (_OWN + "source", source),
            (_OWN + "error.kind", kind),
            (_OWN + "failed.at.ms", b"%d" % self.failed_at_ms),
            *([(_OWN + "topic.id", _bytes(self.topic_id))] if self.topic_id else ()),
            # So far as in other letters of the partition and kind: the native writer copies it at once.
            (_CONNECT + "offset", b"%d" % self.offset),
            (_CONNECT + "exception.message", message),
            (_OWN + "error.message", message),
            (_OWN + "size", b"%d" % self.size),
        ]
        if self.field is not None:
            headers.append((_OWN + "error.field", _bytes(self.field)))
        if self.timestamp_ms is not None:
            headers.append((_OWN + "timestamp.ms", b"%d" % self.timestamp_ms))
        if self.sha256 is not None:
            headers.append((_OWN + "sha256", self.sha256.encode()))
        if self.stacktrace is not None:
            headers.append((_CONNECT + "exception.stacktrace", _bytes(self.stacktrace)))
        headers.append((_COUNT, b"%d" % len(self.headers)))
        return self.key, self.value, headers

    @classmethod
    def from_kafka(
        cls, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> Letter:
        """NotALetterError for a record that somebody else wrote there."""
        own, about = _split(headers or ())
        try:
            stamp = about.get(_OWN + "timestamp.ms")
            return cls(
                source=about[_OWN + "source"],
                topic=about[_CONNECT + "topic"],
                partition=int(about[_CONNECT + "partition"]),
                offset=int(about[_CONNECT + "offset"]),
                timestamp_ms=int(stamp) if stamp is not None else None,
                key=key,
                value=value,
                headers=own,
                kind=about[_OWN + "error.kind"],
                message=about[_OWN + "error.message"],
                failed_at_ms=int(about[_OWN + "failed.at.ms"]),
                field=about.get(_OWN + "error.field"),
                stage="KEY" if about[_CONNECT + "stage"].startswith("KEY") else "VALUE",
                size=int(about[_OWN + "size"]),
                sha256=about.get(_OWN + "sha256"),
                topic_id=about.get(_OWN + "topic.id", ""),
                stacktrace=about.get(_CONNECT + "exception.stacktrace"),
            )
        except (KeyError, ValueError) as error:
            raise NotALetterError(f"no dead letter of Forebay: {error!r}") from None

    # -- as JSON -------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """One object a letter. Partition and offset are text, for readers whose numbers have no 64 bits."""
        return {
            "source_name": self.source,
            "error_kind": self.kind,
            "error_message": self.message,
            "error_field": self.field,
            "stage": self.stage,
            "timestamp": _iso(self.failed_at_ms),
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "record_timestamp_ms": self.timestamp_ms,
            "key_base64": _base64(self.key),
            "raw_bytes_base64": _base64(self.value),
            "headers": [{"key": name, "value_base64": _base64(data)} for name, data in self.headers],
            "size": self.size,
            "sha256": self.sha256,
            "stacktrace": self.stacktrace,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Letter:
        """From what `to_json` wrote. NotALetterError for anything else."""
        try:
            return cls(
                source=form["source_name"],
                topic=form["topic"],
                partition=int(form["partition"]),
                offset=int(form["offset"]),
                timestamp_ms=form["record_timestamp_ms"],
                key=_unbase64(form["key_base64"]),
                value=_unbase64(form["raw_bytes_base64"]),
                headers=tuple((one["key"], _unbase64(one["value_base64"])) for one in form["headers"]),
                kind=form["error_kind"],
                message=form["error_message"],
                failed_at_ms=_ms(form["timestamp"]),
                field=form["error_field"],
                stage=form["stage"],
                size=form["size"],
                sha256=form["sha256"],
                topic_id=form.get("topic_id", ""),
                stacktrace=form.get("stacktrace"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotALetterError(f"no dead letter of Forebay: {error!r}") from None


def _split(headers: Sequence[tuple[str, bytes | None]]) -> tuple[Headers, dict[str, str]]:
    """The record's own headers, and what the letter says; other tools may have added some at the end."""
    count = next((data for name, data in reversed(headers) if name == _COUNT), None)
    if count is None or not count.isdigit() or int(count) > len(headers):
        raise NotALetterError(f"no dead letter of Forebay: it has no header {_COUNT}")
    own = int(count)
    about = {name: data.decode(errors="replace") for name, data in headers[own:] if data is not None}
    return tuple((name, data) for name, data in headers[:own]), about


def _bytes(text: str) -> bytes:
    # A message may quote text that is no Unicode, such as half of a surrogate pair.
    return text.encode(errors="backslashreplace")


def _first(message: str) -> str:
    """The first line of a message, and not all of a long one."""
    line = next(iter(message.splitlines()), "")
    return line if len(line) <= SHOWN else line[:SHOWN] + "…"


def _sha256(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _iso(ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
