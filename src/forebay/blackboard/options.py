"""Every option of a blackboard, and the environment names that set them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from forebay.errors import OptionConflictError
from forebay.kafka.options import PASS_THROUGH, shared
from forebay.keywords import texts
from forebay.options import ANY_TEXT, BOOLEAN, TEXT, Option, Options, OptionTable, choice, integer

# KAFKA_SASL_USERNAME is sasl.username of the client library, and so on: see `from_environment`.
_SECURITY = ("KAFKA_SASL_", "KAFKA_SSL_", "KAFKA_SECURITY_PROTOCOL")


def _low_below_high(values: Mapping[str, Any]) -> None:
    if values["lag.low"] > values["lag.high"]:
        raise OptionConflictError(
            "'lag.low' must not be above 'lag.high'", option="lag.low", remedy="for example 1000 and 10000"
        )


def _transactions_need_committed(values: Mapping[str, Any]) -> None:
    if values["transactions"] and values["isolation.level"] != "read_committed":
        raise OptionConflictError(
            "'transactions' = 'true' promises that nobody sees what was aborted, and 'isolation.level' = "
            "'read_uncommitted' shows it",
            option="isolation.level",
            remedy="leave it at read_committed",
        )


BLACKBOARD = OptionTable(
    title="a blackboard",
    options=(
        Option(
            "bootstrap.servers",
            TEXT,
            "Kafka broker addresses, host:port, separated by commas",
            "localhost:9092",
            "localhost:9092",
            env="KAFKA_BOOTSTRAP_SERVERS",
        ),
        Option("client.id", TEXT, "what the brokers call this program", "forebay", env="KAFKA_CLIENT_ID"),
        Option("topic.prefix", ANY_TEXT, "what the names of all topics begin with", "flock.", "team."),
        Option("topic.artifacts", TEXT, "the log of artifacts; <prefix>artifacts unless given"),
        Option(
            "topic.by_id", TEXT, "the newest version of each artifact, compacted; <prefix>by_id unless given"
        ),
        Option(
            "topic.processed",
            TEXT,
            "which agent is done with what, compacted; <prefix>processed unless given",
        ),
        Option("topic.consumptions", TEXT, "who consumed what, compacted; <prefix>consumptions unless given"),
        Option("topic.agents", TEXT, "what is known of agents, compacted; <prefix>agents unless given"),
        Option(
            "topic.dlq.prefix",
            TEXT,
            "an agent's dead letters are in <this><agent>; <prefix>dlq. unless given",
        ),
        Option("topic.retry.prefix", TEXT, "the nth retry waits in <this><n>; <prefix>retry. unless given"),
        Option("partitions", integer(1, 10_000), "partitions of topics that are made", "8", "16"),
        Option(
            "replication.factor",
            integer(-1, 100),
            "replicas of topics that are made; -1 is the cluster's default",
            "-1",
            "3",
        ),
        Option(
            "retention.ms",
            integer(-1),
            "how long the log of artifacts keeps them; -1 is for ever. The newest version of each is kept anyway",
            "-1",
            "604800000",
        ),
        Option(
            "marks.retention.ms",
            integer(-1),
            "how long it is known which agent is done with what, and who consumed what; -1 is for ever. An artifact that is "
            "handed out again after that is worked on again",
            "2592000000",
            "604800000",
        ),
        Option("create.topics", BOOLEAN, "whether topics that are not there are made", "true", "false"),
        Option("acks", choice("all", "1", "0"), "whose word makes a publish done", "all"),
        Option("enable.idempotence", BOOLEAN, "whether a resend is written once", "true", "false"),
        Option("linger.ms", integer(0, 900_000), "how long a publish waits for company", "1", "5"),
        Option("batch.size", integer(1, 2_147_483_647), "the most bytes of a batch", "1000000"),
        Option(
            "transactions",
            BOOLEAN,
            "publish, processed mark and offset are one transaction",
            "false",
            "true",
            env="KAFKA_TX_ENABLE",
        ),
        Option(
            "transactional.id",
            TEXT,
            "this node's name for its transactions: a new program of that name ends the old one's at once; "
            "<prefix>-orch-<host>-<random> unless given, whose transactions end after transaction.timeout.ms",
            example="flock-orch-node1",
            env="KAFKA_TX_ID",
        ),
        Option(
            "transaction.timeout.ms",
            integer(1_000, 900_000),
            "after which the broker ends a transaction whose program has died",
            "15000",
        ),
        shared("isolation.level"),
        Option(
            "index.window",
            integer(1),
            "how many artifacts list() and list_by_type() give, the newest",
            "10000",
            env="FLOCK_INDEX_WINDOW",
        ),
        Option(
            "index.path",
            TEXT,
            "the file of the local index, kept and gone on with; a temporary one unless given",
            example=".forebay/board.db",
        ),
        Option(
            "consistency",
            choice("own", "latest", "local"),
            "what a read waits for: all that this store has written, all that is written now, or nothing",
            "own",
        ),
        Option("read.timeout.ms", integer(1), "how long a read waits for that", "30000"),
        Option(
            "lag.group",
            TEXT,
            "publishers wait while this consumer group is too far behind; nobody waits unless given",
            example="orchestrator",
        ),
        Option("lag.high", integer(1), "with lag.group: the lag from which on publishers wait", "10000"),
        Option("lag.low", integer(0), "with lag.group: the lag at which they go on", "5000"),
        shared("connect.timeout.ms"),
    ),
    pass_through=PASS_THROUGH,
    rules=(_low_below_high, _transactions_need_committed),
)


# Options of a pool that an orchestrator sets itself.
OWN = (
    "bootstrap_servers",
    "topic",
    "topics",
    "topic_pattern",
    "isolation_level",
    "max_attempts",
    "max_errors",
)


def bind(given: Mapping[str, Any]) -> Options:
    """From keywords, `topic_by_id=…` or `**{"topic.by_id": …}`; what is None was not given."""
    return BLACKBOARD.bind({**from_environment(os.environ), **texts(BLACKBOARD, given)})


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """KAFKA_SASL_* and KAFKA_SSL_* as settings of the client library, under the same rules as `kafka.*`."""
    return {
        "kafka." + name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(_SECURITY) and value
    }


def node_name(options: Options) -> str:
    """The `transactional.id`, or one that nobody else has: two programs of one id end each other's transactions."""
    given = options["transactional.id"]
    if given is None:
        given = f"{node_prefix(options)}{socket.gethostname()}-{uuid4().hex[:8]}"
    return str(given)


def node_prefix(options: Options) -> str:
    """What the transactional ids of all nodes begin with that have chosen none."""
    return f"{options['topic.prefix'].rstrip('.-')}-orch-"
