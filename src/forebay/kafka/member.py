"""A source that shares its group with other processes: its member of the group, on the driver.

The member reads nothing. It is assigned partitions, says so to the process that plans (`kafka/share.py`), and commits
what the checkpoint has: the brokers refuse the commit of a member that they have given up, whose partitions are
somebody else's by then.

A partition that is revoked goes when the batch in flight is done and committed. One that is lost is gone already: a
batch that was planned with it is given up before any table takes it (`confirm`).

One thread does all of it. Others ask it to (`_ask`): while the library is in a callback, it lets no other thread use the
consumer, and a callback here waits for a batch that has to be confirmed.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from forebay import threads
from forebay.backoff import Backoff
from forebay.connectors.contract import PartitionOffsets
from forebay.errors import AuthError, CommitError, ForebayError, PartitionsLostError
from forebay.kafka.callbacks import called_back
from forebay.kafka.consumers import commit_offsets, leave_group
from forebay.kafka.offsets import KafkaPosition, ranges_between
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.settings import CLIENT_LOG, connection_settings, is_refusal, translate
from forebay.kafka.share import Ownership, ShareFolder
from forebay.options import Options

T = TypeVar("T")
log = logging.getLogger("forebay.kafka.member")

POLL_S = 0.02  # how often to look whether the group has something to say; no record ever comes
LOOK_S = 0.02  # how often to look whether the batch in flight is done
ASK_S = 10.0  # for the group's offsets
RETRY_S = 0.1
ASK_AGAIN_S = 0.5
LEAVE_S = 5.0
DRAIN_SHARE = 0.8  # of max.poll.interval.ms: so long a revocation waits for the batch in flight
# Unless the source says otherwise. Others notice a rebalance with their next heartbeat, and a cooperative one is two
# of them; a process that is killed is missed after the session's time: the shortest that brokers allow by default.
HEARTBEAT_MS, SESSION_MS = 500, 6_000
METADATA_MS = 5_000  # how soon new partitions are noticed
RECONNECT_MS = (
    1_000  # the longest pause between tries: a session does not wait for a member that waits half a minute
)

# The group has given this member up. An old generation alone says less: a rebalance has just ended, and the library is about
# to hear of it; a partition that is kept is ours before and after.
EXPELLED = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID}


@dataclass(frozen=True)
class GroupFacts:
    """How a member stands in its group now."""

    member: str = ""
    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    rebalances: int = 0
    last_rebalance: str = ""  # what happened, for people
    last_rebalance_ms: int | None = None
    error: str = ""


class GroupMember:
    """Of one source in one process. `position` is what the checkpoint has; `reads` whether a query plans batches now.

    `beginning` says where partitions begin that the group has no offset of; `added`, how far tables have partitions that
    the group has up to these offsets. It runs until it is closed.
    """

    def __init__(
        self,
        options: Options,
        folder: ShareFolder,
        topics: Sequence[str],
        beginning: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
        position: Callable[[], KafkaPosition | None],
        reads: Callable[[], bool],
        on_rebalance: Callable[[str], None] = lambda what: None,
        added: Callable[[PartitionOffsets], PartitionOffsets] = lambda at: at,
    ) -> None:
        self._on_rebalance = on_rebalance
        self._added = added
        self._options = options
        self._folder = folder
        self._topics = list(topics)
        self._beginning = beginning
        self._position = position
        self._reads = reads
        folder.make()
        self._owned = Ownership(folder.assignment().number)
        self._change(self._owned.gone(()))  # what a process before was assigned is not ours
        self._began = self._owned.number
        self._reached: dict[
            TopicPartition, int
        ] = {}  # committed since it was assigned: the group does not go back
        self._asking: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._facts = GroupFacts()
        self._asked = Backoff()
        self._joined = threading.Event()
        self._closed = threading.Event()
        self._consumer: Consumer | None = None
        self._thread = threads.keep_running(
            f"forebay-member-{options['group.id']}", self._run, self._closed, self._failed
        )

    # -- for others ----------------------------------------------------------------------------------

    @property
    def facts(self) -> GroupFacts:
        return self._facts

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed.is_set()

    def partitions(self) -> set[TopicPartition]:
        """Those that are read here now."""
        return set(self._owned.assignment().partitions)

    def await_assignment(self, timeout_s: float) -> bool:
        """Until the group has said which partitions are ours, and where they go on."""
        deadline = time.monotonic() + timeout_s
        while not (self._joined.is_set() and not self._owned.unsettled):
            if self._closed.wait(LOOK_S) or time.monotonic() > deadline:
                return False
        return True

    def confirm(self, start: KafkaPosition, end: KafkaPosition) -> None:
        """Before any table takes a batch: raises unless its partitions are this member's, and have been since it was planned.

        The brokers are asked, by committing where the batch begins: a process that was frozen does not know by itself
        that the group went on without it. Brokers that are away are waited for.
        """
        begins = {(item.topic, item.partition): item.start for item in reversed(ranges_between(start, end))}
        planned = -1 if end.assigned is None else end.assigned
        while begins:
            failed = self._ask(lambda: self._confirm(begins, planned))
            if failed is None:
                return
            if failed.code() in EXPELLED:
                raise _lost(sorted(begins))
            log.info("group '%s': a batch waits to be confirmed: %s", self._options["group.id"], failed.str())
            time.sleep(RETRY_S)

    def _confirm(self, begins: Mapping[TopicPartition, int], planned: int) -> KafkaError | None:
        if lost := self._owned.lost_of(begins, planned):
            raise _lost(lost)
        return self._write(begins)

    def commit(self, wanted: KafkaPosition) -> dict[TopicPartition, int]:
        """What is ours of a position. CommitError if the group did not take it."""
        reached, failed = self._ask(lambda: self._commit(wanted))
        if failed is not None:
            raise CommitError(
                f"the offsets of group '{self._options['group.id']}' were not committed: {failed.str()}"
            )
        return reached

    def _commit(self, wanted: KafkaPosition) -> tuple[dict[TopicPartition, int], KafkaError | None]:
        owned = self._owned
        reached = {
            key: at
            for key, at in wanted.next.items()
            if key in owned.at and key not in owned.going and at >= self._reached.get(key, owned.at[key])
        }
        return reached, self._write(reached) if reached else None

    def _ask(self, what: Callable[[], T]) -> T:
        """Have the thread do it, and wait for that."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(what())
            except Exception as error:
                answer.set_exception(error)

        self._asking.put(run)
        while True:
            try:
                return answer.result(ASK_AGAIN_S)
            except TimeoutError:
                if not self._thread.is_alive() and not answer.done():
                    raise PartitionsLostError("this process is not in its group any more") from None

    def leave(self) -> None:
        """Out of the group, once the batch in flight is done. Returns at once."""
        self._closed.set()

    def close(self) -> None:
        """The same, and wait for it."""
        self._closed.set()
        self._thread.join(self._drain_s + 2 * LEAVE_S)

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        # The process that plans takes seconds to start: until then, what others read is better off with them.
        while self._folder.seen() < self._began:
            if self._closed.wait(LOOK_S):
                return
        self._consumer = consumer = Consumer(
            member_settings(self._options) | {"error_cb": self._on_error}, logger=CLIENT_LOG
        )
        try:
            consumer.subscribe(
                self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            while not self._closed.is_set():
                message = consumer.poll(0)
                if message is not None:
                    self._hear(message)
                self._settle(consumer)
                self._answer(POLL_S)
        finally:
            try:
                leave_group(consumer, LEAVE_S)
            finally:
                self._consumer = None
                self._change(self._owned.gone(self._owned.since))
                self._answer(0.0)

    def _answer(self, wait_s: float) -> None:
        """Do what others ask for; wait so long for the first of them."""
        try:
            self._asking.get(timeout=wait_s)()
            while True:
                self._asking.get_nowait()()
        except queue.Empty:
            pass

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return  # fetched before it was paused: tasks read it
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            self._refused_session()
            return
        found = translate(error, self._options, f"being a member of group '{self._options['group.id']}'")
        if error.fatal() or isinstance(found, AuthError):
            raise found
        log.info("%s", found.message)

    def _refused_session(self) -> None:
        """The library goes on asking, and so the source begins when the brokers allow it."""
        trouble = (
            f"the brokers refuse session.timeout.ms = {member_settings(self._options)['session.timeout.ms']}: it is "
            "below their group.min.session.timeout.ms (6000 unless configured), or above their group.max.session.timeout.ms"
        )
        if trouble != self._facts.error:
            log.warning("group '%s': %s", self._options["group.id"], trouble)
        self._note(error=trouble)

    @called_back
    def _on_error(self, error: KafkaError) -> None:
        if is_refusal(error):
            self._note(error=error.str())

    def _failed(self, error: Exception) -> None:
        self._note(error=error.message if isinstance(error, ForebayError) else repr(error))

    def _settle(self, consumer: Consumer) -> None:
        """Where assigned partitions go on. What cannot be asked now is asked again: nothing is planned of them before."""
        keys = self._owned.unsettled
        if not keys or time.monotonic() < self._asked.until:
            return
        try:
            at = self._added(self._group_offsets(consumer, keys))
        except (KafkaException, ForebayError) as error:
            text = error.message if isinstance(error, ForebayError) else error.args[0].str()
            self._note(error=f"where the group stands is not known: {text}")
            self._asked.failed()
            return
        self._asked.over()
        self._note(error="")
        self._change(self._owned.settled(at))

    def _group_offsets(self, consumer: Consumer, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        answer = consumer.committed([PartitionOffset(*key) for key in keys], timeout=ASK_S)
        for each in answer:
            if each.error is not None:
                raise KafkaException(each.error)
        found = {(each.topic, each.partition): each.offset for each in answer if each.offset >= 0}
        fresh = [key for key in keys if key not in found]
        if fresh:
            begins = self._beginning(fresh)
            found |= {key: begins[key] for key in fresh}
            # Before a record is read: who takes over after a crash must begin here, and not where the log ends by then.
            if (failed := self._write({key: found[key] for key in fresh})) is not None:
                raise KafkaException(failed)
        return found

    # -- the group's word ----------------------------------------------------------------------------

    @called_back
    def _assigned(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        keys = _keys(partitions)
        # An offset of its own, so that the library asks for none; and paused, so that it fetches nothing.
        for each in partitions:
            each.offset = 0
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if partitions:
            consumer.pause(partitions)
        self._reached = {key: at for key, at in self._reached.items() if key not in keys}
        self._change(self._owned.assigned(keys))
        self._joined.set()
        self._rebalanced("assigned", keys)

    @called_back
    def _revoked(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        keys = _keys(partitions)
        self._change(self._owned.revoking(keys))
        if not self._await_batch(self._owned.number):
            log.warning(
                "group '%s': the batch in flight did not end within %.0f s; it is given up where %s are in it",
                self._options["group.id"], self._drain_s, _names(keys),
            )  # fmt: skip
        self._commit_before_going(keys)
        self._change(self._owned.gone(keys))
        self._rebalanced("revoked", keys)

    @called_back
    def _lost(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        """Somebody else may have them already: nothing is committed."""
        keys = _keys(partitions)
        self._change(self._owned.gone(keys))
        self._rebalanced("lost", keys)
        log.warning(
            "group '%s' went on without this process, which was silent for longer than session.timeout.ms; lost: %s",
            self._options["group.id"],
            _names(keys),
        )

    def _await_batch(self, number: int) -> bool:
        """Until the planner has seen an assignment, which it does between two batches; or nobody plans."""
        deadline = time.monotonic() + self._drain_s
        while self._folder.seen() < number and self._reads():
            if time.monotonic() > deadline:
                return False
            self._answer(LOOK_S)  # the batch in flight is to be confirmed
        return True

    def _commit_before_going(self, keys: Sequence[TopicPartition]) -> None:
        """What the checkpoint has. If that fails, the next owner reads again what lies behind the last commit."""
        position = self._position()
        reached = {
            key: position.next[key]
            for key in keys
            if position is not None and position.next.get(key, -1) >= self._owned.at.get(key, float("inf"))
        }
        failed = self._write(reached) if reached else None
        if failed is not None:
            log.warning(
                "group '%s': offsets were not committed before partitions went, so that some records are read twice: %s",
                self._options["group.id"], failed.str(),
            )  # fmt: skip

    def _rebalanced(self, what: str, keys: Sequence[TopicPartition]) -> None:
        log.info("group '%s': %s %s", self._options["group.id"], what, _names(keys))
        self._note(
            rebalances=self._facts.rebalances + 1,
            last_rebalance=f"{what}: {_names(keys)}",
            last_rebalance_ms=int(time.time() * 1000),
        )
        self._on_rebalance(self._facts.last_rebalance)

    # -- parts ---------------------------------------------------------------------------------------

    @property
    def _cooperative(self) -> bool:
        return bool(self._options["partition.assignment.strategy"] == "cooperative-sticky")

    @property
    def _drain_s(self) -> float:
        return float(self._options["max.poll.interval.ms"]) / 1000 * DRAIN_SHARE

    def _change(self, owned: Ownership) -> None:
        """Says it to the planner first: nobody may hold what it may still plan."""
        self._folder.write_assignment(owned.assignment())
        self._owned = owned

    def _write(self, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
        consumer = self._consumer
        if consumer is None:
            return KafkaError(KafkaError._STATE, "this process is not a member of the group")
        failed = commit_offsets(consumer, [PartitionOffset(*key, at) for key, at in offsets.items()])
        if failed is not None:
            return failed[1]
        self._reached |= offsets
        return None

    def _note(self, **changes: Any) -> None:
        consumer = self._consumer
        member, generation = ("", -1) if consumer is None else _standing(consumer)
        owned = tuple(sorted(self._owned.since))
        self._facts = replace(self._facts, member=member, generation=generation, partitions=owned, **changes)


def member_settings(options: Options) -> dict[str, Any]:
    """For a consumer that joins its group and is to fetch nothing."""
    timing = {
        "session.timeout.ms": _or(options, "session.timeout.ms", SESSION_MS),
        "heartbeat.interval.ms": _or(options, "heartbeat.interval.ms", HEARTBEAT_MS),
        "max.poll.interval.ms": options["max.poll.interval.ms"],
        "topic.metadata.refresh.interval.ms": METADATA_MS,
    }
    own = {
        "group.id": options["group.id"],
        "partition.assignment.strategy": options["partition.assignment.strategy"],
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
        "queued.max.messages.kbytes": 1,
    }
    found = timing | connection_settings(options) | own
    if "kafka.reconnect.backoff.max.ms" not in options.given:
        found["reconnect.backoff.max.ms"] = RECONNECT_MS
    return found


def _or(options: Options, key: str, otherwise: int) -> int:
    return int(options[key]) if key in options.given else otherwise


def _standing(consumer: Consumer) -> tuple[str, int]:
    """Member id and generation. The library shows the latter in what it hands to a producer, after its magic word."""
    try:
        metadata = bytes(consumer.consumer_group_metadata() or b"")
        magic, _, rest = metadata.partition(b":")
        generation = int.from_bytes(rest[:4], "little", signed=True) if magic.startswith(b"CGMD") else -1
        return str(consumer.memberid() or ""), generation
    except (KafkaException, RuntimeError):
        return "", -1


def _keys(partitions: Sequence[PartitionOffset]) -> list[TopicPartition]:
    return sorted((each.topic, each.partition) for each in partitions)


def _names(keys: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in keys) or "nothing"


def _lost(keys: Sequence[TopicPartition]) -> PartitionsLostError:
    return PartitionsLostError(
        f"{_names(keys)} went to another process while a batch of it was in flight: the batch is given up"
    )
