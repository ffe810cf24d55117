"""Topics: which there are, what is in them, and a record to try something with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.deadletter.groups import pattern_of
from forebay.errors import BadRequestError, ForebayError, UnknownTopicError
from forebay.patience import PATIENCE_S
from forebay.web.ground import Ground
from forebay.web.masks import Masks, masked_message
from forebay.web.model import Browse, Header, Produced, TopicPartitionRow, TopicRecord, TopicRow
from forebay.web.shown import PAYLOAD, hex_of, inert, text_of, value_of
from forebay.web.topic_names import reads_topic

if TYPE_CHECKING:
    from confluent_kafka import Message

    from forebay.deadletter.masked import LetterMask
    from forebay.kafka.admin import Cluster
    from forebay.kafka.rows import RowDecoder
    from forebay.options import Options

MOST_RECORDS = 500
MOST_PARTITIONS = 2_000  # whose offsets are asked for in one look
LONGEST_RECORD = 1 << 20  # of a test record
PATIENCE_MS = str(int(PATIENCE_S * 1000))
Readers = Mapping[str, Mapping[str, str]]
"""Sources by name, with their options."""
_OWN = ("topic", "topics", "topic.pattern", "group.id")  # of a source's options: not where its brokers are


class Topics:
    """`given` are options of brokers that the dashboard was started with, if it was."""

    def __init__(self, ground: Ground, given: Mapping[str, str] | None) -> None:
        self._ground = ground
        self._given = given
        self._masks = Masks(ground)

    # -- which there are -----------------------------------------------------------------------------------

    def all(self) -> list[TopicRow]:
        found: list[TopicRow] = []
        for options, readers in self._brokers():
            found += self._of(options, readers)
        return found

    def _brokers(self) -> Iterator[tuple[Options, Readers]]:
        """How each set of brokers is reached, with the options of the sources that read there."""
        groups: dict[tuple[tuple[str, str], ...], dict[str, Mapping[str, str]]] = {}
        first: dict[tuple[tuple[str, str], ...], Options] = {}
        for name in self._ground.sources.names():
            try:
                if self._ground.sources.facts(name).connector != "kafka":
                    continue
                options = self._ground.options(name)
            except ForebayError:
                continue  # a secret is missing: its page says so
            if "bootstrap.servers" not in options.given:
                continue
            key = tuple(
                sorted(
                    (k, v)
                    for k, v in options.given.items()
                    if k == "bootstrap.servers" or k.startswith("kafka.")
                )
            )
            first.setdefault(key, options)
            groups.setdefault(key, {})[name] = options.given
        for key, options in first.items():
            yield _alone(options, "-"), groups.get(key, {})
        if self._given is not None:
            known = {options.given["bootstrap.servers"] for options in first.values()}
            if self._given["bootstrap.servers"] not in known:
                yield self._bound("-"), {}

    def _bound(self, topic: str) -> Options:
        from forebay.kafka.options import KAFKA

        assert self._given is not None
        more = {"topic": topic, "group.id": "forebay-ui", "connect.timeout.ms": PATIENCE_MS}
        return KAFKA.bind({**self._given, **more})

    def _of(self, options: Options, readers: Readers) -> list[TopicRow]:
        from forebay.kafka.admin import Cluster

        where, letters = str(options["bootstrap.servers"]), self._letter_topics()
        cluster = Cluster(options)
        try:
            topics = cluster.topics()
            keys = [(name, number) for name, count in sorted(topics.items()) for number in range(count)]
            keys = keys[:MOST_PARTITIONS]
            low, high = cluster.earliest(keys), cluster.log_ends(keys)
        except ForebayError as error:
            return [TopicRow("", where, (), None, (), error=inert(error.message))]
        finally:
            cluster.close()
        rows = []
        for name, count in sorted(topics.items()):
            places = [(name, number) for number in range(count) if (name, number) in low]
            rows.append(
                TopicRow(
                    inert(name),
                    where,
                    [TopicPartitionRow(place[1], low[place], high[place]) for place in places],
                    sum(high[place] - low[place] for place in places) if len(places) == count else None,
                    _reading(readers, name),
                    letters.get(name, ()),
                )
            )
        return rows

    def _letter_topics(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._ground.sources.names():
            try:
                topic = self._ground.sources.policy(name).topic
            except ForebayError:
                continue
            if topic is not None:
                found.setdefault(topic, []).append(name)
        return found

    def readers(self, topic: str) -> list[str]:
        """The sources that read a topic. No broker is asked."""
        found = []
        for name in self._ground.sources.names():
            try:
                facts = self._ground.sources.facts(name)
            except ForebayError:
                continue
            if facts.connector == "kafka" and reads_topic(facts.options, topic):
                found.append(name)
        return found

    # -- what is in them -----------------------------------------------------------------------------------

    def browse(
        self,
        topic: str,
        partition: int | None,
        offset: int | None,
        timestamp_ms: int | None,
        limit: int,
        source: str | None,
    ) -> Browse:
        from forebay.kafka.admin import Cluster

        if offset is not None and timestamp_ms is not None:
            raise BadRequestError(
                "a place is an offset or a time, and not both", remedy="leave one of them out"
            )
        limit = max(1, min(limit, MOST_RECORDS))
        options = self._options(topic, source)
        decoder = self._decoder(source, options)
        cluster = Cluster(options)
        try:
            count = cluster.describe([topic])[topic].partitions
            numbers = range(count) if partition is None else (partition,)
            if partition is not None and not 0 <= partition < count:
                raise BadRequestError(
                    f"topic '{topic}' has no partition {partition}",
                    remedy=f"it has {count}: 0 to {count - 1}",
                )
            places = [(topic, number) for number in numbers]
            start, end = self._places(cluster, places, offset, timestamp_ms, limit)
        finally:
            cluster.close()
        newest = offset is None and timestamp_ms is None
        messages = self._read(options, start, end, limit)
        masks = self._masks.of_topic(topic, source)
        shown = [self._record(message, decoder, masks) for message in messages]
        shown.sort(key=lambda each: (each.timestamp_ms or 0, each.offset), reverse=newest)
        return Browse(shown[:limit], {place[1]: end[place] for place in places}, source)

    def _places(
        self,
        cluster: Cluster,
        places: Sequence[tuple[str, int]],
        offset: int | None,
        timestamp_ms: int | None,
        limit: int,
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Where to begin and to end in each partition."""
        low, high = cluster.earliest(places), cluster.latest(places)
        each = max(1, -(-limit // len(places)))
        if timestamp_ms is not None:
            start = cluster.at_timestamp(places, timestamp_ms)
        elif offset is not None:
            start = dict.fromkeys(places, offset)
        else:
            start = {place: high[place] - each for place in places}
        start = {place: min(max(at, low[place]), high[place]) for place, at in start.items()}
        return start, {place: min(start[place] + each, high[place]) for place in places}

    def _read(
        self,
        options: Options,
        start: Mapping[tuple[str, int], int],
        end: Mapping[tuple[str, int], int],
        limit: int,
    ) -> list[Message]:
        from forebay.kafka.offsets import Range
        from forebay.kafka.reader import read_ranges
        from forebay.kafka.settings import consumer_settings

        ranges = [Range(*place, at, end[place]) for place, at in sorted(start.items()) if end[place] > at]
        if not ranges:
            return []
        chunks = read_ranges(ranges, options, consumer_settings(options), lambda gone: None, chunk=limit)
        return [message for messages in chunks for message in messages]

    def _options(self, topic: str, source: str | None) -> Options:
        """How the brokers of a topic are reached: a source's way, or that of whoever reads it, or of any that have it."""
        if source is not None:
            return _alone(self._kafka(source), topic)
        from forebay.kafka.admin import Cluster

        known = list(self._brokers())
        reading = [options for options, readers in known if _reading(readers, topic)]
        for options in reading or [options for options, _ in known]:
            made = _alone(options, topic)
            if reading or len(known) == 1:
                return made
            cluster = Cluster(made)
            try:
                if not cluster.absent([topic]):
                    return made
            except ForebayError:
                continue  # these brokers are away; others may have it
            finally:
                cluster.close()
        raise UnknownTopicError(
            f"no brokers are known that have a topic '{topic}'",
            remedy="start the dashboard with --brokers host:port, or create a source that reads it",
        )

    def _kafka(self, source: str) -> Options:
        if self._ground.sources.facts(source).connector != "kafka":
            raise BadRequestError(f"source '{source}' reads no topic", remedy="name a Kafka source")
        return self._ground.options(source)

    def _decoder(self, source: str | None, options: Options) -> RowDecoder | None:
        if source is None:
            return None
        from forebay.kafka.rows import RowDecoder

        connector = self._ground.connector(source)
        return RowDecoder(connector.config.schema, options)

    def _record(
        self, message: Message, decoder: RowDecoder | None, masks: Sequence[tuple[str, LetterMask]]
    ) -> TopicRecord:
        kind, stamp = message.timestamp()
        hidden = self._ground.hide_payloads
        key, value, headers = masked_message(message, masks)
        row, fault = (None, "") if decoder is None else _decoded(message, decoder, masks)
        return TopicRecord(
            inert(message.topic()),
            message.partition(),
            message.offset(),
            stamp if kind else None,
            None if hidden else text_of(key),
            None if hidden else hex_of(key),
            None if hidden else text_of(value),
            None if hidden else hex_of(value),
            None if key is None else len(message.key()),
            None if value is None else len(message.value()),
            [
                Header(inert(name), None if hidden else text_of(data), None if hidden else hex_of(data))
                for name, data in headers
            ],
            None if hidden else row,
            "hidden" if hidden and fault else fault,
            hidden,
            value is not None and len(value) > PAYLOAD,
        )

    # -- a record to try something with --------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        headers: Mapping[str, str],
        partition: int | None,
    ) -> Produced:
        from forebay.kafka.admin import Cluster
        from forebay.kafka.envelope import Envelope
        from forebay.kafka.sender import Sender

        size = len((key or "").encode("utf-8", "replace")) + len((value or "").encode("utf-8", "replace"))
        if size > LONGEST_RECORD:
            raise BadRequestError(
                f"a test record of {size:,} bytes", remedy=f"{LONGEST_RECORD:,} bytes at most"
            )
        options = self._options(topic, None)
        cluster = Cluster(options)
        try:
            count = cluster.describe([topic])[
                topic
            ].partitions  # and not a topic that is made by writing to it
        finally:
            cluster.close()
        if partition is not None and not 0 <= partition < count:
            raise BadRequestError(f"topic '{topic}' has no partition {partition}", remedy=f"it has {count}")
        with Sender(topic, options) as sender:
            sender.send(
                Envelope(
                    _bytes(value),
                    _bytes(key),
                    tuple((name, _bytes(text)) for name, text in headers.items()),
                    partition,
                )
            )
            sender.flush()
            assert sender.last is not None
            return Produced(topic, *sender.last)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")


def _reading(readers: Readers, topic: str) -> list[str]:
    return [name for name, given in readers.items() if reads_topic(given, topic)]


def _alone(options: Options, topic: str) -> Options:
    """The same brokers, for this topic and no group of anybody's."""
    given = {key: text for key, text in options.given.items() if key not in _OWN}
    patience = min(int(PATIENCE_MS), options["connect.timeout.ms"])
    more = {"topic": topic, "group.id": "forebay-ui", "connect.timeout.ms": str(patience)}
    return options.table.bind({**given, **more})


def _decoded(
    message: Message, decoder: RowDecoder, masks: Sequence[tuple[str, LetterMask]]
) -> tuple[dict[str, Any] | None, str]:
    """The row, or why there is none. A record of a change log may have several: the last is what it says."""
    try:
        batches = list(decoder.decode([message]))
    except ForebayError as error:  # of a registry that does not answer
        return None, inert(error.message)
    for batch in batches:
        for item in batch.rejected:
            reason = pattern_of(item.message) if masks else item.message
            return None, inert(f"{item.kind}: {reason}")
    rows = [row for batch in batches for row in batch.records.to_pylist()]
    if not rows:
        return None, "skipped by the format"
    row = rows[-1]
    for _, mask in masks:
        row = mask.row(row)
    return {inert(str(name)): value_of(value) for name, value in row.items()}, ""
