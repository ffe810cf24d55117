"""Keeps the index of letters up to date: asks where letters end, and reads only what is new."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from forebay import threads
from forebay.connectors.contract import Stretch
from forebay.deadletter.desk_views import IndexState
from forebay.deadletter.foreign import letter_of
from forebay.deadletter.index import Found, LetterIndex
from forebay.deadletter.letter import Letter, NotALetterError
from forebay.deadletter.letterbox import Place
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.owners import Owner
from forebay.errors import ForebayError
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.offsets import Range
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.reader import read_ranges
from forebay.kafka.settings import address, connection_settings, consumer_settings
from forebay.options import Options

log = logging.getLogger("forebay.deadletter")

EVERY_S = 1.0  # between two looks while somebody asks
REST = 4  # a look that takes long, of very many sources, is followed by a rest of so many times that
QUIET_S = 20.0  # after so long without a question nobody looks
CHUNK = 1000  # letters written to the index at once
QUEUE_KB = 32_768  # what the client library may fetch ahead

Committed = Mapping[TopicPartition, int]
_Key = tuple[tuple[str, str], ...]


@dataclass
class Followed:
    """A place with letters, and how far the index has it."""

    name: str
    place: Place
    options: Options  # of the place: how its topic is reached
    number: int | None = None  # in the index
    state: IndexState = field(default_factory=lambda: IndexState(0, -1, True, None))
    owners: dict[str, Owner] = field(default_factory=dict)  # by the name that their letters have
    proved: dict[str, Committed] = field(default_factory=dict)
    """By owner's key: up to where its source had read before this place was last looked through to its end."""
    ledgers: dict[str, Sequence[Stretch]] = field(default_factory=dict)


def place_name(place: Place, options: Options) -> str:
    """What tells a place from another one."""
    return f"{address(options)} {place.topic}" if place.topic else str(place.path)


