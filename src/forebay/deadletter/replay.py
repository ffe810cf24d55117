"""Replay: letters' records sent again, each once, whatever happens on the way.

Some letters at a time go in one Kafka transaction. Before it begins, an intent is written down: which letters,
and where the target topic ends. After it, they are marked replayed. A process that is killed in between leaves
the intent; the next replay first fences the dead one off (same transactional id), so that nothing of it can
still arrive, and then looks in the target topic, from where it ended then, for records that carry the intent's
id. A transaction is there as a whole or not at all: one record that is found tells that all letters were sent, also
those whose records cannot be seen yet, or not any more.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from forebay.connectors.contract import RejectedRecord
from forebay.deadletter.entry import Condition, Entry, everything
from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import REPLAY_ID, REPLAYED_FROM, Letter
from forebay.deadletter.letterbox import LetterReader, Progress, read_records, silent
from forebay.deadletter.outcomes import (
    Intent,
    LetterState,
    Outcomes,
    Sent,
    mark_of,
)
from forebay.deadletter.repair import Repair, RepairError
from forebay.deadletter.replay_spans import ReplaySpans
from forebay.deadletter.whole import RecordGoneError, whole
from forebay.errors import ForebayError, OffsetOutOfRangeError, ReplayFailedError, UnknownTopicError
from forebay.formats import RefusalKind
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.callbacks import called_back
from forebay.kafka.missing_acls import WRITE, Acl, missing, on_topics, on_transactions
from forebay.kafka.offsets import Range
from forebay.kafka.producer import KafkaProducer, OutgoingRecord
from forebay.kafka.settings import connection_settings, translate
from forebay.options import Options
from forebay.pace import Pace
from forebay.tables import counted, html_lines, html_table

log = logging.getLogger("forebay.deadletter")

LETTERS = 500  # in one transaction: few enough to be over in a moment, many enough that its cost is shared
BYTES = 8 << 20
PATIENCE_S = 60.0  # for the broker to open or end a transaction
SETTLE_S = 90.0  # for transactions of others, which hide what is behind them: the broker ends them after 60 s
Unsure = Literal["sent", "unsent"]
VISIBLE_S = 10.0  # an open transaction of somebody else may hide it longer; it is committed all the same
PROBLEMS_KEPT = 100
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # of records that the library has given up


@dataclass(frozen=True)
class Replayed:
    """A letter, and the record that is sent for it."""

    entry: Entry
    record: OutgoingRecord

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def shown(self) -> bytes | None:
        """The value as it may be shown."""
        made = replace(self.entry.letter, value=self.value, size=len(self.value or b""), sha256=None)
        return self.entry.mask.letter(made).value if self.entry.mask else self.value


@dataclass(repr=False)
class ReplayReport:
    """What a replay did, or would do; `DeadLetters.replay()` gives it."""

    source: str
    target: str
    dry_run: bool = False
    selected: int = 0  # letters that the condition names and that are open
    sent: int = 0
    bytes: int = 0
    found: int = 0  # sent by a replay that was killed before it could write that down
    not_open: int = 0  # named by the condition, but replayed or discarded before
    left: int = 0  # the repair had nothing for them
    problems: list[tuple[str, str]] = field(default_factory=list)  # letters that stay open, and why
    problem_count: int = 0
    judged: bool = False  # a dry run: whether it could be tried what becomes of what is sent
    refused: list[tuple[str, str]] = field(
        default_factory=list
    )  # a dry run: would get a letter again, and why
    refused_count: int = 0
    examples: list[Replayed] = field(default_factory=list)
    replay_ids: list[str] = field(default_factory=list)  # of the transactions

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def _line(self) -> str:
        sent = "would be sent" if self.dry_run else "sent"
        more = {
            "sent by a replay before": self.found,
            "not open": self.not_open,
            "left open by the repair": self.left,
            "could not be sent": self.problem_count,
            "would be refused again": self.refused_count,
        }
        parts = [f"{counted(self.sent, 'letter')} of {self.selected:,} {sent} to topic {self.target}"]
        parts += [f"{count:,} {what}" for what, count in more.items() if count]
        return f"replay of {self.source}: " + ", ".join(parts)

    def _repr_html_(self) -> str:
        shown = [*self.problems, *self.refused]
        return (html_table(("letter", "why"), shown) if shown else "") + html_lines([self._line()])

    def trouble(self, entry: Entry, why: str) -> None:
        """A letter that could not be sent, and stays open. The first of them are kept with their reasons."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append((entry.id, why))

    def refuses(self, entry: Entry, why: str) -> None:
        """A letter that the source would refuse again. The first of them are kept with their reasons."""
        self.refused_count += 1
        if len(self.refused) < PROBLEMS_KEPT:
            self.refused.append((entry.id, why))


