"""What the dashboard shows, as frozen dataclasses: made by `Backend`, drawn by the pages, and sent by the HTTP API.

Times are milliseconds since 1970, ages and durations say their unit. What nobody knows is None, and never 0. Whatever came
out of a topic is a `str` that was made safe to print (`text`), or hexadecimal digits: no page has to decode bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
NodeKind = Literal["topic", "source", "view", "reader"]


# -- the overview ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A box of the pipeline's graph. `id` is unique in it: the kind, a colon and the name."""

    id: str
    kind: NodeKind
    name: str
    state: str = ""  # of a source or a view: running, paused, failed, …
    rate: float | None = None  # records a second
    lag: int | None = None
    lag_s: float | None = None
    bottleneck: bool = False  # what everybody behind it waits for
    why: str = ""  # why it is the bottleneck, or what its state means
    detail: str = ""  # a line to show below the name
    link: str = ""  # the page about it


@dataclass(frozen=True)
class Edge:
    """Records go from one node to another."""

    start: str
    end: str


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, in words, and what to do about it. `link` is the page where that is done."""

    severity: Severity
    title: str
    message: str
    remedy: str
    link: str
    source: str | None = None
    view: str | None = None


@dataclass(frozen=True)
class Overview:
    """All of a home in one look."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    problems: Sequence[Problem]
    at_ms: int
    home: str
    records_per_s: float | None = None
    lag: int | None = None
    lag_s: float | None = None
    letters: int = 0  # records that became dead letters, in all of its life
    live: bool = False  # whether a session of this process runs the views


# -- sources -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceRow:
    """A source in a list."""

    name: str
    connector: str
    format: str | None
    topic: str | None
    group: str | None
    state: str
    message: str  # why it is in that state
    hint: str  # what to do; empty where all is well
    paused: bool
    views: Sequence[str]
    on_error: str
    records: int
    bytes: int
    errors: int
    letters: int
    rate: float | None  # records a second
    byte_rate: float | None
    error_rate: float | None
    lag: int | None
    lag_s: float | None
    catch_up: str  # in words
    last_batch_ms: int | None


@dataclass(frozen=True)
class PartitionRow:
    """How far a source has come in a partition."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_s: float | None
    watermark_ms: int | None = None
    idle: bool | None = None
    unread: bool | None = None
    holds_watermark: bool = False  # the source's watermark waits for this one


@dataclass(frozen=True)
class ShownColumn:
    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class ReadPlan:
    """What one read of a source decided for its next batch, and why: backpressure, catching up, a pause."""

    read: str
    views: Sequence[str]
    cause: str
    why: str
    records: int | None  # of the next batch
    behind: int | None
    catch_up: str
    in_flight_records: int
    in_flight_bytes: int
    at_ms: int


@dataclass(frozen=True)
class BatchRow:
    view: str
    batch: int
    at_ms: int
    records: int
    bytes: int
    rejected: int
    duration_ms: int


@dataclass(frozen=True)
class SourcePage:
    """All that is known of a source."""

    row: SourceRow
    columns: Sequence[ShownColumn]
    partitions: Sequence[PartitionRow]
    plans: Sequence[ReadPlan]
    batches: Sequence[BatchRow]  # the newest first
    events: Sequence[EventRow]
    errors_by_kind: Mapping[str, int]
    example: str | None  # what the newest bad record was refused for
    batch_ms_p50: int | None
    batch_ms_p99: int | None
    batch_ms_mean: float | None
    watermark_ms: int | None
    watermark_held_by: str | None  # topic-partition
    in_flight_records: int
    in_flight_bytes: int
    commits: int | None
    commit_failures: int | None
    commit_error: str | None
    rebalances: int | None
    healthy: bool | None
    health: str
    late: int
    lost: Sequence[str]
    rate_limited: int
    policies: Sequence[str]  # that ON ERROR can be changed to
    definition: str  # CREATE SOURCE, secrets masked
    dead_letter_target: str = ""


@dataclass(frozen=True)
class HistoryPoint:
    at_ms: int
    records_per_s: float | None
    bytes_per_s: float | None
    lag: int | None
    lag_s: float | None
    batch_ms: int | None
    errors: Mapping[str, int] = field(default_factory=dict)  # new ones since the point before, by kind
    batch_ms_p50: int | None = None  # of the batches that were seen in the minute before
    batch_ms_p99: int | None = None
    partitions: Mapping[str, int] = field(
        default_factory=dict
    )  # lag by topic-partition, of those furthest behind


# -- views -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewRow:
    name: str
    state: str
    message: str
    hint: str
    sources: Sequence[str]
    emit: str
    keys: Sequence[str]
    created_ms: int
    batch: int
    records: int
    rejected: int
    late: int
    rate: float | None
    lag: int | None
    batch_ms: int | None  # of its newest batch
    catch_up: str
    freshness_s: float | None  # since its table was last written
    columns: int | None = None


@dataclass(frozen=True)
class ViewPage:
    row: ViewRow
    columns: Sequence[ShownColumn]
    rows: int | None
    size_bytes: int | None
    files: int | None
    version: int | None
    freshness_s: float | None
    definition: str
    path: str
    batches: Sequence[BatchRow]
    events: Sequence[EventRow]


@dataclass(frozen=True)
class ShownTable:
    """Rows for a person: values as JSON has them, bytes as text, long ones cut (`cut` counts the rows left out)."""

    columns: Sequence[ShownColumn]
    rows: Sequence[Sequence[Any]]
    cut: int = 0  # rows that are not here; -1: more, and nobody knows how many


@dataclass(frozen=True)
class Changes:
    """Some changes of a view. `version` is what `tail(after=…)` goes on from."""

    version: int | None
    table: ShownTable


# -- statements --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An error as a person reads it. Line and column count from 1, where the statement has a place that is wrong."""

    code: str
    message: str
    remedy: str
    line: int | None = None
    column: int | None = None
    caret: str = ""  # the line and a caret below it


