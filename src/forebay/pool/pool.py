"""`forebay.Pool`: one consumer, many workers, nothing lost.

Three parts with one owner each: a thread polls and commits (`feed.py`), the event loop runs workers (`crew.py`), and
each partition's tracker says how far its records are done (`tracker.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any, Unpack

from confluent_kafka import Consumer

from forebay.backoff import with_backoff
from forebay.deadletter.stacktrace import logged_frames, stacktrace_of
from forebay.errors import (
    ForebayError,
    OptionConflictError,
    OutputError,
    PoolHaltedError,
    PoolStateError,
    RecordError,
)
from forebay.kafka.admin import Cluster
from forebay.kafka.settings import CLIENT_LOG, consumer_settings
from forebay.keywords import shown
from forebay.pool.adaptive import Adaptive
from forebay.pool.batch_crew import BatchCrew
from forebay.pool.committer import Committer
from forebay.pool.crew import Crew, Order
from forebay.pool.decoding import decoding, refusing
from forebay.pool.failures import FailurePolicy, Verdict, verdicts
from forebay.pool.feed import PoolFeed, as_error
from forebay.pool.handlers import Adapted, Handler
from forebay.pool.heavy import heavy
from forebay.pool.keywords import PoolKeywords
from forebay.pool.loop import run as run_loop
from forebay.pool.metrics import PoolCollector
from forebay.pool.options import POOL, bind
from forebay.pool.plain_commits import Commits
from forebay.pool.pool_letters import Letters
from forebay.pool.record import Record
from forebay.pool.stats import PoolStats, stats_of
from forebay.pool.tracing import traced
from forebay.pool.transactions import INTERVAL_MS, TIMEOUT_MS, Transactions
from forebay.telemetry import otlp
from forebay.telemetry.otlp import MetricsPush
from forebay.telemetry.server import MetricsServer
from forebay.threads import start as start_thread

log = logging.getLogger("forebay.pool")

CLOSE_S = 3.0  # how much longer than the time-out the last commit and leaving the group may take
STATISTICS_MS = 1000  # how often the library tells where partitions end
PREFETCH = {  # of each partition, beside the queue; the library's defaults are ten times that
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
}
WATCH_S = 0.25  # how often handlers are looked at that take long


class PoolState(StrEnum):
    """The life of a pool."""

    NEW = "new"
    """Made; nothing is connected."""

    STARTING = "starting"
    """Connecting; no record is handled yet."""

    RUNNING = "running"
    """In the group, handling records."""

    STOPPING = "stopping"
    """No record is begun any more; those under way are waited for, and committed."""

    STOPPED = "stopped"
    """Out of the group, or never in it because its start failed. A pool is not started twice."""


class Pool:
    """Handles records of Kafka topics, many at a time, and commits no offset before its record is done.

        pool = forebay.Pool(bootstrap_servers="localhost:9092", topics=["orders"], group_id="billing", workers=100)

        async def handle(record: forebay.Record) -> None:
            await charge(record.value)

        await pool.run(handle)  # or, in a program that does nothing else: pool.serve(handle)

    A handler is an async function, or a plain one, which runs in threads (or `processes`). A record is done when its
    handler returns. One that raises is tried again, becomes a dead letter, is skipped, or halts the pool: `on_error`,
    `max_attempts`, `dead_letter_topic` and `errors` decide. A crash repeats records that are not committed; it loses none.

    Making a pool connects to nothing and does not block. An option that is unknown, missing or wrong raises an
    `OptionError` here. `run()`, `serve()` and `start()` raise an `UnreachableError` where no broker answers within
    `connect_timeout_ms`, an `UnknownTopicError` where a topic is missing, and a `PoolHaltedError` where too many
    records fail. docs/pool.md says more.
    """

    @shown(
        POOL,
        config="a TOML file with options, in a table [pool] or at the top; keywords win over it",
        errors='what is done at an exception, by its class: {TimeoutError: "retry", ValueError: "dead_letter"}',
    )
    def __init__(
        self,
        *,
        config: str | Path | None = None,
        errors: Mapping[type[BaseException], str] | None = None,
        **settings: Unpack[PoolKeywords],
    ) -> None:
        self.options = bind(settings, config)
        self.name: str = self.options["name"] or self.options["group.id"]
        self.state = PoolState.NEW
        options = self.options
        last = options["on.error"] or (Verdict.DEAD_LETTER if options["dead.letter.topic"] else Verdict.HALT)
        self._policy = FailurePolicy(
            Verdict(last),
            options["max.attempts"],
            options["retry.backoff.ms"],
            options["retry.backoff.max.ms"],
            verdicts(errors or {}),
        )
        self._handler: Handler | None = None
        self._transactions: Transactions | None = None
        self._adapted: Adapted | None = None
        self._letters: Letters | None = None
        self._feed: PoolFeed | None = None
        self.metrics: MetricsServer | None = None
        self._push: MetricsPush | None = None
        self.retries = self.skipped = self.halted = 0

    def __repr__(self) -> str:
        options = self.options
        topics = options["topic"] or ", ".join(options["topics"] or ()) or options["topic.pattern"]
        return (
            f"<forebay.Pool {self.name}: {topics} at {options['bootstrap.servers']}, group {options['group.id']}, "
            f"{options['workers']} workers, order by {options['order']}, {self.state}>"
        )

    # -- what a user calls ---------------------------------------------------------------------------

    def handler(self, function: Handler) -> Handler:
        """Decorator: the function that `run()`, `start()`, `serve()` and `async with` use if they are given none."""
        self._handler = function
        return function

    def transactional(self, id: str, *, interval_ms: int = INTERVAL_MS, timeout_ms: int = TIMEOUT_MS) -> Pool:
        """Consume, handle, produce and commit in Kafka transactions: what `record.send()` is given is written exactly
        once, with the record's offset. Each running pool needs an id of its own; one that starts again, the same.

            await pool.transactional("billing-1").run(handler)

        A transaction is committed every `interval_ms`; the broker ends one that is open for longer than `timeout_ms`.
        Returns the pool itself. `PoolStateError` once it is started, `OptionConflictError` with `processes`.
        """
        if self.state is not PoolState.NEW:
            raise PoolStateError(
                f"the pool is {self.state}", remedy="call transactional() before it is started"
            )
        if self.options["processes"]:
            raise OptionConflictError(
                "'processes' has no transactions: a record is sent from here", option="processes"
            )
        self._transactions = Transactions(self.options, id, interval_ms, timeout_ms)
        return self

    async def run(self, handler: Handler | None = None) -> None:
        """Handle records until `stop()` is called, the task is cancelled, SIGTERM comes, or too much fails.

        Returns when what was being handled is done, committed, and the group is left. Raises what `start()` raises, a
        `PoolHaltedError` when more than `max_errors` records have failed, and any `ConnectorError` that does not pass.
        """
        await self.start(handler)
        try:
            with self._stopped_by_sigterm():
                await self.wait()
        finally:
            await self.stop()

    def serve(self, handler: Handler | None = None) -> None:
        """`run()` for a program that does nothing else, in an event loop of the pool's own. Blocks until the pool ends."""
        run_loop(self.run(handler))

    async def start(self, handler: Handler | None = None) -> None:
        """Connect, join the group and begin; returns when topics and brokers are known to be there.

        Waits for brokers up to `connect_timeout_ms`, then raises an `UnreachableError`; an `UnknownTopicError` or
        `AuthError` comes at once. `PoolStateError` without a handler, or when the pool was started before.
        """
        chosen = handler or self._handler
        if chosen is None:
            raise PoolStateError(
                "the pool has no handler", remedy="await pool.run(handler), or @pool.handler"
            )
        if self.state is not PoolState.NEW:
            raise PoolStateError(f"the pool is {self.state}", remedy="make a new one: a pool is started once")
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._drained = threading.Event()
        self.state = PoolState.STARTING
        try:
            await self._start(chosen)
        except BaseException as error:
            self._fail(error)
            await asyncio.shield(self._loop.create_task(self._close()))
            raise

    async def _start(self, handler: Handler) -> None:
        """Everything that can fail comes before the thread: a pool that fails to start has none."""
        self._decode = await asyncio.to_thread(decoding, self.options)
        self._adapted = Adapted(handler, self.options)
        self._crew = self._make_crew(self._adapted)
        if self.options["dead.letter.topic"]:
            self._letters = Letters(self.name, self.options, self._crew.finished, self._fail)
        await asyncio.to_thread(self._prepare)
        self._feed = self._make_feed()
        self.started = monotonic()
        port = self.options["metrics.port"]
        if port is not None:
            self.metrics = MetricsServer(self.collector(), port, self.options["metrics.host"])
        self._push = otlp.push(self.collector)
        self.state = PoolState.RUNNING
        self._thread = start_thread("forebay-pool", self._poll, self._fail_soon)
        self._watch = self._loop.create_task(self._watch_handlers())

    async def wait(self) -> None:
        """Until the pool ends; raises why, if it was not asked to. `PoolStateError` if it was not started."""
        if self.state is PoolState.NEW:
            raise PoolStateError("the pool was not started yet")
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Finish what is being handled, commit, leave the group. Call it as often as you like.

        Waits for handlers up to `shutdown_timeout_ms`; records of those that take longer are handled again by the next
        pool. It raises nothing: why a pool has ended by itself is what `wait()` and `run()` raise.
        """
        if self.state is PoolState.RUNNING:
            self._begin_to_stop()
        if self.state is PoolState.STOPPING:
            await asyncio.shield(self._draining)  # whoever else waits for it goes on waiting

    def _begin_to_stop(self) -> None:
        self.state = PoolState.STOPPING
        self._draining = self._loop.create_task(self._drain())

    async def __aenter__(self) -> Pool:
        await self.start()
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        await self.stop()
        if kind is None:
            await self.wait()

    def stats(self) -> PoolStats:
        """How the pool fares, now. Asks nobody and does not block. `PoolStateError` if it was never started."""
        return stats_of(self)

    def collector(self) -> PoolCollector:
        """For a Prometheus registry of yours; `metrics_port` serves one of the pool's own."""
        return PoolCollector(self)

    def handler_times(self) -> tuple[list[int], float]:
        """How many handlers took up to each of `crew.SECONDS`, or longer; and all of them together."""
        crew, _ = self._parts()
        return list(crew.times), crew.total_s

    def _parts(self) -> tuple[Crew, PoolFeed]:
        if self._feed is None:
            raise PoolStateError(f"the pool is {self.state}, and has no records yet")
        return self._crew, self._feed

    # -- parts ---------------------------------------------------------------------------------------

    def _make_crew(self, adapted: Adapted) -> Crew:
        options = self.options
        more: dict[str, Any] = {
            "order": Order(options["order"]),
            "limit": options["workers"],
            "crashed": self._fail,
        }
        call = traced(adapted.call, options["group.id"])
        if self._decode is not None:
            call = refusing(call)
        if self._transactions is not None:
            call = self._transactions.around(call)
        if options["batch.size"]:
            return BatchCrew(call, self._failed, size=options["batch.size"], **more)
        return Crew(call, self._failed, **more)

    def _prepare(self) -> None:
        """Find the topics, so that what is wrong with them is said now and not never."""
        admin = Cluster(self.options)
        try:
            patience_s = self.options["connect.timeout.ms"] / 1000
            topics = with_backoff(lambda: admin.describe(admin.matching()), timeout_s=patience_s)
        finally:
            admin.close()
        if self._transactions is not None:
            self._transactions.prepare()
        if self._letters is not None:
            self._letters.prepare(max((topic.partitions for topic in topics.values()), default=1))

    def _make_feed(self) -> PoolFeed:
        options = self.options
        feed: PoolFeed
        reset = {"none": "error"}.get(options["auto.offset.reset"], options["auto.offset.reset"])
        settings = consumer_settings(options) | {
            "auto.offset.reset": reset,
            "error_cb": lambda error: feed.on_error(error),
            "stats_cb": lambda text: feed.on_statistics(text),
            "statistics.interval.ms": STATISTICS_MS,
        }
        for key, value in PREFETCH.items():
            settings.setdefault(key, value)
        offsets: Transactions | Commits
        if self._transactions is not None:
            offsets = self._transactions
            self._transactions.refused = self._output_refused
        else:
            committer = Committer(
                options["commit.interval.ms"] / 1000, options["commit.batch"], options["metadata.max.bytes"]
            )
            offsets = Commits(committer, lambda: self._crew.completed)
        consumer = offsets.consumer = Consumer(settings, logger=CLIENT_LOG)
        static = bool(settings.get("group.instance.id"))
        feed = PoolFeed(options, consumer, self._crew, offsets, self._hand_over, self._decode, static)
        self._offsets = offsets
        return feed

    def _hand_over(self, records: list[Record]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the pool is no more
            self._loop.call_soon_threadsafe(self._crew.take, records)

    def _output_refused(self, record: Record, error: OutputError) -> None:
        """In the polling thread: a record that was done is not, because the broker does not take what it has sent."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._reopened, record, error)

    def _reopened(self, record: Record, error: OutputError) -> None:
        _, times = getattr(record, "_rejected", (None, 0))
        record._rejected = error, times + 1
        self._crew.reopened(record)
        if self.state is PoolState.RUNNING:
            self._failed(record, error)

    # -- the polling thread --------------------------------------------------------------------------

    def _poll(self) -> None:
        assert self._feed is not None
        try:
            self._feed.run()
        except BaseException as error:
            self._fail_soon(error)
        self._drained.wait()
        try:
            self._feed.close(max(1.0, self._deadline - monotonic()))
        except Exception:
            log.exception("the pool's consumer was not closed in order")

    def _fail_soon(self, error: BaseException) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the pool is no more
            self._loop.call_soon_threadsafe(self._fail, as_error(error, self.options))

    async def _drain(self) -> None:
        assert self._feed is not None
        deadline = self._deadline = monotonic() + self.options["shutdown.timeout.ms"] / 1000
        self._feed.quiet = True
        self._crew.stop()
        tasks = [slot.task for slot in self._crew.slots if slot.task is not None]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, deadline - monotonic()))
            if self._letters is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._letters.flushed(), max(0.0, deadline - monotonic()))
        finally:
            late = [task for task in tasks if not task.done()]
            if late:
                log.warning("%d handlers did not end in time: their records are handled again", len(late))
                self._crew.cancel()
                await asyncio.wait(late, timeout=1.0)
            self._watch.cancel()
            self._feed.stop()
            self._drained.set()
            await asyncio.to_thread(self._thread.join, max(0.0, deadline - monotonic()) + CLOSE_S)
            if self._thread.is_alive():
                self._offsets.hurry()
                await asyncio.to_thread(self._thread.join, CLOSE_S)
            await self._close()

    async def _close(self) -> None:
        """What is left when no record is handled any more, however far the start came."""
        try:
            if self._letters is not None:
                self._letters.close()
            if self._adapted is not None:
                self._adapted.close()
            if self._push is not None:
                await asyncio.to_thread(self._push.close)
            if self.metrics is not None:
                await asyncio.to_thread(self.metrics.close)  # it waits for its thread
            if self.state is PoolState.STARTING and self._feed is not None:
                await asyncio.to_thread(self._feed.abandon)
        finally:
            self.state = PoolState.STOPPED
            self._end()

    # -- what fails ----------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """The pool ends with this, also where nobody waits for it."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # wait() may never be called
            if self.state is PoolState.RUNNING:
                log.error("pool '%s' ends: %s", self.name, error)
                self._begin_to_stop()

    def _failed(self, record: Record, error: BaseException) -> None:
        attempt = record.attempt
        verdict = self._policy.verdict(error, attempt)
        fields = {  # for formatters that write logs as JSON
            "pool": self.name, "topic": record.topic, "partition": record.partition, "offset": record.offset,
            "attempt": attempt, "error_type": type(error).__qualname__,
        }  # fmt: skip
        if verdict is Verdict.DEAD_LETTER and self._letters is None:
            verdict = Verdict.HALT
        if verdict is Verdict.RETRY:
            self.retries += 1
            record._attempts = attempt
            wait_s = self._policy.wait_s(attempt)
            log.info(
                "%r: attempt %d failed, again in %.2f s: %r", record, attempt, wait_s, error, extra=fields
            )
            self._retry(record, wait_s)
        elif verdict is Verdict.DEAD_LETTER:
            assert self._letters is not None
            kind = error.kind if isinstance(error, RecordError) else type(error).__name__
            log.info(
                "%r becomes a dead letter after %d attempts: %r",
                record, attempt, error, extra=fields, exc_info=logged_frames(error, log),
            )  # fmt: skip
            self._letters.put(record, kind, _message(error), stacktrace_of(error))
        elif verdict is Verdict.SKIP:
            self.skipped += 1
            log.warning(
                "%r is skipped after %d attempts: %r",
                record, attempt, error, extra=fields, exc_info=logged_frames(error, log),
            )  # fmt: skip
            self._crew.finished(record)
        else:
            self.halted += 1
            log.error(
                "%r stays unfinished after %d attempts: %r",
                record, attempt, error, extra=fields, exc_info=logged_frames(error, log),
            )  # fmt: skip
            if self.halted > self.options["max.errors"]:
                halted = PoolHaltedError(
                    f"pool '{self.name}' halts: {self.halted} records have failed, more than 'max.errors' = "
                    f"{self.options['max.errors']}; the last: {record.topic}-{record.partition} at offset "
                    f"{record.offset}, attempt {attempt}: {_message(error)}"
                )
                halted.__cause__ = error
                self._fail(halted)

    def _retry(self, record: Record, wait_s: float) -> None:
        self._loop.call_later(wait_s, self._crew.again, record)

    async def _watch_handlers(self) -> None:
        """Name handlers that are stuck, and end those that have a limit."""
        stuck_s = self.options["stuck.after.ms"] / 1000
        timeout_ms = self.options["handler.timeout.ms"]
        limit_s = timeout_ms / 1000 if timeout_ms else None
        pause_s = min(WATCH_S, limit_s / 4) if limit_s else WATCH_S
        adaptive = Adaptive(self.options["workers"]) if self.options["adaptive"] else None
        while True:
            if adaptive is not None:
                counts, total_s = self.handler_times()
                saturated = len(self._crew.ready) > 0
                self._crew.limit = adaptive.step(sum(counts), total_s, saturated=saturated)
            self._make_room()
            await asyncio.sleep(pause_s)
            now = monotonic()
            for slot in self._crew.slots:
                busy = [record for record in slot.records if not record.done]
                if not busy or slot.task is None:
                    continue
                if limit_s is not None and now - slot.since > limit_s and not slot.expired:
                    slot.expired = True
                    slot.task.cancel()
                elif now - slot.since > stuck_s and slot.reported != slot.since:
                    slot.reported = slot.since
                    log.warning("the handler of %r has been at it for %.0f s", busy[0], now - slot.since)

    def _make_room(self) -> None:
        """Bound the partitions that are heavy, and no others (`heavy.py`)."""
        high = self.options["heavy.lag"]
        if high is None:
            return
        _, feed = self._parts()
        lags = {lease: feed.lag(lease) for lease in list(feed.leases.values())}
        were = {lease for lease in lags if lease.bound is not None}
        are = heavy(lags, high, were)
        for lease in are - were:
            log.info(
                "%s is heavy, %s records behind: it is bounded to %d workers",
                lease,
                lags[lease],
                self.options["heavy.workers"],
            )
            self._crew.bind(lease, self.options["heavy.workers"])
        for lease in were - are:
            log.info("%s is not heavy any more", lease)
            self._crew.bind(lease, None)

    @contextlib.contextmanager
    def _stopped_by_sigterm(self) -> Iterator[None]:
        """In the main thread, where nobody else has laid hands on the signal."""
        own = threading.current_thread() is threading.main_thread()
        if not own or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        self._loop.add_signal_handler(signal.SIGTERM, self._end)
        try:
            yield
        finally:
            self._loop.remove_signal_handler(signal.SIGTERM)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _message(error: BaseException) -> str:
    if isinstance(error, ForebayError):
        return error.message
    return str(error) or type(error).__name__
