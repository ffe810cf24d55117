"""Kafka as a source connector."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from forebay import patience
from forebay.backoff import Backoff, with_backoff
from forebay.connectors.contract import (
    ConnectorInfo,
    ConnectorMetrics,
    ConnectorState,
    Discovered,
    HealthStatus,
    Offsets,
    PartitionLag,
    RejectedRecord,
    SourceBatch,
    SourceCheckpoint,
    SourceConfig,
    SourceConnector,
    Split,
    Wanted,
)
from forebay.errors import (
    CommitError,
    ConnectorStateError,
    ForebayError,
    NewFieldsError,
    NoOffsetError,
    OffsetOutOfRangeError,
    OptionValueError,
    SchemaChangedError,
    TopicRecreatedError,
    UnknownTopicError,
    UnreachableError,
)
from forebay.formats import RefusalKind
from forebay.formats.avro_schema import FILE_OPTION, OPTION, written_schema
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.columns import CHANGE_LOG, RAW_COLUMNS, layout
from forebay.kafka.consumers import CACHE
from forebay.kafka.lag import lag_of
from forebay.kafka.offsets import (
    KafkaPosition,
    KafkaSplit,
    Range,
    allocate,
    lost_between,
    plan_splits,
    ranges_between,
)
from forebay.kafka.options import FORMATS, KAFKA
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.settings import address, check_settings, consumer_settings, patience_s
from forebay.options import Options

if TYPE_CHECKING:
    from forebay.kafka.rows import RowDecoder

# What decodes records, reads them or looks into schemas is imported where it is used: the processes that plan do none
# of it, and are started anew for every query.

log = logging.getLogger("forebay.kafka")

# A broker that has just started does not know its groups yet: the first tries fail, and nobody has to hear of that.
WORTH_A_WORD_S = 0.4

COORDINATOR_S = 10.0  # how long a commit waits for a group's coordinator
METADATA_AGE_S = 1.0  # how long a list of topics and partitions is good: new ones show within it
# How long to wait before looking again: the longer there was nothing, the longer, as long as that adds little to it.
STEP_S, LONGEST_STEP_S, STEP_SHARE = 0.02, 0.4, 0.02

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
        self._end: KafkaPosition | None = None
        self._away = Backoff()
        self._quiet_since: float | None = None
        self._look_at = 0.0  # while it is quiet: when to look again, also by the next call
        self._committed: SourceCheckpoint | None = None
        self._floor: dict[TopicPartition, int] | None = (
            None  # the group's offsets, as this instance knows them,
        )
        self._floor_ids: Mapping[str, str] = {}  # of these topics
        self._commits = 0
        self._commit_failures = 0
        self._records = 0
        self._errors = 0
        self._opened_at = time.monotonic()

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
                remedy="topics there: " + (", ".join(sorted(self._cluster.topics())[:10]) or "none at all"),
            )
        self._topics = self._cluster.describe(names)
        self._topics_at = time.monotonic()

    def close(self) -> None:
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
        return KafkaPosition(self._start(partitions_of(topics)), _ids(topics))

    def _start(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        mode = self.options["startup.mode"]
        if mode == "earliest":
            return self._cluster.earliest(partitions)
        if mode == "latest":
            return self._cluster.latest(partitions)
        if mode == "timestamp":
            return self._cluster.at_timestamp(partitions, self.options["startup.timestamp.ms"])
        given = (
            self._specific(partitions) if mode == "specific-offsets" else self._cluster.committed(partitions)
        )
        self._check_in_range(given, "startup.specific.offsets" if mode == "specific-offsets" else "the group")
        return given | self._reset([key for key in partitions if key not in given])

    def identity(self) -> str:
        return json.dumps({key: str(self.options[key]) for key in BEGINNING})

    def offsets_at(self, timestamp_ms: int | None) -> Offsets:
        topics = self._current_topics()
        partitions = partitions_of(topics)
        found = (
            self._cluster.latest(partitions)
            if timestamp_ms is None
            else self._cluster.at_timestamp(partitions, timestamp_ms)
        )
        return KafkaPosition(found, _ids(topics)).to_json()

    def still_there(self, offsets: Offsets) -> tuple[Offsets, tuple[str, ...]]:
        self._topics_at = 0.0
        position = KafkaPosition.from_json(offsets)
        self._check_identity(position, self._current_topics())
        lows = self._cluster.earliest(list(position.next))
        gone = [Range(*key, at, lows[key]) for key, at in sorted(position.next.items()) if at < lows[key]]
        following = {key: max(at, lows[key]) for key, at in position.next.items()}
        return KafkaPosition(following, position.ids).to_json(), tuple(str(each) for each in gone)

    def _specific(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        wanted: Mapping[str, Mapping[str, int]] = self.options["startup.specific.offsets"]
        topics = {topic for topic, _ in partitions}
        if "" in wanted and len(topics) != 1:
            raise OptionValueError(
                "'startup.specific.offsets' must name the topic of each offset when there are several",
                option="startup.specific.offsets",
                remedy='for example {"orders": {"0": 42}}',
            )
        found = {
            (topic or next(iter(topics)), int(number)): offset
            for topic, numbers in wanted.items()
            for number, offset in numbers.items()
        }
        unknown = [key for key in found if key not in set(partitions)]
        if unknown:
            topic, number = unknown[0]
            raise OptionValueError(
                f"'startup.specific.offsets' names {topic}-{number}, which is not there",
                option="startup.specific.offsets",
            )
        return found

    def _check_in_range(self, given: dict[TopicPartition, int], origin: str) -> None:
        low, high = self._cluster.earliest(given), self._cluster.latest(given)
        for key, offset in given.items():
            if offset < low[key] and not self.options["fail.on.data.loss"]:
                log.warning("%s is gone; going on without it", Range(*key, offset, low[key]))
                given[key] = low[key]
            elif not low[key] <= offset <= high[key]:
                missing = (
                    Range(*key, offset, low[key]) if offset < low[key] else Range(*key, high[key], offset)
                )
                raise OffsetOutOfRangeError(
                    f"{origin} says to start {key[0]}-{key[1]} at {offset}, but the broker has "
                    f"[{low[key]}, {high[key]}): {missing} is not there"
                )

    def _reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        policy = self.options["auto.offset.reset"]
        if policy == "none" and partitions:
            listed = ", ".join(f"{topic}-{number}" for topic, number in partitions)
            raise NoOffsetError(f"group '{self.options['group.id']}' has no offset for {listed}")
        return self._cluster.latest(partitions) if policy == "latest" else self._cluster.earliest(partitions)

    def latest_offsets(
        self, start: Offsets, max_records: int | None, until: Offsets | None = None
    ) -> Offsets:
        """Looks until there is something, for `poll.timeout.ms` at most."""
        position = KafkaPosition.from_json(start)
        bound = KafkaPosition.from_json(until) if until else None
        deadline = time.monotonic() + self.options["poll.timeout.ms"] / 1000
        while True:
            if time.monotonic() >= max(self._away.until, self._look_at):
                try:
                    end = self._advance(position, max_records, bound)
                except UnreachableError as error:
                    _say_unreachable(error, self._away.failed())
                else:
                    self._away.over()
                    if end is not None:
                        self._quiet_since, self._look_at = None, 0.0
                        return end.to_json()
            now = time.monotonic()
            if self._quiet_since is None:
                self._quiet_since = now
            if now >= self._look_at:
                self._look_at = now + min(LONGEST_STEP_S, max(STEP_S, STEP_SHARE * self.quiet_s))
            if now >= deadline:
                return start
            time.sleep(min(self._look_at, deadline) - now)

    @property
    def quiet_s(self) -> float:
        """How long there has been nothing new."""
        return 0.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def known_end(self) -> Offsets | None:
        return self._end.to_json() if self._end else None

    def _advance(
        self, position: KafkaPosition, max_records: int | None, bound: KafkaPosition | None
    ) -> KafkaPosition | None:
        """The next position to read to; None while there is nothing new."""
        topics = self._current_topics()
        self._check_identity(position, topics)
        known = [key for key in position.next if key[0] in topics]
        new = [key for key in partitions_of(topics) if key not in position.next]
        ends = self._cluster.latest([*known, *new])
        ids = _ids(topics)
        self._end = KafkaPosition(ends, ids)
        if bound is not None:
            new = [key for key in new if key in bound.next]
            ends = {
                key: min(ends[key], max(bound.next.get(key, 0), position.next.get(key, 0))) for key in ends
            }
        if not new and all(ends[key] == position.next[key] for key in known):
            return None
        lows = self._cluster.earliest([*known, *new])
        first = {key: lows[key] for key in new}
        for key in known:
            self._check_still_there(key, position.next[key], lows[key], ends[key], first)
        begins = {key: max(position.next.get(key, 0), first.get(key, 0)) for key in [*known, *new]}
        available = [Range(*key, begins[key], ends[key]) for key in sorted(begins) if ends[key] > begins[key]]
        reach = {(r.topic, r.partition): r.end for r in allocate(available, max_records)}
        following = dict(position.next) | begins | reach
        return KafkaPosition(following, ids, first)

    def _check_still_there(
        self, key: TopicPartition, at: int, low: int, end: int, first: dict[TopicPartition, int]
    ) -> None:
        if at < low:
            lost = Range(*key, at, low)
            if self.options["fail.on.data.loss"]:
                raise OffsetOutOfRangeError(f"{len(lost)} records are gone before they were read: {lost}")
            first[key] = low
        elif at > end:
            raise OffsetOutOfRangeError(
                f"{key[0]}-{key[1]} ends at {end}, but it was read up to {at}: {Range(*key, end, at)} is gone "
                "from the log (truncated, or replaced by another log)"
            )

    def _check_identity(self, position: KafkaPosition, topics: Mapping[str, Topic]) -> None:
        for name, old in position.ids.items():
            read = ", ".join(
                f"{name}-{number} [0, {offset})" for (topic, number), offset in sorted(position.next.items())
                if topic == name
            )  # fmt: skip
            if name not in topics:
                raise UnknownTopicError(f"topic '{name}' is gone; of it {read} was read or planned")
            if old and topics[name].id != old:
                raise TopicRecreatedError(
                    f"topic '{name}' was deleted and created again (id {old} is now {topics[name].id}); "
                    f"read or planned of the old one: {read}"
                )
            if any(number >= topics[name].partitions for topic, number in position.next if topic == name):
                raise TopicRecreatedError(
                    f"topic '{name}' has fewer partitions than were read or planned: {read}"
                )

    def _current_topics(self) -> dict[str, Topic]:
        if not self._topics or time.monotonic() - self._topics_at > METADATA_AGE_S:
            self._topics = self._cluster.describe(self._cluster.matching())
            self._topics_at = time.monotonic()
        return self._topics

    def end_offsets(self) -> Offsets:
        self._topics_at = 0.0
        topics = self._current_topics()
        return KafkaPosition(self._cluster.latest(partitions_of(topics)), _ids(topics)).to_json()

    def reached(self, position: Offsets, target: Offsets) -> bool:
        here, there = KafkaPosition.from_json(position), KafkaPosition.from_json(target)
        # Offsets of a topic that was made anew since say nothing about the new one.
        same = all(here.ids.get(topic) in (None, "", known) for topic, known in there.ids.items())
        return same and all(here.next.get(key, 0) >= offset for key, offset in there.next.items())

    def count(self, start: Offsets, end: Offsets) -> int:
        return sum(
            len(r) for r in ranges_between(KafkaPosition.from_json(start), KafkaPosition.from_json(end))
        )

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
            self._check_identity(KafkaPosition.from_json(end), topics)
        return splits

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Split]:
        here, there = KafkaPosition.from_json(start), KafkaPosition.from_json(end)
        behind = [key for key, offset in here.next.items() if there.next.get(key, offset) < offset]
        if behind:
            # A first batch that is repeated, but would start past the end it was planned with.
            missing = ", ".join(f"{Range(*key, there.next[key], here.next[key])}" for key in behind)
            raise OffsetOutOfRangeError(f"this batch starts after its own end; {missing} would be left out")
        return [split.of(there.ids) for split in plan_splits(ranges_between(here, there), parallelism)]

    def read_batch(self, split: Split) -> Iterator[SourceBatch]:
        assert isinstance(split, KafkaSplit)
        from forebay.kafka.rows import RowDecoder

        rows = RowDecoder(self.config.schema, self.options)
        lost: list[RejectedRecord] = []
        tolerate = (
            None if self.options["fail.on.data.loss"] else (lambda gone: lost.append(_as_rejected(gone)))
        )
        ranges = [item for item in split.ranges if len(item)]
        try:
            for batch in _read(ranges, rows, self.options, tolerate, self.wanted):
                self._records += batch.records.num_rows
                self._errors += len(batch.rejected) + sum(batch.counted.values())
                yield batch
        except (NewFieldsError, SchemaChangedError) as error:
            raise type(error)(f"source '{self.config.name}': {error.message}", remedy=error.remedy) from None
        if lost:
            yield SourceBatch(rows.empty(), lost)

    # -- the group -----------------------------------------------------------------------------------

    def commit_offsets(self, checkpoint: SourceCheckpoint) -> None:
        try:
            wanted = KafkaPosition.from_json(checkpoint.offsets)
            if self._floor is None or self._floor_ids != wanted.ids:
                self._floor, self._floor_ids = self._committed_before(list(wanted.next)), wanted.ids
            # A view that was created later reads what the group has behind it. The group does not go back for it.
            reached = {key: max(at, self._floor.get(key, 0)) for key, at in wanted.next.items()}
            self._cluster.commit(reached)
            self._floor |= reached
        except CommitError:
            self._commit_failures += 1
            raise
        self._committed = replace(checkpoint, offsets=KafkaPosition(reached, wanted.ids).to_json())
        self._commits += 1

    def _committed_before(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets as they are; a coordinator that moves is waited for, as a commit does."""
        try:
            return with_backoff(
                lambda: self._cluster.committed(partitions), timeout_s=COORDINATOR_S, notify=_say_unreachable
            )
        except UnreachableError as error:
            raise CommitError(error.message) from None

    def current_offsets(self) -> SourceCheckpoint | None:
        return self._committed

    def lag(self) -> list[PartitionLag]:
        return lag_of(self._cluster, self._current_topics())

    def health_check(self) -> HealthStatus:
        details = {
            "group.id": self.options["group.id"],
            "topics": ", ".join(sorted(self._topics)) or str(self.options["topic"] or self.options["topics"]),
            "state": str(self._state),
        }
        try:
            lags = self.lag()
            brokers = self._cluster.brokers()
        except ForebayError as error:
            return HealthStatus(False, error.message, details)
        total = sum(item.lag for item in lags)
        details |= {"brokers": str(brokers), "total_lag": str(total)}
        details |= {f"lag.{item.topic}.{item.partition}": str(item.lag) for item in lags}
        return HealthStatus(True, f"Connected to {brokers} broker(s), lag: {total}", details, tuple(lags))

    def metrics(self) -> ConnectorMetrics:
        seconds = max(time.monotonic() - self._opened_at, 1e-9)
        return ConnectorMetrics(
            records_total=self._records,
            errors_total=self._errors,
            records_per_sec=self._records / seconds,
            custom={
                "commits_total": float(self._commits),
                "commit_failures_total": float(self._commit_failures),
            },
        )


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {topic.name: topic.id for topic in topics.values()}


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