@dataclass(frozen=True)
class StatementAnswer:
    """What one statement gave: a table, words, or both."""

    statement: str
    table: ShownTable | None
    words: str
    notes: Sequence[str]
    took_ms: int


@dataclass(frozen=True)
class Execution:
    """What a script gave; `error` is of the statement after the last answer."""

    answers: Sequence[StatementAnswer]
    error: Failure | None = None


@dataclass(frozen=True)
class Completion:
    text: str
    kind: str  # keyword, source, view, column, function, table
    start: int  # how many characters before the cursor it replaces, counted back: 0 or less


# -- topics ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopicPartitionRow:
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class TopicRow:
    name: str
    brokers: str
    partitions: Sequence[TopicPartitionRow]
    records: int | None  # offsets between start and end
    sources: Sequence[str]  # that read it
    letters_of: Sequence[str] = ()  # sources whose dead letters it has
    error: str = ""


@dataclass(frozen=True)
class Header:
    key: str
    text: str | None
    hex: str | None


@dataclass(frozen=True)
class TopicRecord:
    """A record of a topic. With hidden payloads `key`, `value` and the header values are None and `hidden` is true."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    key_hex: str | None
    value: str | None
    value_hex: str | None
    key_bytes: int | None
    value_bytes: int | None
    headers: Sequence[Header]
    row: Mapping[str, Any] | None = None  # as the source's decoder reads it
    fault: str = ""  # why the decoder refuses it
    hidden: bool = False
    cut: bool = False  # the value is longer than what is shown


@dataclass(frozen=True)
class Browse:
    records: Sequence[TopicRecord]
    next: Mapping[int, int]  # by partition, where the next page begins
    source: str | None = None


@dataclass(frozen=True)
class Produced:
    topic: str
    partition: int
    offset: int


# -- events and audit --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventRow:
    at_ms: int
    name: str
    kind: str
    state: str | None
    message: str
    hint: str


@dataclass(frozen=True)
class AuditRow:
    id: int
    at_ms: int
    actor: str
    action: str  # pause, resume, replay, discard, produce, alter, sql, login, …
    target: str
    detail: str
    outcome: str  # done, refused or failed
    message: str


# -- pools and agents --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolPartition:
    topic: str
    partition: int
    frontier: int  # all before it are done
    beyond: int  # done past the frontier
    gaps: int  # records that hold the frontier back
    in_flight: int
    lag: int | None = None


@dataclass(frozen=True)
class HotKey:
    key: str
    waiting: int


@dataclass(frozen=True)
class PoolRow:
    name: str
    state: str
    message: str
    stats: Mapping[str, int | float | None]
    partitions: Sequence[PoolPartition] = ()
    hot_keys: Sequence[HotKey] = ()


@dataclass(frozen=True)
class ArtifactRow:
    id: str
    type: str
    produced_by: str
    correlation_id: str | None
    version: int
    created_ms: int
    tags: Sequence[str]
    payload: str | None  # JSON; None where payloads are hidden


@dataclass(frozen=True)
class AgentRow:
    name: str
    consumed: int
    produced: int
    retries: int | None
    letters: int | None
    lag: int | None = None  # of the group that all agents of a board share


@dataclass(frozen=True)
class BoardPage:
    prefix: str
    brokers: str
    types: Mapping[str, int]  # artifacts by type
    artifacts: Sequence[ArtifactRow]  # the newest first; of the type, correlation or id that was asked for
    agents: Sequence[AgentRow]
    timeline: Sequence[
        Mapping[str, Any]
    ] = ()  # of a correlation or an artifact: at_ms, what, who, artifact, detail
    error: str = ""
