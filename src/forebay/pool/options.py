"""Every option of a pool, and where its value comes from: keywords, the environment, a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.errors import OptionConflictError, OptionValueError
from forebay.kafka.options import KAFKA, PASS_THROUGH, shared
from forebay.keywords import keyword, texts
from forebay.options import BOOLEAN, TEXT, Option, Options, OptionTable, choice, integer
from forebay.pool.completed import LIMIT
from forebay.pool.crew import Order
from forebay.pool.failures import Verdict
from forebay.telemetry import LOOPBACK

ENVIRONMENT = "FOREBAY_POOL_"  # and the option's name: FOREBAY_POOL_COMMIT_INTERVAL_MS

_FORMATS = ("schema.registry.", "schema.evolution", "avro.", "protobuf.", "csv.")
_OF_SOURCES = (
    "auto.offset.reset", "isolation.level", "partition.assignment.strategy", "connect.timeout.ms",
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.bytes",
    "max.partition.fetch.bytes",
)  # fmt: skip


def _letters_need_a_topic(values: Mapping[str, Any]) -> None:
    if values["on.error"] == Verdict.DEAD_LETTER and not values["dead.letter.topic"]:
        raise OptionConflictError(
            "'on.error' = 'dead_letter' needs 'dead.letter.topic'",
            option="dead.letter.topic",
            remedy="name the topic that takes the letters",
        )


def _batches_are_not_bounded(values: Mapping[str, Any]) -> None:
    if values["heavy.lag"] is not None and values["batch.size"] is not None:
        raise OptionConflictError(
            "'heavy.lag' bounds how many records of a partition are handled at a time, and a list of 'batch.size' is one",
            option="heavy.lag",
            remedy="leave one of them out",
        )


def _window_holds_the_queue(values: Mapping[str, Any]) -> None:
    if values["max.uncommitted"] < 2 * values["queue.size"]:
        raise OptionValueError(
            "'max.uncommitted' must be at least twice 'queue.size': what waits is not committed, either",
            option="max.uncommitted",
            remedy=f"for example {4 * values['queue.size']}",
        )


_POOL = (
    shared("bootstrap.servers"),
    shared("topic"),
    shared("topics"),
    shared("topic.pattern"),
    shared("group.id", description="the consumer group that keeps how far records are done"),
    Option("name", TEXT, "what the pool is called in logs, metrics and dead letters; the group's unless given"),
    Option("workers", integer(1, 100_000), "the most handlers at work at a time", "100", "500"),
    Option("order", choice(*Order), "which records may be handled at the same time", "unordered", "key"),
    Option("batch.size", integer(1, 1_000_000), "hand over lists of up to so many records", example="500"),
    Option("processes", integer(1, 1_000), "run a plain function in so many processes", example="2"),
    Option(
        "adaptive",
        BOOLEAN,
        "find out how many workers are worthwhile, up to 'workers': more as long as handlers do not get slower",
        "false",
    ),
    Option(
        "heavy.lag",
        integer(1),
        "a partition that is further behind than this has at most 'heavy.workers' workers, so that others are not kept "
        "waiting; until it is at half of that, and as long as there are others that are not. Without it none is bounded",
        example="10000",
    ),
    Option("heavy.workers", integer(1), "the most handlers at work at a time on a heavy partition", "10", "25"),
    Option("queue.size", integer(1), "how many records wait for a worker before no more are fetched", "5000"),
    Option(
        "max.uncommitted",
        integer(2),
        "how many records of a partition may be read beyond one that is not done, before it is paused; and how "
        "many may be done without being committed, which a crash would repeat, before no more are fetched",
        "20000",
    ),
    Option("commit.interval.ms", integer(1), "how often offsets are committed", "5000", "1000"),
    Option("commit.batch", integer(1), "and after how many records at the latest", "10000", "1000"),
    Option(
        "metadata.max.bytes",
        integer(0),
        "how much of what is done beyond a commit's offset is kept with it; the broker's offset.metadata.max.bytes",
        str(LIMIT),
    ),
    Option(
        "on.error",
        choice(Verdict.HALT, Verdict.DEAD_LETTER, Verdict.SKIP),
        "what becomes of a record whose last attempt has failed. halt: it stays unfinished, and the pool ends after "
        "'max.errors' of them; dead_letter where 'dead.letter.topic' is given",
        example="skip",
    ),
    Option("max.errors", integer(0), "so many failed records are borne; one more halts the pool", "10", "0"),
    Option("max.attempts", integer(0), "how often a record is tried; 0: without end", "3", "5"),
    Option("retry.backoff.ms", integer(0), "how long the second attempt waits; each further one twice as long", "100"),
    Option("retry.backoff.max.ms", integer(0), "the longest wait between two attempts", "30000"),
    Option("dead.letter.topic", TEXT, "the topic that takes dead letters; made if it is not there", example="orders-dlq"),
    Option("handler.timeout.ms", integer(1), "a handler that takes longer has failed", example="30000"),
    Option("stuck.after.ms", integer(1), "a handler that takes longer is named in the log", "60000"),
    Option(
        "drain.timeout.ms",
        integer(0),
        "how long handlers may go on when their partition goes to another member",
        "5000",
    ),
    Option("shutdown.timeout.ms", integer(0), "how long handlers may go on when the pool is stopped", "30000"),
    Option(
        "metrics.port",
        integer(0, 65535),
        "serve Prometheus metrics on this port; 0: one that is free",
        example="9400",
    ),
    Option(
        "metrics.host",
        TEXT,
        "the address that metrics are served on: this machine alone, unless another is given; 0.0.0.0 is every one it has",
        LOOPBACK,
        "0.0.0.0",  # noqa: S104 - an example
    ),
    Option(
        "format",
        choice("raw", "json", "avro", "protobuf", "debezium-json", "csv"),
        "how a value is decoded; raw: it stays bytes",
        "raw",
        "json",
    ),
    Option("columns", TEXT, "the columns of a value, as in CREATE SOURCE", example="id BIGINT, name STRING"),
    shared("fetch.wait.max.ms", default="500"),  # a pool is there all day; a source's task is gone in a moment
    *(shared(name) for name in _OF_SOURCES),
    *(shared(option.name) for option in KAFKA.options if option.name.startswith(_FORMATS)),
)  # fmt: skip

POOL = OptionTable(
    title="a pool",
    options=_POOL,
    exclusive=tuple(group for group in KAFKA.exclusive if not group[0].startswith("key.")),
    one_of=(("topics", "topic", "topic.pattern"),),
    pass_through=PASS_THROUGH,
    rules=(_letters_need_a_topic, _window_holds_the_queue, _batches_are_not_bounded),
)


def bind(given: Mapping[str, Any], config: str | Path | None = None) -> Options:
    """Keywords before environment before file."""
    written = _from_file(config)
    for option in POOL.options:
        text = os.environ.get(ENVIRONMENT + keyword(option.name).upper())
        if text is not None:
            written[option.name] = text
    written |= texts(POOL, given)
    return POOL.bind(written)


def _from_file(config: str | Path | None) -> dict[str, str]:
    """The table [pool] of a TOML file, or all of it if there is none."""
    if config is None:
        return {}
    path = Path(config)
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OptionValueError(
            f"the pool's settings in {path} cannot be read: {error}", option="config"
        ) from None
    return texts(POOL, found.get("pool", found))
