"""What a source connector must do: the verbs that a session and its tasks call.

One connector lives in three places at once. On the driver it is opened, asked for its health, and hears
to commit. In Spark's planning process it says how far there is to read, and splits that into tasks. In
a worker it reads one split. So an instance is made from a `SourceConfig`, which pickles, and whatever
it connects to is connected on first use in the process where it is used.

    new(config) → open() → [latest_offsets() → plan_batches() → read_batch() …] → close()
                                      ↑
                        commit_offsets(), after the checkpoint
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from forebay.errors import ConnectorStateError, OptionValueError
from forebay.options import Option, Options, OptionTable, dereference

if TYPE_CHECKING:  # commands that look at a home need none of them, and they take long to import
    import pyarrow as pa
    from forebay_native import Letters

Offsets = dict[str, Any]
"""A position in the source as JSON: what Spark writes into its offset log. Key order is part of it."""


class ConnectorState(StrEnum):
    """Where a connector is in its life."""

    CREATED = "created"  # made, not connected
    RUNNING = "running"  # open() succeeded
    FAILED = "failed"  # open() did not succeed; it may be tried again
    STOPPED = "stopped"  # close() was called; there is no way back


@dataclass(frozen=True)
class ConnectorInfo:
    """What a connector is and which options it takes."""

    connector_type: str
    description: str
    config_keys: tuple[Option, ...]
    supported_formats: tuple[str, ...]


@dataclass(frozen=True)
class SourceConfig:
    """All that a connector needs to know. Pickles; holds secrets, so its repr does not show options."""

    name: str
    connector: str
    options: Mapping[str, str] = field(repr=False)
    schema: pa.Schema = field(repr=False)  # the declared columns, without metadata columns


@dataclass(frozen=True)
class SourceCheckpoint:
    """How far a source has been read, durably: `epoch` is the micro-batch that got there."""

    offsets: Offsets
    epoch: int
    timestamp_ms: int = field(default_factory=lambda: int(time.time() * 1000))


@dataclass(frozen=True)
class Split:
    """The part of a micro-batch that one task reads. A connector adds its own fields. Must pickle."""

    def spans(self) -> Sequence[tuple[str, int, int, int]]:
        """Topic, partition, first offset and the one after the last, of each range that it reads.

        Where there are such things: a batch of splits that have none is counted by reading it again.
        """
        return ()

    def topic_ids(self) -> Mapping[str, str]:
        """What tells each topic from one of its name before or after it, where that is known."""
        return {}


class RawRecord(NamedTuple):
    """A record as it is in the log, byte for byte."""

    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class RejectedRecord(NamedTuple):
    """A record that did not decode: where it is, of what kind the failure is, and why."""

    topic: str
    partition: int
    offset: int
    kind: str
    message: str
    path: str = ""  # of the column at fault, where it is one
    of_key: bool = False  # it is the key that did not decode
    before: int = 0  # how many of its partition are good in this batch, before it
    record: RawRecord | None = None  # where it was wanted, and could be had
    gone: bool = False  # no record, but a range of them that is gone: see the message


@dataclass(frozen=True)
class Wanted:
    """How much a reader tells of the records it rejects; the less, the less they cost."""

    whole: bool = False  # with their bytes
    most: Callable[[], int] | None = None  # asked now and then; what is rejected beyond is only counted
    letters: Letters | None = None  # where a reader that can makes letters by itself; others leave it alone
    reported: Callable[[], int] | None = (
        None  # so many of those with a letter are handed over, too; None for all
    )


class Stretch(NamedTuple):
    """A part of the log in which records were rejected: `bad` of those in [start, end)."""

    topic: str
    partition: int
    start: int
    end: int
    bad: int
    topic_id: str = ""  # empty where it is not known


@dataclass(frozen=True)
class SourceBatch:
    """Good rows in the source's full schema, and the records that were rejected on the way."""

    records: pa.RecordBatch
    rejected: Sequence[RejectedRecord] = ()
    skipped: int = 0  # records that hold no row and are not meant to: a header line, a comment, a tombstone
    extra: int = 0  # rows beyond one a record: an update in a change log is two
    counted: Mapping[str, int] = field(
        default_factory=dict
    )  # by kind: rejected, and nothing more is known of them
    stretches: Sequence[Stretch] = ()  # where those are
    good: Mapping[tuple[str, int], int] = field(default_factory=dict)  # by topic and partition
    lettered: int | None = None  # letters that the reader has made; None if it makes none
    case_mismatches: int = 0  # good records with a NULL for a field that differs from its column only in case

    @property
    def read(self) -> int:
        """How many of the source's records this is, the good, the rejected and the skipped."""
        rejected = len(self.rejected) + sum(self.counted.values())
        return int(self.records.num_rows) - self.extra + rejected + self.skipped


