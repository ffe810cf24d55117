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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from forebay.connectors.alignment import Alignment, HeldBack
from forebay.errors import ConnectorStateError, OptionValueError
from forebay.hiding import NOTHING, Mask
from forebay.options import Option, Options, OptionTable, dereference

if TYPE_CHECKING:  # commands that look at a home need none of them, and they take long to import
    from pathlib import Path

    import pyarrow as pa
    from forebay_native import Letters

Offsets = dict[str, Any]
"""A position in the source as JSON: what Spark writes into its offset log. Key order is part of it."""

PartitionOffsets = Mapping[tuple[str, int], int]
"""An offset of each partition, by its topic's name and its number."""


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
    event_time: str | None = field(default=None, repr=False)  # the column that carries it


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

    def words(self, mask: Mask = NOTHING) -> str:
        """Where it is and why it was refused, on one line, without what is masked."""
        message = self.message if self.gone else mask.message(self.message, self.path)
        text = f"{self.topic}-{self.partition} at offset {self.offset}: {self.kind}: {message}"
        return text.replace("\n", " ")


@dataclass(frozen=True)
class Wanted:
    """How much a reader tells of the records it rejects; the less, the less they cost."""

    whole: bool = False  # with their bytes
    most: Callable[[], int] | None = None  # asked now and then; what is rejected beyond is only counted
    letters: Letters | None = None  # where a reader that can makes letters by itself; others leave it alone
    reported: Callable[[], int] | None = (
        None  # so many of those with a letter are handed over, too; None for all
    )
    traces: int = (
        0  # of the records that carry a trace: so many good ones are named, and as many rejected ones
    )


class RowPlaces(NamedTuple):
    """The columns that tell which record of its topic a row is of."""

    partition: str
    offset: str


class TracedRecord(NamedTuple):
    """A record that carries a trace which its producer keeps."""

    topic: str
    partition: int
    offset: int
    parent: str  # its `traceparent` header
    kind: str = ""  # why it was rejected, if it was


class Stretch(NamedTuple):
    """A part of the log in which records were rejected: `bad` of those in [start, end)."""

    topic: str
    partition: int
    start: int
    end: int
    bad: int
    topic_id: str = ""  # empty where it is not known


class Segment(NamedTuple):
    """Rows [start, end) of a batch are of one partition."""

    place: tuple[str, int]
    start: int
    end: int


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
    bytes: int = 0  # of the keys and values of all of them, as they were fetched
    segments: Sequence[Segment] = ()  # which rows are of which partition, as far as that is known
    traced: Sequence[TracedRecord] = ()  # where they were wanted

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
    lag_s: float | None = None  # how old the oldest unread record is; None if that is not known

    def __repr__(self) -> str:
        committed = "none" if self.committed is None else f"{self.committed:,}"
        age = "" if self.lag_s is None else f", {self.lag_s:,.1f} s"
        return f"<lag in {self.topic}/{self.partition}: {self.lag:,}{age} (committed {committed}, end {self.end:,})>"


@dataclass(frozen=True)
class HealthStatus:
    """Whether the system behind a source answers, with what a person wants to know about it."""

    healthy: bool
    message: str
    details: Mapping[str, str] = field(default_factory=dict)
    # How far the group is behind, where there is one and it is known.
    partitions: tuple[PartitionLag, ...] = ()
    last_success: float | None = None  # so many seconds ago it last answered; None if it never did


@dataclass(frozen=True)
class ConnectorMetrics:
    """Counters since open(), as far as this process knows them."""

    records_total: int = 0
    bytes_total: int = 0
    errors_total: int = 0
    records_per_sec: float = 0.0
    lag: int | None = None
    custom: Mapping[str, float] = field(default_factory=dict)


