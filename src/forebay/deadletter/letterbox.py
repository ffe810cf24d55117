"""Reads somebody's letters: each once, with what became of it.

They are read one after the other and not kept, so that a million of them take no more memory than a few.
What was written while reading is for the next reader.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Message

from forebay.deadletter.entry import Entry, replayed_from
from forebay.deadletter.foreign import letter_of
from forebay.deadletter.letter import Letter, NotALetterError
from forebay.deadletter.outcomes import OPEN, Outcomes, mark_of
from forebay.deadletter.seen import Seen
from forebay.errors import UnknownTopicError
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.kafka.reader import read_ranges
from forebay.kafka.settings import consumer_settings
from forebay.options import Options

if TYPE_CHECKING:
    from forebay.deadletter.masked import LetterMask

log = logging.getLogger("forebay.deadletter")

CHUNK = 200  # letters may carry a megabyte each
QUEUE_KB = 16_384  # what the client library may fetch ahead, for the same reason

Progress = Callable[[int, int], None]
"""Hears how many of how many have been looked at; letters written twice count twice."""


def silent(done: int, total: int) -> None:
    """For those who do not want to know."""


@dataclass(frozen=True)
class Place:
    """Where letters are: a topic, or a file or folder of JSON lines."""

    topic: str | None = None
    path: Path | None = None
    brokers: str | None = None  # of the topic, where they are not the source's

    def options(self, of_source: Options) -> Options:
        """How its topic is reached: like the source's topics, but for other brokers."""
        if self.brokers is None:
            return of_source
        return of_source.table.bind({**of_source.given, "bootstrap.servers": self.brokers})

    def __str__(self) -> str:
        return f"topic '{self.topic}'" if self.topic else str(self.path)


class Letterbox:
    """All that is in one place, whoever wrote it."""

    def __init__(self, place: Place, options: Options) -> None:
        self.place = place
        self._options = place.options(options)
        self.strangers = 0  # records there that are nobody's letters

    def writers(self) -> dict[str, set[str]]:
        """Who has letters here, and which topics their records are of. It takes a look at each letter."""
        found: dict[str, set[str]] = {}
        for letter in self.letters():
            found.setdefault(letter.source, set()).add(letter.topic)
        return found

    def ends(self) -> tuple[str, dict[int, int]]:
        """The topic's id and where its partitions end now; nothing for files, which are always read whole."""
        if self.place.topic is None:
            return "", {}
        with _cluster(self._options) as cluster:
            try:
                topic = cluster.describe([self.place.topic])[self.place.topic]
            except UnknownTopicError:
                return "", {}  # it is made with the first letter
            found = cluster.latest([(topic.name, number) for number in range(topic.partitions)])
        return topic.id, {number: offset for (_, number), offset in found.items()}

    def letters(
        self, since: Mapping[int, int] | None = None, progress: Progress = silent
    ) -> Iterator[Letter]:
        """In the order in which they lie, from these offsets on; one that was written twice comes twice."""
        self.strangers = 0
        return self._from_topic(since or {}, progress) if self.place.topic else self._from_files()

    def _from_topic(self, since: Mapping[int, int], progress: Progress) -> Iterator[Letter]:
        topic = self.place.topic
        assert topic is not None
        _, ends = self.ends()
        with _cluster(self._options) as cluster:
            starts = cluster.earliest([(topic, number) for number in ends])
        ranges = []
        for number, end in ends.items():
            first = max(starts[topic, number], since.get(number, 0))
            ranges.append(Range(topic, number, min(end, first), end))
        total = sum(len(item) for item in ranges)
        done = 0
        for messages in read_records(ranges, self._options):
            for message in messages:
                try:
                    yield letter_of(message)
                except NotALetterError:
                    self.strangers += 1
            done += len(messages)
            progress(min(done, total), total)

    def _from_files(self) -> Iterator[Letter]:
        path = self.place.path
        assert path is not None
        files = sorted(file for file in path.rglob("*.jsonl")) if path.is_dir() else [path]
        for file in files:
            if not file.exists():
                continue
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    try:
                        yield Letter.from_json(json.loads(line))
                    except (NotALetterError, ValueError):
                        self.strangers += 1  # also a line that a crash cut off: it was written again


class LetterReader:
    """The letters of one source, pool or agent in one place. Their outcomes are kept under `key`."""

    def __init__(
        self, source: str, box: Letterbox, outcomes: Outcomes, key: str, mask: LetterMask | None = None
    ) -> None:
        self.mask = mask
        self.source = source
        self.key = key
        self.place = box.place
        self._box = box
        self._outcomes = outcomes

    def entries(self, progress: Progress = silent) -> Iterator[Entry]:
        """Every letter once. Letters whose record failed again after its replay are known before the first."""
        self.refresh(progress)
        seen = Seen()
        touched = self._outcomes.any_of(self.key)
        for letter in self._letters({}, progress):
            if seen.add(letter.identity, mark_of(letter)):
                yield Entry(letter, self._outcomes.of(self.key, letter) if touched else OPEN, self.mask)
        if self.strangers:
            log.warning("%d in %s are no dead letters, and left out", self.strangers, self.place)

    @property
    def strangers(self) -> int:
        """How many records there are nobody's letters, as far as was read."""
        return self._box.strangers

    def refresh(self, progress: Progress = silent) -> None:
        """Look through what is new for letters about records that were replayed."""
        if not self._outcomes.any_replayed():
            return
        place, ends = self._watched()
        since = self._outcomes.watched(self.key, place) or {}
        for letter in self._letters(since, progress):
            replayed = replayed_from(letter)
            if replayed is not None:
                self._outcomes.failed_again(*replayed, letter.identity)
        self._outcomes.watch(self.key, place, ends)

    def watch(self) -> None:
        """From here on: a record that is replayed now cannot have come to a letter before."""
        place, ends = self._watched()
        if self._outcomes.watched(self.key, place) is None:
            self._outcomes.watch(self.key, place, ends)

    def _watched(self) -> tuple[str, dict[int, int]]:
        """What is watched under which name: offsets say nothing about another topic of that name."""
        id, ends = self._box.ends()
        return f"{self.place} {id}".rstrip(), ends

    def _letters(self, since: Mapping[int, int], progress: Progress) -> Iterator[Letter]:
        return (letter for letter in self._box.letters(since, progress) if letter.source == self.source)


def read_records(
    ranges: list[Range],
    options: Options,
    on_lost: Callable[[Range], None] = lambda lost: None,
    isolation: str = "read_committed",
) -> Iterator[list[Message]]:
    """The records of these ranges, one range a partition, some at a time."""
    settings = consumer_settings(
        options, **{"isolation.level": isolation, "queued.max.messages.kbytes": QUEUE_KB}
    )
    return read_ranges(ranges, options, settings, on_lost, chunk=CHUNK)


@contextmanager
def _cluster(options: Options) -> Iterator[Cluster]:
    cluster = Cluster(options)
    try:
        yield cluster
    finally:
        cluster.close()