@dataclass(frozen=True)
class Discovered:
    """Columns that nobody declared: where they are from, and what there is to say about them."""

    columns: pa.Schema
    origin: str
    notes: tuple[str, ...] = ()
    fixed: bool = False  # always the same: nothing to keep or to tell


@dataclass(frozen=True, repr=False)
class PartitionLag:
    """How far the group is behind in one partition: `lag` = `end` − `committed`."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int

    def __repr__(self) -> str:
        committed = "none" if self.committed is None else f"{self.committed:,}"
        return (
            f"<lag in {self.topic}/{self.partition}: {self.lag:,} (committed {committed}, end {self.end:,})>"
        )


@dataclass(frozen=True)
class HealthStatus:
    """Whether the system behind a source answers, with what a person wants to know about it."""

    healthy: bool
    message: str
    details: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[
        PartitionLag, ...
    ] = ()  # how far the group is behind, where there is one and it is known


@dataclass(frozen=True)
class ConnectorMetrics:
    """Counters since open(), as far as this process knows them."""

    records_total: int = 0
    errors_total: int = 0
    records_per_sec: float = 0.0
    lag: int | None = None
    custom: Mapping[str, float] = field(default_factory=dict)


class SourceConnector(ABC):
    """A system that records come from."""

    table: ClassVar[OptionTable]

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self.options: Options = self.table.bind(config.options)
        self.wanted = Wanted()
        self._state = ConnectorState.CREATED

    @property
    def state(self) -> ConnectorState:
        return self._state

    @classmethod
    @abstractmethod
    def info(cls) -> ConnectorInfo:
        """What it is, its options, its formats."""

    @classmethod
    def with_defaults(cls, name: str, given: Mapping[str, str]) -> dict[str, str]:
        """The options of a source of this name, with what follows from the name filled in."""
        return dict(given)

    @classmethod
    def as_table(cls, config: SourceConfig) -> SourceConfig:
        """The source to be read once as a table, and not as a stream."""
        return config

    @property
    def group(self) -> str | None:
        """The group whose offsets follow what was read; None where there is no such thing."""
        return None

    def topics(self) -> tuple[str, ...] | None:
        """The topics that are named, which dead letters can go back to; None where there are no topics at all."""
        return None

    def summary(self) -> list[tuple[str, str]]:
        """What a person wants to know of it first, for DESCRIBE: a label and a value each. No secrets."""
        return []

    def for_workers(self) -> dict[str, str]:
        """The options as a worker gets them: nothing in them is looked up on the machine where it runs."""
        return {key: dereference(key, text) for key, text in self.config.options.items()}

    @property
    def change_log(self) -> bool:
        """Whether a row is a change of a table, with its weight in `_weight`, rather than a fact of its own."""
        return False

    @abstractmethod
    def full_schema(self) -> pa.Schema:
        """The declared columns and the metadata columns that the options ask for."""

    @abstractmethod
    def open(self) -> None:
        """Connect and check what can be checked. Blocks within the limits of its options.

        Raises a ForebayError that says what to do; the state is FAILED then, and it may be tried again.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Safe to call twice, and after an open() that failed. Never raises."""

    @abstractmethod
    def discover_schema(self) -> Discovered | None:
        """The columns, where the system itself knows them or shows them; None where they must be declared.

        Blocks while it asks. NoColumnsError where it should know them and does not; UnreachableError, AuthError.
        """

    def notes(self) -> tuple[str, ...]:
        """What a look at the records says about the declared columns, for people. Asked for once, at CREATE."""
        return ()

    def pinned(self) -> dict[str, str]:
        """Options that are settled when the source is created, and kept with it. Asked for once."""
        return {}

    def evolved(self, schema_id: int) -> SourceConfig:
        """The source with the columns that records of this schema add. SchemaChangedError if they cannot."""
        raise ConnectorStateError(f"source '{self.config.name}' has no schemas that could change")

    def redefine(self, config: SourceConfig) -> None:
        """Go on with other columns; what it is connected to stays as it is."""
        self.options = self.table.bind(config.options)
        self.config = config

    @abstractmethod
    def initial_offsets(self) -> Offsets:
        """Where a reader without a checkpoint starts. Blocks while it asks; UnreachableError, UnknownTopicError."""

    def identity(self) -> str:
        """What is read, by whom and from where on: sources that agree in it have the same beginning."""
        return ""

    def offsets_at(self, timestamp_ms: int | None) -> Offsets:
        """Where the first record of that time or later is; with None, where the source ends now."""
        raise OptionValueError(
            f"a {self.config.connector} source can be read from its beginning only", option="start"
        )

    def still_there(self, offsets: Offsets) -> tuple[Offsets, tuple[str, ...]]:
        """The position, moved to what can still be read, and the ranges that are gone, for people to read.

        Raises `TopicRecreatedError` if it is a position in something else than what is there now.
        """
        return offsets, ()

    @abstractmethod
    def latest_offsets(
        self, start: Offsets, max_records: int | None, until: Offsets | None = None
    ) -> Offsets:
        """How far to read now from `start`: at most `max_records`, never past `until`; `start` if nothing.

        Blocks for `poll.timeout.ms` at most while there is nothing. A system that is away for the moment has nothing to
        read; it is not an error. OffsetOutOfRangeError, TopicRecreatedError where what comes next is gone.
        """

    @abstractmethod
    def known_end(self) -> Offsets | None:
        """Where the source ended when `latest_offsets` last looked. Does not ask again."""

    @abstractmethod
    def end_offsets(self) -> Offsets:
        """Where the source ends right now; raises when the system cannot be asked."""

    @abstractmethod
    def reached(self, position: Offsets, target: Offsets) -> bool:
        """Whether a reader at `position` has read all that lies before `target`."""

    @abstractmethod
    def count(self, start: Offsets, end: Offsets) -> int:
        """How many records lie between, at most (gaps in the log count as records)."""

    def lost(self, start: Offsets, end: Offsets) -> tuple[tuple[str, int, int, int], ...]:
        """What lies between but was gone before it could be read: topic, partition, [first, end) of each range."""
        return ()

    @abstractmethod
    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        """Cut what lies between into tasks, by the positions alone. The same records whenever it is called again."""

    def plan_batches(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        """The same, to be read: raises where the system does not have any more what was planned.

        A batch may be planned by one process and repeated by another, much later.
        """
        return self.splits(start, end, parallelism)

    @abstractmethod
    def read_batch(self, split: Split) -> Iterator[SourceBatch]:
        """Read one split, in order. Runs in a worker process, on an instance that was never opened.

        Blocks until the system has answered. ReadStalledError, AuthError, OffsetOutOfRangeError; a record that does not
        decode is no error here: it is among the batch's `rejected`.
        """

    @abstractmethod
    def commit_offsets(self, checkpoint: SourceCheckpoint) -> None:
        """Tell the system how far the checkpoint has got. Called after the checkpoint, never before.

        Blocks until it is confirmed. CommitError if it is not; the same or a later one is then committed again.
        """

    @abstractmethod
    def current_offsets(self) -> SourceCheckpoint | None:
        """The checkpoint last committed by this instance."""

    @abstractmethod
    def lag(self) -> list[PartitionLag]:
        """How far the committed position is behind, a partition a row. Blocks while it asks; UnreachableError, AuthError."""

    @abstractmethod
    def health_check(self) -> HealthStatus:
        """Ask the system whether it is there. Blocks while it asks. Never raises."""

    @abstractmethod
    def metrics(self) -> ConnectorMetrics:
        """The counters of this instance."""