class GroupShare(ABC):
    """A source whose group divides it between several processes. On the driver it is a member of the group."""

    on_rebalance: Callable[[str], None] = staticmethod(lambda what: None)
    """Hears of partitions that came or went, on the driver. It must neither wait nor raise."""

    @abstractmethod
    def follow(self, folder: Path) -> None:
        """In a process that plans: plan only what the driver is assigned, as the files in this folder say."""

    @abstractmethod
    def look(self) -> bool:
        """In that process, between two batches: what is planned from now on is of the newest assignment; whether it is another.

        Whoever waits for batches that were planned before hears of it: they are done.
        """

    @abstractmethod
    def join(
        self,
        folder: Path,
        position: Callable[[], Offsets | None],
        reads: Callable[[], bool],
        added: Callable[[PartitionOffsets], PartitionOffsets] = lambda at: at,
    ) -> None:
        """On the driver: be a member of the group, if it is not one already, as soon as the planner has looked. Returns at once.

        `position` is what the checkpoint has, `reads` whether a query plans batches now. `added` says where partitions
        go on that the group has up to these offsets: tables may have more of them already.
        """

    @abstractmethod
    def confirm(self, start: Offsets, end: Offsets) -> None:
        """Before any table takes a batch. Blocks until the brokers have answered.

        Raises a `PartitionsLostError` if a partition of it has gone to others since it was planned.
        """

    @abstractmethod
    def leave(self, *, wait: bool = True) -> None:
        """Out of the group, once the batch in flight is done and committed. Nothing, where it is no member."""

    @abstractmethod
    def narrowed(self, target: Offsets) -> Offsets:
        """What of a target this process reads now."""

    @abstractmethod
    def topic_ids(self, position: Offsets) -> Mapping[str, str]:
        """What tells each topic of a position from one of its name before or after it."""

    @abstractmethod
    def going_on(
        self,
        position: Offsets,
        end: Offsets,
        planned: Iterable[tuple[str, int, int, int]],
        taken: Iterable[tuple[str, int, int, int]],
    ) -> Offsets:
        """Where a view goes on that stood at `position` and was to get what is planned, of which others have added a part.

        `end` is where the batch ends that it was planned for. On the disk when this returns: the view does not get that part from here.
        """

    @abstractmethod
    def lines(self) -> list[str]:
        """How this process stands in the group, for DESCRIBE EXTENDED."""


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

    @property
    def mask(self) -> Mask:
        """What must not be shown of its records: its option `mask`, where it has one."""
        return Mask(tuple(self.options.get("mask") or ()))

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

    @property
    def share(self) -> GroupShare | None:
        """Where the group divides the source between several processes: what this one has to do with that."""
        return None

    def group_trouble(self) -> str:
        """What is wrong with the group of a source that reads alone, as of its last commits; empty if nothing is."""
        return ""

    def others_in_group(self) -> str:
        """Who else is a member of the group of a source that reads alone, for people; empty if nobody is. Blocks while it asks."""
        return ""

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

    def silence(self) -> Mapping[tuple[str, int], float | None]:
        """By topic and partition: for how many seconds it has been read to the end, as of the last look of `latest_offsets`.

        None where it has unread records. Empty where the system does not know.
        """
        return {}

    def stand_still(self) -> None:  # noqa: B027
        """Nobody looks for records for a while: the time until the next look is no silence of any partition."""

    def align(self, wanted: Alignment | None) -> None:  # noqa: B027
        """From now on `latest_offsets` keeps partitions together in event time, where there are partitions."""

    def held_back(self) -> HeldBack:
        """Of which partitions the last look of `latest_offsets` left records out, so that they are not too far ahead."""
        return HeldBack()

    def record_bytes(self, start: Offsets, end: Offsets) -> float | None:
        """The mean size of what lies between, by a look at a few records; None where nobody can say. Blocks for a second at most."""
        return None

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

    @classmethod
    def with_places(cls, config: SourceConfig) -> tuple[SourceConfig, RowPlaces] | None:
        """The source with columns that tell where rows are from, behind its own; None where there is no such thing."""
        return None

    def raw_records(
        self, topic: str, places: Mapping[int, Collection[int]]
    ) -> Iterator[tuple[int, int, RawRecord]]:
        """Records of a topic by partition and offset, as they are in the log. Those that are gone are left out.

        Blocks until the system has answered, as `read_batch` does.
        """
        raise ConnectorStateError(
            f"source '{self.config.name}' has no records that could be read by their place"
        )

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

    def unread(self, position: Offsets) -> int:
        """How many records this process could read behind a position now. Blocks while it asks; UnreachableError."""
        return self.count(position, self.end_offsets())

    @property
    def stall_s(self) -> float:
        """After so many seconds without a batch, while there is something to read, a query over it is stalled."""
        return 60.0

    @abstractmethod
    def health_check(self) -> HealthStatus:
        """Ask the system whether it is there. Blocks while it asks. Never raises."""

    @abstractmethod
    def metrics(self) -> ConnectorMetrics:
        """The counters of this instance."""