class Judging(Protocol):
    """Says why a record would be refused, or None; raises a ForebayError where that cannot be tried."""

    def refusal(self, letter: Letter) -> RejectedRecord | None: ...


class Replayer:
    """Sends letters of one owner to one topic."""

    def __init__(
        self,
        reader: LetterReader,
        outcomes: Outcomes,
        options: Options,
        target: str,
        actor: str | None = None,
    ) -> None:
        """`actor` is who replays, for the letters' history."""
        self._actor = actor
        self._reader = reader
        self._outcomes = outcomes
        self._options = options
        self._key = reader.key
        self._target = target
        self._cluster = Cluster(options, WRITE)

    def close(self) -> None:
        self._cluster.close()

    # -- looking -------------------------------------------------------------------------------------

    def dry_run(
        self,
        wanted: Condition = everything,
        repair: Repair | None = None,
        progress: Progress = silent,
        *,
        limit: int | None = None,
        judge: Judging | None = None,
        report: ReplayReport | None = None,
    ) -> ReplayReport:
        """What would be sent, with a few examples, and what of it would be refused. Nothing is sent or written down."""
        report = report or ReplayReport(self._reader.source, self._target)
        report.dry_run, report.judged = True, judge is not None
        self._described()
        for outgoing in islice(self._outgoing(wanted, repair, report, progress), limit):
            report.sent += 1
            report.bytes += len(outgoing.value or b"")
            if len(report.examples) < 3:
                report.examples.append(outgoing)
            if judge is not None:
                self._judge(judge, outgoing, report)
        return report

    def _judge(self, judge: Judging, outgoing: Replayed, report: ReplayReport) -> None:
        sent = replace(
            outgoing.entry.letter,
            key=outgoing.record.key,
            value=outgoing.value,
            size=len(outgoing.value or b""),
            sha256=None,
        )
        try:
            bad = judge.refusal(sent)
        except ForebayError as error:
            report.refuses(outgoing.entry, f"it could not be tried: {error.message}")
            return
        if bad is not None:
            mask = outgoing.entry.mask
            message = mask.message(sent, bad.message, bad.path) if mask else bad.message
            report.refuses(outgoing.entry, f"{bad.kind}: {message}")

    def _outgoing(
        self, wanted: Condition, repair: Repair | None, report: ReplayReport, progress: Progress
    ) -> Iterator[Replayed]:
        for entry in self._reader.entries(progress):
            if not wanted(entry):
                continue
            if entry.outcome.state is not LetterState.OPEN:
                report.not_open += 1
                continue
            report.selected += 1
            if entry.letter.kind == RefusalKind.LATE_RECORD and entry.letter.topic == self._target:
                report.trouble(
                    entry,
                    "it was late for one view, and the others have it: say where it goes (--to, TO 'topic')",
                )
                continue
            try:
                letter = whole(entry.letter, self._options)
                value = letter.value if repair is None else repair(letter)
            except (RepairError, RecordGoneError) as error:
                report.trouble(entry, str(error))
                continue
            if repair is not None and value is None:
                report.left += 1
                continue
            same = self._target == letter.topic
            partition = letter.partition if same else None
            yield Replayed(entry, OutgoingRecord(self._target, letter.key, value, _own(letter), partition))

    # -- sending -------------------------------------------------------------------------------------

    def run(
        self,
        wanted: Condition = everything,
        repair: Repair | None = None,
        progress: Progress = silent,
        unsure: Unsure | None = None,
        *,
        limit: int | None = None,
        rate: float | None = None,
        stop: threading.Event | None = None,
        report: ReplayReport | None = None,
    ) -> ReplayReport:
        """`unsure` is what to take for true of a killed replay whose records the target topic has lost.

        `limit` is the most letters that are sent, `rate` the most a second. Once `stop` is set, no further transaction is
        begun: what is sent is settled, the rest stays open. `report` may be given to look at meanwhile.
        """
        stop = stop or threading.Event()
        report = report or ReplayReport(self._reader.source, self._target)
        target = self._described()
        producer = self._producer()
        report.found += self._settle_all(unsure)
        self._reader.watch()
        reached: dict[tuple[str, int], int] = {}
        pace = Pace(rate, stop.wait)
        outgoing = islice(self._outgoing(wanted, repair, report, progress), limit)
        # A transaction of a second's worth: what it holds is seen at once.
        for chunk in _chunks(outgoing, LETTERS if rate is None else max(1, min(LETTERS, int(rate)))):
            pace.wait(len(chunk))
            if stop.is_set():
                break
            for partition, offset in self._send(producer, chunk, target, report):
                key = (self._target, partition)
                reached[key] = max(reached.get(key, 0), offset + 1)
        self._await_visible(reached)
        return report

    def _await_visible(self, reached: Mapping[tuple[str, int], int]) -> None:
        """The broker answers a commit before readers see it: whoever waits for a view now must wait for this too."""
        deadline = time.monotonic() + VISIBLE_S
        while reached and time.monotonic() < deadline:
            ends = self._cluster.latest(reached)
            if all(ends[key] >= end for key, end in reached.items()):
                return
            time.sleep(0.02)

    def _producer(self) -> KafkaProducer:
        settings = connection_settings(self._options) | {
            "transactional.id": self._outcomes.transactional_id(self._key),
            "partitioner": "murmur2_random",  # where Java's clients would put it
            "message.max.bytes": 100 << 20,  # what the broker took once; it has the last word
            "linger.ms": 5,
        }
        producer = KafkaProducer(settings)
        self._doing("opening a transaction", lambda: producer.init_transactions(PATIENCE_S))
        return producer

    def _send(
        self, producer: KafkaProducer, chunk: list[Replayed], target: Topic, report: ReplayReport
    ) -> list[tuple[int, int]]:
        """In one transaction; where they are now."""
        # The order of the records' own partitions, as far as one transaction goes.
        chunk.sort(key=lambda item: item.entry.identity)
        ends = self._cluster.latest(partitions_of({target.name: target}))
        intent = Intent(
            uuid.uuid4().hex,
            self._target,
            {number: offset for (_, number), offset in ends.items()},
            {item.entry.identity: mark_of(item.entry.letter) for item in chunk},
            target.id,
        )
        self._outcomes.intend(self._key, intent)
        sent: dict[Identity, tuple[int, int]] = {}
        refused: list[tuple[Identity, KafkaError]] = []
        spans = ReplaySpans(self._reader.source, self._target)
        self._doing("beginning a transaction", producer.begin_transaction)
        try:
            for item in chunk:
                self._produce(producer, item, intent, target.partitions, spans, sent, refused)
            self._doing("replaying", lambda: producer.flush(PATIENCE_S))
            if len(sent) != len(chunk):
                raise self._refused(refused, producer)
        except BaseException as reason:
            spans.failed(reason)
            try:
                producer.abort_transaction(PATIENCE_S)
            except KafkaException as error:
                # The intent is left: the next replay finds out that nothing was sent.
                log.warning("the transaction of a replay did not end in order: %s", error.args[0].str())
            else:
                self._outcomes.settle(self._key, intent, {})
            raise
        # An error here leaves the intent: whether the broker has committed is for the next replay to find out.
        deadline = time.monotonic() + PATIENCE_S
        late = lambda _: time.monotonic() > deadline  # noqa: E731
        self._doing("committing a transaction", lambda: producer.commit(PATIENCE_S, late))
        self._outcomes.settle(self._key, intent, sent, self._actor)
        spans.sent(sent)
        report.replay_ids.append(intent.replay_id)
        report.sent += len(chunk)
        report.bytes += sum(len(item.value or b"") for item in chunk)
        return list(sent.values())

    def _produce(
        self,
        producer: KafkaProducer,
        item: Replayed,
        intent: Intent,
        partitions: int,
        spans: ReplaySpans,
        sent: dict[Identity, tuple[int, int]],
        refused: list[tuple[Identity, KafkaError]],
    ) -> None:
        identity = item.entry.identity

        @called_back
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent[identity] = (message.partition(), message.offset())
            else:
                refused.append((identity, error))

        headers = [
            *spans.headers(identity, item.record.headers),
            (REPLAY_ID, intent.replay_id.encode()),
            (REPLAYED_FROM, str(identity).encode()),
        ]
        record = item.record._replace(headers=headers)
        if record.partition is not None and record.partition >= partitions:
            record = record._replace(partition=None)  # the topic has fewer than it had
        try:
            producer.put(record, delivered)
        except KafkaException as error:
            doing = f"replaying {identity.place}"
            raise translate(error.args[0], self._options, doing, *self._acls) from None

    def _refused(
        self, refused: Sequence[tuple[Identity, KafkaError]], producer: KafkaProducer
    ) -> ForebayError:
        where = f"'{self._target}'"
        if refused and all(error.code() in _PURGED for _, error in refused):
            # The library has given the transaction up; asked to commit, it says why.
            try:
                producer.commit_transaction(PATIENCE_S)
            except KafkaException as reason:
                refused = [(refused[0][0], reason.args[0])]
        if not refused:
            return ReplayFailedError(f"{where} took no records for {PATIENCE_S:.0f} s", remedy="try again")
        identity, error = next((item for item in refused if item[1].code() not in _PURGED), refused[0])
        doing = f"replaying {identity.place}"
        unallowed = missing(error, connection_settings(self._options), self._acls, doing)
        if unallowed is not None:
            return unallowed
        return ReplayFailedError(
            f"{where} does not take the record of {identity.place}: {error.str()}",
            remedy=f"fix that, or leave the letter out (--where \"id <> '{identity.place}'\"); nothing of this "
            "transaction was sent, all before it was",
        )

    def _described(self) -> Topic:
        try:
            return self._cluster.describe([self._target])[self._target]
        except UnknownTopicError as error:
            raise UnknownTopicError(
                error.message, remedy=f"{error.remedy}; a replay makes no topics"
            ) from None

    def _doing(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as error:
            raise translate(error.args[0], self._options, what, *self._acls) from None

    @property
    def _acls(self) -> tuple[Acl, ...]:
        """The id ends in what this home has chosen at random: another home has another."""
        ids = on_transactions(self._outcomes.transactional_prefix(self._key), prefixed=True)
        return (*on_topics(WRITE, [self._target]), ids)

    # -- after a crash -------------------------------------------------------------------------------

    def _settle_all(self, unsure: Unsure | None) -> int:
        """Find out what became of the intents that are left. The producer of whoever left them is fenced off."""
        found = 0
        for intent in self._outcomes.intents(self._key):
            try:
                sent = find_sent(intent, self._options)
            except OffsetOutOfRangeError:
                if unsure is None:
                    raise
                sent = dict.fromkeys(intent.letters if unsure == "sent" else (), (None, None))
            self._outcomes.settle(self._key, intent, sent)
            found += len(sent)
        return found


def find_sent(intent: Intent, options: Options) -> Sent:
    """Where the records of an intent are in its target topic; nothing if its transaction was not committed.

    If it was, all letters of the intent are there, those with None whose record cannot be seen.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        sent, hidden = _look(intent, options)
        if sent:
            return {identity: sent.get(identity, (None, None)) for identity in intent.letters}
        if not hidden:
            return {}
        if time.monotonic() > deadline:
            raise ReplayFailedError(
                f"somebody else's transaction in '{intent.target}' does not end, and hides what was sent after it",
                remedy="try again when it is over",
            )
        time.sleep(0.5)  # the broker does not tell when it ends


def _look(intent: Intent, options: Options) -> tuple[Sent, list[Range]]:
    """What is there of an intent, and what cannot be seen yet."""
    # The end of the log, and not of what is committed: an open transaction of somebody else hides ours.
    cluster = Cluster(options.table.bind({**options.given, "isolation.level": "read_uncommitted"}))
    try:
        topic = cluster.describe([intent.target])[intent.target]
        keys = partitions_of({topic.name: topic})
        starts, ends = cluster.earliest(keys), cluster.latest(keys)
        kept_whole = "compact" not in cluster.cleanup_policy(intent.target)
    except UnknownTopicError:
        raise _cannot_know(intent) from None
    finally:
        cluster.close()
    since = {key: intent.since.get(key[1], 0) for key in keys}
    if intent.target_id not in ("", topic.id) or any(ends[key] < since[key] for key in keys):
        raise _cannot_know(intent)  # it is another topic, or another log
    hidden: list[Range] = []
    ranges = [Range(*key, max(starts[key], since[key]), ends[key]) for key in keys]
    sent, _ = _records(intent, ranges, options, hidden.append)
    if sent or hidden:
        return sent, hidden
    if any(starts[key] > since[key] for key in keys):
        raise _cannot_know(intent)
    if not kept_whole:
        # Records of a transaction that was aborted are there as well. Where none is, and nothing at all is missing,
        # there never was one; but a gap may be where compaction took them away.
        begun, seen = _records(intent, ranges, options, hidden.append, "read_uncommitted")
        if not begun and seen < sum(map(len, ranges)):
            raise _cannot_know(intent)
    return {}, []


def _records(
    intent: Intent,
    ranges: list[Range],
    options: Options,
    on_hidden: Callable[[Range], None],
    isolation: str = "read_committed",
) -> tuple[Sent, int]:
    """Where records of an intent are in some ranges, and how many records there are of anybody."""
    found: dict[Identity, tuple[int, int]] = {}
    seen = 0
    for messages in read_records(ranges, options, on_hidden, isolation):
        seen += len(messages)
        for message in messages:
            headers = dict(message.headers() or ())
            if headers.get(REPLAY_ID) == intent.replay_id.encode():
                first = Identity.parse((headers[REPLAYED_FROM] or b"").decode())
                found[first] = (message.partition(), message.offset())
    return found, seen


def _cannot_know(intent: Intent) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"a replay of {len(intent.letters)} letters to '{intent.target}' was killed, and whether it had sent them "
        "cannot be known any more: the topic has lost what it held then",
        remedy=f"see at the topic's consumers whether {next(iter(intent.letters)).place} arrived; then replay "
        "with --unsure sent if it did, --unsure unsent if it did not: it holds for all of them",
    )


def _own(letter: Letter) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without those of a replay before this one."""
    return [(name, data) for name, data in letter.headers if name not in (REPLAY_ID, REPLAYED_FROM)]


def _chunks(items: Iterable[Replayed], most: int) -> Iterator[list[Replayed]]:
    chunk: list[Replayed] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += len(item.value or b"")
        if len(chunk) >= most or size >= BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