class Follower:
    """Of one desk: looks at all places that it was given, in a thread of its own, while somebody asks."""

    def __init__(
        self,
        index: LetterIndex,
        outcomes: Outcomes,
        committed: Callable[[str], Committed] | None = None,
    ) -> None:
        """`committed` says where a source's group stands; without it the brokers are asked."""
        self._index = index
        self._outcomes = outcomes
        self._committed = committed
        self._places: dict[str, Followed] = {}
        self._clusters: dict[_Key, Cluster] = {}
        self._lock = threading.RLock()
        self._looking = threading.RLock()
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._asked = 0.0
        self._rounds = 0
        self._settled_at = -1  # the index's version
        self._round_done = threading.Condition()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10)
        for cluster in self._clusters.values():
            cluster.close()

    def follow(
        self, owners: Sequence[tuple[Owner, str, Options]], more: Sequence[tuple[Place, Options]] = ()
    ) -> list[Followed]:
        """From now on these, each with its place's name and how that is reached, and no others.

        `more` are places whose writers are not known before they are read.
        """
        found: dict[str, Followed] = {}
        by_place: dict[str, dict[str, Owner]] = {}
        places = [(name, owner.place, options) for owner, name, options in owners]
        places += [(place_name(place, options), place, options) for place, options in more]
        with self._lock:
            for name, place, options in places:
                found.setdefault(name, self._places.get(name) or Followed(name, place, options))
            for owner, name, _ in owners:
                by_place.setdefault(name, {})[owner.name] = owner
            for name, each in found.items():
                each.owners = by_place.get(name, {})
            self._places = found
        return list(found.values())

    def asked(self) -> None:
        """Somebody looks: the thread runs for a while."""
        before, self._asked = self._asked, time.monotonic()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threads.keep_running("forebay-letter-desk", self._run, self._closed)
        if self._asked - before > QUIET_S:
            self._wake.set()

    def begin(self) -> int:
        """Have a look begun now; `ended` takes the number."""
        with self._round_done:
            wanted = self._rounds + (2 if self._looking_now else 1)
        self.asked()
        self._wake.set()
        return wanted

    def ended(self, wanted: int, timeout: float) -> bool:
        """Wait until that look has ended, with everything read; False if it takes longer."""
        deadline = time.monotonic() + timeout
        with self._round_done:
            while self._rounds < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed.is_set():
                    return False
                self._round_done.wait(min(left, 0.2))
                self._wake.set()
        return True

    _looking_now = False

    def _run(self) -> None:
        while not self._closed.is_set():
            if time.monotonic() - self._asked > QUIET_S:
                self._wake.wait(1.0)
                self._wake.clear()
                continue
            began = time.monotonic()
            with self._round_done:
                self._looking_now = True
            try:
                self.look()
            finally:
                with self._round_done:
                    self._looking_now = False
                    self._rounds += 1
                    self._round_done.notify_all()
            took = time.monotonic() - began
            self._wake.wait(max(EVERY_S - took, took * REST))
            self._wake.clear()

    # -- one look -------------------------------------------------------------------------------------

    def look(self) -> None:
        """At all places once, until the index has what was there when it began."""
        with self._looking:
            with self._lock:
                places = list(self._places.values())
            self._settle(places)
            for each in places:
                if each.place.path is not None and not self._closed.is_set():
                    self._guarded([each], lambda each=each: self._look_at_files(each))  # type: ignore[misc]
            by_cluster: dict[_Key, list[Followed]] = {}
            for each in places:
                if each.place.topic is not None:
                    by_cluster.setdefault(_key(each.options), []).append(each)
            for key, group in by_cluster.items():
                if not self._closed.is_set():
                    self._guarded(group, lambda key=key, group=group: self._look_at_topics(key, group))  # type: ignore[misc]
            self._settle(places)

    def _guarded(self, places: Sequence[Followed], look: Callable[[], None]) -> None:
        try:
            look()
        except (ForebayError, OSError) as error:
            text = error.message if isinstance(error, ForebayError) else str(error)
            for each in places:
                each.state = replace(each.state, building=False, error=text)

    def _cluster(self, key: _Key, options: Options) -> Cluster:
        with self._lock:
            if key not in self._clusters:
                self._clusters[key] = Cluster(options)
            return self._clusters[key]

    def _look_at_topics(self, key: _Key, places: Sequence[Followed]) -> None:
        cluster = self._cluster(key, places[0].options)
        # In this order: what a source has read before the letters' end was asked for has its letter before that end.
        read = {each.name: self._read_by_sources(each) for each in places}
        topics = cluster.existing({str(each.place.topic) for each in places})
        keys = partitions_of(topics)
        starts, ends = cluster.earliest(keys), cluster.latest(keys)
        for each in places:
            topic = topics.get(str(each.place.topic))
            if topic is not None:
                self._read_topic(each, topic, starts, ends)
            else:  # it is made with the first letter
                each.state = IndexState(0, 0, False, _now())
            if self._closed.is_set():
                return
            self._prove(each, read[each.name])

    @staticmethod
    def _prove(each: Followed, read: Mapping[str, Committed]) -> None:
        """The letters were looked through after the sources had read so far: what is not among them was not refused."""
        for owner in list(each.owners.values()):
            if owner.key in read:
                each.ledgers[owner.key] = owner.ledger()
                each.proved[owner.key] = {**each.proved.get(owner.key, {}), **read[owner.key]}

    def _read_by_sources(self, each: Followed) -> dict[str, Committed]:
        """Where the groups of the sources stand whose replayed records are not known to have been read."""
        found = {}
        for owner in list(each.owners.values()):
            waiting = self._waiting(each, owner)
            if waiting and owner.key == owner.name:  # a source of this home
                try:
                    if self._committed is not None:
                        found[owner.key] = self._committed(owner.name)
                    else:
                        options = owner.options
                        group = (("group.id", str(options["group.id"])), *_key(options))
                        found[owner.key] = self._cluster(group, options).committed(waiting)
                except ForebayError as error:
                    log.debug("where the group of '%s' stands is not known: %s", owner.name, error.message)
        return found

    def _waiting(self, each: Followed, owner: Owner) -> list[TopicPartition]:
        """Partitions with replayed records that the source had not read when it was last asked."""
        writer = None if each.number is None else self._index.writers(each.number).get(owner.name)
        if writer is None:
            return []
        proved = each.proved.get(owner.key, {})
        return [key for key, last in self._index.targets(writer).items() if proved.get(key, 0) <= last]

    def _read_topic(
        self,
        each: Followed,
        topic: Topic,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        number = each.number = self._index.place(each.name, topic.id)
        known = self._index.positions(number)
        ranges = []
        looked = 0
        for partition in range(topic.partitions):
            low, high = starts[topic.name, partition], ends[topic.name, partition]
            next_ = known.get(str(partition), (low, ""))[0]
            if next_ < low:
                self._index.forget(number, str(partition), low)  # retention has taken them
            first = min(max(next_, low), high)
            ranges.append(Range(topic.name, partition, first, high))
            looked += first - low
        behind = sum(len(item) for item in ranges)
        each.state = IndexState(
            looked, behind, behind > 0, each.state.looked_at_ms, None, self._index.left_out
        )
        since = self._index.newest()
        if behind:
            for part in _read(ranges, each.options):
                positions = {str(number): (at, "") for number, at in part.positions.items()}
                self._index.add(number, part.letters, positions)
                behind -= part.records
                each.state = replace(
                    each.state, indexed=looked + part.done, behind=max(0, behind), error=None
                )
                if self._closed.is_set():
                    return
            self._index.add(number, (), {str(item.partition): (item.end, "") for item in ranges})
            looked += sum(len(item) for item in ranges)
            self._settle_new(each, since)
        now = _now()
        each.state = IndexState(looked, 0, False, now, None, self._index.left_out)

    def _look_at_files(self, each: Followed) -> None:
        path = each.place.path
        assert path is not None
        read = self._read_by_sources(each)
        number = each.number = self._index.place(each.name, "")
        known = self._index.positions(number)
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path] if path.exists() else []
        since = self._index.newest()
        looked = sum(next_ for next_, _ in known.values())
        for gone in known.keys() - {str(file) for file in files}:
            self._index.forget(number, gone)
        for file in files:
            found = file.stat()
            stamp = f"{found.st_size}:{found.st_mtime_ns}"
            if known.get(str(file), (0, ""))[1] == stamp:
                continue
            each.state = replace(each.state, building=True, behind=-1)
            letters = list(_lines(file))
            for start in range(0, len(letters) or 1, CHUNK):
                self._index.add(number, letters[start : start + CHUNK], {})
            self._index.add(number, (), {str(file): (len(letters), stamp)})
            looked += len(letters)
            if self._closed.is_set():
                return
        self._settle_new(each, since)
        each.state = IndexState(looked, 0, False, _now(), None, self._index.left_out)
        self._prove(each, read)

    # -- what became of them --------------------------------------------------------------------------

    def _settle_new(self, each: Followed, since: int) -> None:
        assert each.number is not None
        writers = self._index.writers(each.number)
        for owner in list(each.owners.values()):
            if owner.name in writers and self._outcomes.any_of(owner.key):
                self._index.settle(writers[owner.name], owner.key, since)

    def settle(self) -> None:
        """Take over what has become of letters, also by other processes. It reads no letter."""
        with self._lock:
            places = list(self._places.values())
        self._settle(places)

    def _settle(self, places: Sequence[Followed]) -> None:
        keys: dict[str, list[int]] = {}
        for each in places:
            if each.number is None:
                each.number = self._index.known_place(each.name)
            if each.number is not None:
                writers, settled = self._index.writers(each.number), self._index.settled(each.number)
                for owner in list(each.owners.values()):
                    if owner.name not in writers:
                        continue
                    keys.setdefault(owner.key, []).append(writers[owner.name])
                    if settled.get(owner.name) != owner.key:  # the first time that it is known whose they are
                        self._index.settle(writers[owner.name], owner.key)
        self._index.follow_history(keys)
        version = self._index.version()
        if version == self._settled_at:
            return  # no letter and no outcome is new
        again = self._index.failed_again()
        for replay_id, first, letter in again:
            self._outcomes.failed_again(replay_id, first, letter)
        if again:
            self._index.follow_history(keys)
        self._settled_at = version


@dataclass
class _Part:
    letters: list[Found]
    positions: dict[int, int]
    records: int
    done: int


def _read(ranges: Sequence[Range], options: Options) -> Iterator[_Part]:
    settings = consumer_settings(
        options, **{"isolation.level": "read_committed", "queued.max.messages.kbytes": QUEUE_KB}
    )
    done = 0
    for messages in read_ranges(ranges, options, settings, chunk=CHUNK):
        part = _Part([], {}, len(messages), done + len(messages))
        done = part.done
        for message in messages:
            part.positions[message.partition()] = message.offset() + 1
            try:
                part.letters.append(Found(str(message.partition()), message.offset(), letter_of(message)))
            except NotALetterError:
                continue  # somebody else's record
        yield part


def _lines(file: Path) -> Iterator[Found]:
    at = 0
    with file.open("rb") as lines:
        for line in lines:
            # Not a line that a crash cut off: it was written again.
            with contextlib.suppress(NotALetterError, ValueError):
                yield Found(str(file), at, Letter.from_json(json.loads(line)))
            at += len(line)


def _key(options: Options) -> _Key:
    return tuple(sorted((name, str(value)) for name, value in connection_settings(options).items()))


def _now() -> int:
    return int(time.time() * 1000)
