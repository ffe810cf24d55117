"""The decoding contract: payloads in, typed Arrow rows and named refusals out.

Whatever the bytes, `decode()` does not raise: one bad record costs one record, the good ones keep their
order, and each payload ends in one of three places, never in two and never in none: in the batch, in `bad`,
or in `skipped`. A value that is not what its column says is refused: it is not bent into shape and does not
become NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa


class RefusalKind(StrEnum):
    """Why a record was refused. The words are what users filter dead letters by."""

    MALFORMED_PAYLOAD = "MalformedPayload"
    """The bytes are not in the format at all: they do not parse, are empty, or mean two things at once."""

    SCHEMA_MISMATCH = "SchemaMismatch"
    """It parses, but its shape is not the table's: a NOT NULL field is absent, a field is too many."""

    TYPE_CONVERSION = "TypeConversion"
    """A value that its column's type cannot hold exactly as it was written."""

    UNKNOWN_SCHEMA_ID = "UnknownSchemaId"
    """The payload names a schema that the registry does not have."""

    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    """Longer than the source takes."""

    FUTURE_TIMESTAMP = "FutureTimestamp"
    """It decodes, but its event time is so far ahead of the clock that no watermark may follow it."""

    LATE_RECORD = "LateRecord"
    """It decodes, but came after its window was closed, in a view with LATE DATA TO DEAD LETTERS."""

    OTHER = "Other"
    """None of these; the message says what."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One refused payload: its index among the values given, and why. The message never holds all of it."""

    index: int
    kind: RefusalKind
    message: str
    path: str = ""
    """Where in the record, if it is one place. The message begins with it."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of the values given.

    `good` has, for each row of `batch`, the index of its payload; None means that each payload is one row.
    An index occurs twice where a payload is two rows: an update in a change log takes one back and adds one.
    `skipped` has the payloads that hold no row and are not meant to: a header line, a comment, a tombstone.
    `case_mismatches` has, of the good ones, those with a NULL for a field that differs from its column only in case.
    """

    batch: pa.RecordBatch
    good: list[int] | None
    bad: list[BadRecord]
    skipped: list[int] = field(default_factory=list)
    case_mismatches: list[int] = field(default_factory=list)


class Decoder(Protocol):
    """One format with one schema. Holds no state between calls and may be pickled.

    A call is given less than 1 GiB of payload in total: Arrow's string columns hold 2 GiB, and a default or
    an enum's symbol may take more there than in the payload.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch, exactly as Spark wants it of a Python data source."""
        ...

    @property
    def native_options(self) -> Mapping[str, str]:
        """What the native decoder of the format needs beyond the format's options: a plan, for example."""
        ...

    def decode(self, values: Sequence[bytes | None]) -> Decoded: ...


NO_MORE: Mapping[str, str] = MappingProxyType({})
"""The native options of a format that has none."""


class NativeFormat(NamedTuple):
    """A format, its columns and its options, as the native decoder wants them."""

    name: str
    schema: pa.Schema
    options: dict[str, str]


class NativeLesson(NamedTuple):
    """What a header means, as the native decoder learns it: a plan, or None and the kind and reason of a refusal."""

    plan: str | None
    kind: str = ""
    message: str = ""


@runtime_checkable
class Teacher(Protocol):
    """A decoder of payloads that name their schema: it teaches the native one what that means."""

    def lesson(self, header: bytes) -> NativeLesson:
        """`header` is what stands before the datum. AuthError if the registry does not let us in.

        SchemaChangedError or NewFieldsError if the source is to stop at such a schema, or to take it in,
        before it goes on.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """A decoder that can find out before the first record whether it will do."""

    def check(self) -> None: ...