OnLost = Callable[[Range], None] | None


def _read(
    ranges: Sequence[Range], rows: RowDecoder, options: Options, on_lost: OnLost, wanted: Wanted
) -> Iterator[SourceBatch]:
    from forebay.kafka.native_reader import NativeReader, NotSpokenError

    reader = NativeReader.open(ranges, rows, options, on_lost, wanted)
    if reader is None:
        yield from _read_plain(ranges, rows, options, on_lost, wanted)
        return
    try:
        yield from reader.batches()
    except NotSpokenError:
        rest = reader.rest
    else:
        return
    yield from _read_plain(rest, rows, options, on_lost, wanted)


def _read_plain(
    ranges: Sequence[Range], rows: RowDecoder, options: Options, on_lost: OnLost, wanted: Wanted
) -> Iterator[SourceBatch]:
    from forebay.kafka.reader import RangeReader

    with CACHE.borrow(consumer_settings(options)) as consumer:
        reader = RangeReader(consumer, ranges, options, on_lost)
        for messages in reader.chunks(options["max.poll.records"]):
            yield from rows.decode(messages, whole=wanted.whole)


def _as_rejected(lost: Range) -> RejectedRecord:
    message = f"{len(lost)} records are gone: {lost}"
    return RejectedRecord(lost.topic, lost.partition, lost.start, str(RefusalKind.OTHER), message, gone=True)


def _say_unreachable(error: ForebayError, wait_s: float) -> None:
    if not patience.somebody():
        level = logging.INFO if wait_s < WORTH_A_WORD_S else logging.WARNING
        log.log(level, "%s; trying again in %.1f s", error.message, wait_s)
