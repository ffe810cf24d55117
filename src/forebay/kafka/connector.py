"""Kafka as a source connector."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from forebay import patience
from forebay.backoff import with_backoff
from forebay.connectors.alignment import Alignment, HeldBack
from forebay.connectors.contract import (
    ConnectorInfo,
    ConnectorMetrics,
    ConnectorState,
    Discovered,
    GroupShare,
    HealthStatus,
    Offsets,
    PartitionLag,
    RawRecord,
    RejectedRecord,
    RowPlaces,
    SourceBatch,
    SourceCheckpoint,
    SourceConfig,
    SourceConnector,
    Split,
)
from forebay.connectors.event_time import MAX_FUTURE, NOW, latest_of
from forebay.errors import (
    CommitError,
    ConnectorStateError,
    ForebayError,
    NewFieldsError,
    OffsetOutOfRangeError,
    SchemaChangedError,
    UnknownTopicError,
    UnreachableError,
)
from forebay.formats import RefusalKind
from forebay.formats.avro_schema import FILE_OPTION, OPTION, written_schema
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.beginning import Beginning
from forebay.kafka.columns import CHANGE_LOG, RAW_COLUMNS, layout
from forebay.kafka.group import members, moved_by_others, refused
from forebay.kafka.lag import OldestUnread, behind_group, connected, lag_of
from forebay.kafka.membership import Membership
from forebay.kafka.missing_acls import principal
from forebay.kafka.offsets import (
    KafkaPosition,
    KafkaSplit,
    Range,
    lost_between,
    plan_splits,
    ranges_between,
)
from forebay.kafka.options import FORMATS, KAFKA
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.planner import Planner, check_identity, ids_of
from forebay.kafka.settings import (
    address,
    check_settings,
    connection_settings,
    consumer_settings,
    patience_s,
)

if TYPE_CHECKING:
    pass

# What decodes records, reads them or looks into schemas is imported where it is used: the processes that plan do none
# of it, and are started anew for every query.

log = logging.getLogger("forebay.kafka")

# A broker that has just started does not know its groups yet: the first tries fail, and nobody has to hear of that.
WORTH_A_WORD_S = 0.4

COORDINATOR_S = 10.0  # how long a commit waits for a group's coordinator
STARTED_S = 3.0  # how long somebody who asks for the lag waits for one
ASSIGNMENT_S = 60.0  # how long who waits for the records of a shared group waits for the first assignment
LOOK_S = 2.0  # how often a commit looks whether somebody else commits to the group
METADATA_AGE_S = 1.0  # how long a list of topics and partitions is good: new ones show within it

# Two sources that agree in these begin at the same offsets. Topics are known by their ids besides.
BEGINNING = (
    "topic", "topics", "topic.pattern", "group.id", "auto.offset.reset", "startup.mode", "startup.timestamp.ms",
    "startup.specific.offsets",
)  # fmt: skip


class KafkaSource(SourceConnector):
    """One or several topics, read as one source."""

    table = KAFKA

    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._cluster = Cluster(self.options)
        self._topics: dict[str, Topic] = {}
        self._topics_at = 0.0
        self._membership: Membership | None = None  # where its group is shared
        self._follow_options()
        self._committed: SourceCheckpoint | None = None
        self._floor: dict[TopicPartition, int] | None = (
            None  # the group's offsets, as this instance knows them,
        )
        self._floor_ids: Mapping[str, str] = {}  # of these topics
        self._looked_at = 0.0  # whether others commit, too
        self._group_trouble = ""
        self._commits = 0
        self._commit_failures = 0
        self._records = 0
        self._bytes = 0
        self._errors = 0
        self._opened_at = time.monotonic()
        self._answered_at: float | None = (
            None  # when the brokers last answered somebody who asked for the lag
        )

    def _follow_options(self) -> None:
        self._oldest = OldestUnread(self.options)
        self._beginning = Beginning(self.options, self._cluster)
        self._planner = Planner(self.options, self._cluster, self._current_topics, _say_unreachable)
        if self.options["group.mode"] == "shared" and self._membership is None:
            self._membership = Membership(self.options, self._cluster, self._beginning)
        self._planner.membership = self._membership

    def redefine(self, config: SourceConfig) -> None:
        super().redefine(config)
        self._follow_options()

    @classmethod
    def info(cls) -> ConnectorInfo:
        return ConnectorInfo("kafka", "Apache Kafka source connector", KAFKA.options, FORMATS)

    @classmethod
    def with_defaults(cls, name: str, given: Mapping[str, str]) -> dict[str, str]:
        return {"group.id": f"forebay-{name}"} | dict(given)

    @classmethod
    def as_table(cls, config: SourceConfig) -> SourceConfig:
        """From its beginning, wherever a group stands, and with the columns that it has: a table gains none."""
        options = {"startup.mode": "earliest", **config.options}
        if options.get("schema.evolution") == "evolve":
            options["schema.evolution"] = "ignore"
        return replace(config, options=options)

    @property
    def group(self) -> str | None:
        found: str = self.options["group.id"]
        return found

    def topics(self) -> tuple[str, ...] | None:
        return (self.options["topic"],) if self.options["topic"] else tuple(self.options["topics"] or ())

    def summary(self) -> list[tuple[str, str]]:
        known = {"Topic": "topic", "Topics": "topics", "Topic pattern": "topic.pattern", "Group ID": "group.id",
                 "Format": "format"}  # fmt: skip
        found = {label: self.options[key] for label, key in known.items() if self.options[key] is not None}
        return [
            (label, ", ".join(value) if isinstance(value, tuple) else str(value))
            for label, value in found.items()
        ]

    def for_workers(self) -> dict[str, str]:
        options = super().for_workers()
        for prefix, form in (("", "format"), ("key.", "key.format")):
            options = _shipped(options, prefix, self.options[form], bool(self.options["schema.registry.url"]))
        return options

    @property
    def change_log(self) -> bool:
        return bool(self.options["format"] == CHANGE_LOG)

    def full_schema(self) -> pa.Schema:
        return layout(self.config.schema, self.options).schema

    def open(self) -> None:
        """Check settings, decoder and topics; an unreachable broker is waited for, within a limit."""
        if self._state is ConnectorState.STOPPED:
            raise ConnectorStateError(f"source '{self.config.name}' is closed")
        self._state = ConnectorState.FAILED  # until all of it has succeeded
        check_settings(self.options)
        from forebay.kafka.rows import RowDecoder

        RowDecoder(self.config.schema, self.options).check()
        with_backoff(self._look, timeout_s=patience_s(self.options), notify=_say_unreachable)
        self._state = ConnectorState.RUNNING

    def _look(self) -> None:
        names = self._cluster.matching()
        if not names:
            raise UnknownTopicError(
                f"no topic on {address(self.options)} matches '{self.options['topic.pattern']}'",
                remedy="topics there: "
                + (", ".join(sorted(self._cluster.topics())[:10]) or "none at all")
                + f"; those that {principal(connection_settings(self.options))} may not describe are not listed",
            )
        self._topics = self._cluster.describe(names)
        self._topics_at = time.monotonic()

    def close(self) -> None:
        if self._membership is not None:
            self._membership.leave()
        self._cluster.close()
        self._state = ConnectorState.STOPPED

    def discover_schema(self) -> Discovered | None:
        if self.options["format"] == "raw":
            return Discovered(RAW_COLUMNS, "format raw", fixed=True)
        from forebay.kafka.discovery import discover

        return discover(self.options, self._newest_values)

    def notes(self) -> tuple[str, ...]:
        if self.options["format"] not in ("json", CHANGE_LOG):
            return ()
        from forebay.kafka.discovery import case_notes

        try:
            return case_notes(self.config.schema, self.options, self._newest_values)
        except ForebayError as error:
            log.info("source '%s': no sample of its records: %s", self.config.name, error.message)
            return ()

    def pinned(self) -> dict[str, str]:
        from forebay.kafka.source_evolution import pinned

        return pinned(self.options)

    def evolved(self, schema_id: int) -> SourceConfig:
        from forebay.kafka.source_evolution import evolved

        return evolved(self.config, self.options, schema_id)

    def _newest_values(self, count: int) -> list[bytes | None]:
        """About so many of the newest values, the partitions alike, but of no more partitions than that."""
        from forebay.kafka.discovery import raw_config

        with_backoff(self._look, timeout_s=patience_s(self.options), notify=_say_unreachable)
        partitions = partitions_of(self._topics)
        starts, ends = self._cluster.earliest(partitions), self._cluster.latest(partitions)
        filled = [key for key in sorted(partitions) if ends[key] > starts[key]][:count]
        share = max(1, count // max(1, len(filled)))
        ranges = [Range(*key, max(starts[key], ends[key] - share), ends[key]) for key in filled]
        source = KafkaSource(raw_config(self.config))
        found = [batch.records for batch in source.read_batch(KafkaSplit(tuple(ranges)))]
        return [value for records in found for value in records.column("value").to_pylist()]

    # -- where to start, how far to go ---------------------------------------------------------------

    def initial_offsets(self) -> Offsets:
        timeout_s = patience_s(self.options)
        return with_backoff(self._initial, timeout_s=timeout_s, notify=_say_unreachable).to_json()

    def _initial(self) -> KafkaPosition:
        topics = self._current_topics()
        if self._membership is not None:
            return KafkaPosition(
                {}, ids_of(topics)
            )  # each partition begins where the group is when it is assigned
        return KafkaPosition(self._beginning.of(partitions_of(topics)), ids_of(topics))

    def identity(self) -> str:
        more = () if self._membership is None else ("group.mode",)
        return json.dumps({key: str(self.options[key]) for key in (*BEGINNING, *more)})

    def offsets_at(self, timestamp_ms: int | None) -> Offsets:
        topics = self._current_topics()
        partitions = partitions_of(topics)
        found = (
            self._cluster.latest(partitions)
            if timestamp_ms is None
            else self._cluster.at_timestamp(partitions, timestamp_ms)
        )
        return KafkaPosition(found, ids_of(topics)).to_json()

    def still_there(self, offsets: Offsets) -> tuple[Offsets, tuple[str, ...]]:
        self._topics_at = 0.0
        position = KafkaPosition.from_json(offsets)
        check_identity(position, self._current_topics())
        lows = self._cluster.earliest(list(position.next))
        gone = [Range(*key, at, lows[key]) for key, at in sorted(position.next.items()) if at < lows[key]]
        following = {key: max(at, lows[key]) for key, at in position.next.items()}
        return KafkaPosition(following, position.ids).to_json(), tuple(str(each) for each in gone)

    def latest_offsets(
        self, start: Offsets, max_records: int | None, until: Offsets | None = None
    ) -> Offsets:
        bound = KafkaPosition.from_json(until) if until else None
        position = KafkaPosition.from_json(start)
        found = self._planner.next(position, max_records, bound)
        if found is position:
            return start
        # A batch that is repeated must refuse the same records as far in the future: the clock is in the offset.
        clock = {NOW: int(time.time() * 1000)} if self.config.event_time and self.options[MAX_FUTURE] else {}
        return found.to_json() | clock

    def known_end(self) -> Offsets | None:
        return self._planner.end.to_json() if self._planner.end else None

    def silence(self) -> Mapping[tuple[str, int], float | None]:
        return self._planner.silence.silence()

    def stand_still(self) -> None:
        self._planner.silence.stand_still()

    def align(self, wanted: Alignment | None) -> None:
        self._planner.aligner.wanted = wanted

    def held_back(self) -> HeldBack:
        return self._planner.aligner.held

    def _current_topics(self) -> dict[str, Topic]:
        if not self._topics or time.monotonic() - self._topics_at > METADATA_AGE_S:
            self._topics = self._cluster.describe(self._cluster.matching())
            self._topics_at = time.monotonic()
        return self._topics

    def end_offsets(self) -> Offsets:
        self._topics_at = 0.0
        topics = self._current_topics()
        found = KafkaPosition(self._cluster.latest(partitions_of(topics)), ids_of(topics)).to_json()
        if self._membership is None:
            return found
        self._membership.await_assignment(ASSIGNMENT_S)
        return self._membership.narrowed(found)

    def reached(self, position: Offsets, target: Offsets) -> bool:
        here, there = KafkaPosition.from_json(position), KafkaPosition.from_json(target)
        # Offsets of a topic that was made anew since say nothing about the new one.
        same = all(here.ids.get(topic) in (None, "", known) for topic, known in there.ids.items())
        return same and all(here.next.get(key, 0) >= offset for key, offset in there.next.items())

    def count(self, start: Offsets, end: Offsets) -> int:
        return sum(
            len(r) for r in self._between(KafkaPosition.from_json(start), KafkaPosition.from_json(end))
        )

    def _between(self, start: KafkaPosition, end: KafkaPosition) -> list[Range]:
        return ranges_between(start, end, self._membership.elsewhere() if self._membership else None)

    def record_bytes(self, start: Offsets, end: Offsets) -> float | None:
        from forebay.kafka.sampling import record_bytes

        between = self._between(KafkaPosition.from_json(start), KafkaPosition.from_json(end))
        return record_bytes(between, self.options)

    def lost(self, start: Offsets, end: Offsets) -> tuple[tuple[str, int, int, int], ...]:
        gone = lost_between(KafkaPosition.from_json(start), KafkaPosition.from_json(end))
        return tuple((item.topic, item.partition, item.start, item.end) for item in gone)

    # -- reading -------------------------------------------------------------------------------------

    def plan_batches(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        splits = self.splits(start, end, parallelism)
        if splits:
            # Whoever has just planned it has looked less than a second ago, and does not ask again.
            timeout_s = self.options["connect.timeout.ms"] / 1000
            topics = with_backoff(self._current_topics, timeout_s=timeout_s, notify=_say_unreachable)
            check_identity(KafkaPosition.from_json(end), topics)
        return splits

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        here, there = KafkaPosition.from_json(start), KafkaPosition.from_json(end)
        behind = [key for key, offset in here.next.items() if there.next.get(key, offset) < offset]
        if behind and self._membership is None:
            # A first batch that is repeated, but would start past the end it was planned with.
            missing = ", ".join(f"{Range(*key, there.next[key], here.next[key])}" for key in behind)
            raise OffsetOutOfRangeError(f"this batch starts after its own end; {missing} would be left out")
        latest = latest_of(self.config, self.options, end, int(time.time() * 1000))
        return [split.of(there.ids, latest) for split in plan_splits(self._between(here, there), parallelism)]

    def read_batch(self, split: Split) -> Iterator[SourceBatch]:
        assert isinstance(split, KafkaSplit)
        from forebay.kafka.reading import read
        from forebay.kafka.rows import RowDecoder

        rows = RowDecoder(self.config.schema, self.options, split.latest)
        lost: list[RejectedRecord] = []
        tolerate = (
            None if self.options["fail.on.data.loss"] else (lambda gone: lost.append(_as_rejected(gone)))
        )
        ranges = [item for item in split.ranges if len(item)]
        try:
            for batch in read(ranges, rows, self.options, tolerate, self.wanted):
                self._records += batch.records.num_rows
                self._bytes += batch.bytes
                self._errors += len(batch.rejected) + sum(batch.counted.values())
                yield batch
        except (NewFieldsError, SchemaChangedError) as error:
            raise type(error)(f"source '{self.config.name}': {error.message}", remedy=error.remedy) from None
        if lost:
            yield SourceBatch(rows.empty(), lost)

    @classmethod
    def with_places(cls, config: SourceConfig) -> tuple[SourceConfig, RowPlaces] | None:
        if config.options.get("include.metadata", "").strip().lower() == "true":
            return config, RowPlaces("_partition", "_offset")
        hidden = {f"include.{what}.as": f"_forebay_{what}" for what in ("partition", "offset")}
        options = hidden | dict(config.options)
        return replace(config, options=options), RowPlaces(*(options[key] for key in hidden))

    def raw_records(
        self, topic: str, places: Mapping[int, Collection[int]]
    ) -> Iterator[tuple[int, int, RawRecord]]:
        from forebay.kafka.reader import read_ranges
        from forebay.kafka.rows import raw_record

        settings = consumer_settings(self.options)
        for partition, offsets in places.items():
            # To read what lies between them, too, costs less than to look for each.
            span = Range(topic, partition, min(offsets), max(offsets) + 1)
            chunk = self.options["max.poll.records"]
            for messages in read_ranges([span], self.options, settings, chunk=chunk):
                yield from (
                    (partition, message.offset(), raw_record(message))
                    for message in messages
                    if message.offset() in offsets
                )

    # -- the group -----------------------------------------------------------------------------------

    def commit_offsets(self, checkpoint: SourceCheckpoint) -> None:
        try:
            wanted = KafkaPosition.from_json(checkpoint.offsets)
            if self._membership is not None:
                self._committed_now(checkpoint, KafkaPosition(self._membership.commit(wanted), wanted.ids))
                return
            if self._floor is None or self._floor_ids != wanted.ids:
                self._floor, self._floor_ids = self._committed_before(list(wanted.next)), wanted.ids
            elif time.monotonic() - self._looked_at > LOOK_S:
                self._look_for_others(list(wanted.next))
            # A view that was created later reads what the group has behind it. The group does not go back for it.
            reached = {key: max(at, self._floor.get(key, 0)) for key, at in wanted.next.items()}
            self._cluster.commit(reached)
            self._floor |= reached
        except CommitError as error:
            self._commit_failures += 1
            if error.details.get("not_a_member"):
                raise refused(self._cluster, self.options["group.id"], error) from None
            raise
        self._committed_now(checkpoint, KafkaPosition(reached, wanted.ids))

    def _look_for_others(self, partitions: Sequence[TopicPartition]) -> None:
        """Whether the group stands where this source has left it: nothing keeps another one from committing, too."""
        self._looked_at = time.monotonic()
        try:
            trouble = moved_by_others(
                self.options["group.id"], self._floor or {}, self._cluster.committed(partitions)
            )
        except ForebayError:
            return  # the commit says what is wrong
        if trouble and trouble != self._group_trouble:
            log.warning("source '%s': %s", self.config.name, trouble)
        self._group_trouble = trouble

    def group_trouble(self) -> str:
        return self._group_trouble

    def _committed_now(self, checkpoint: SourceCheckpoint, reached: KafkaPosition) -> None:
        self._committed = replace(checkpoint, offsets=reached.to_json())
        self._commits += 1

    def _committed_before(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets as they are; a coordinator that moves is waited for, as a commit does."""
        try:
            return with_backoff(
                lambda: self._cluster.committed(partitions), timeout_s=COORDINATOR_S, notify=_say_unreachable
            )
        except UnreachableError as error:
            raise CommitError(error.message) from None

    @property
    def share(self) -> GroupShare | None:
        return self._membership

    def others_in_group(self) -> str:
        return "" if self._membership is not None else members(self._cluster, self.options["group.id"])

    def current_offsets(self) -> SourceCheckpoint | None:
        return self._committed

    def lag(self) -> list[PartitionLag]:
        # A broker that has just started answers some requests before it answers all.
        return self._oldest.aged(with_backoff(self._lag, timeout_s=STARTED_S), fresh=True)

    def _lag(self) -> list[PartitionLag]:
        found = lag_of(self._cluster, self._current_topics())
        self._answered_at = time.monotonic()
        return found

    def unread(self, position: Offsets) -> int:
        if self._membership is None:
            return super().unread(position)
        ours = KafkaPosition.from_json(self._membership.narrowed(self.end_offsets()))
        return behind_group(self._cluster, ours.next)

    @property
    def stall_s(self) -> float:
        return float(self.options["stall.timeout.ms"]) / 1000

    def health_check(self) -> HealthStatus:
        details = {
            "group.id": self.options["group.id"],
            "topics": ", ".join(sorted(self._topics)) or str(self.options["topic"] or self.options["topics"]),
            "state": str(self._state),
        }
        try:
            lags, brokers = self._lag(), self._cluster.brokers()
        except ForebayError as error:
            return HealthStatus(False, error.message, details, last_success=self._answered_ago())
        return connected(details, brokers, self._oldest.aged(lags), self._answered_ago())

    def _answered_ago(self) -> float | None:
        return None if self._answered_at is None else round(time.monotonic() - self._answered_at, 3)

    def metrics(self) -> ConnectorMetrics:
        seconds = max(time.monotonic() - self._opened_at, 1e-9)
        return ConnectorMetrics(
            records_total=self._records,
            bytes_total=self._bytes,
            errors_total=self._errors,
            records_per_sec=self._records / seconds,
            custom={
                "commits_total": float(self._commits),
                "commit_failures_total": float(self._commit_failures),
                **({} if self._membership is None else self._membership.metrics()),
            },
        )


def _shipped(options: dict[str, str], prefix: str, form: str | None, registered: bool) -> dict[str, str]:
    """The options with the schema files of a format, the key's or the value's, read and put in their place."""
    own = {key.removeprefix(prefix): text for key, text in options.items() if key.startswith(prefix)}
    if form == "protobuf" and not registered:
        from forebay.formats.protobuf_schema import settled

        found = settled(own)
    elif form == "avro" and FILE_OPTION in own:
        found = {name: text for name, text in own.items() if name != FILE_OPTION}
        found[OPTION] = written_schema(own) or ""
    else:
        return options
    rest = {key: text for key, text in options.items() if not key.startswith(prefix)}
    return rest | {prefix + name: text for name, text in found.items()}


def _as_rejected(lost: Range) -> RejectedRecord:
    message = f"{len(lost)} records are gone: {lost}"
    return RejectedRecord(lost.topic, lost.partition, lost.start, str(RefusalKind.OTHER), message, gone=True)


def _say_unreachable(error: ForebayError, wait_s: float) -> None:
    if not patience.somebody():
        level = logging.INFO if wait_s < WORTH_A_WORD_S else logging.WARNING
        log.log(level, "%s; trying again in %.1f s", error.message, wait_s)
