"""The keyword arguments of `forebay.KafkaBlackboardStore`, with their types. Made from the option table by `make docs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict


class BlackboardKeywords(TypedDict, total=False):
    """What `forebay.KafkaBlackboardStore` can be given by keyword. docs/options.md has the same as a table."""

    client_id: str
    """What the brokers call this program; default 'forebay'; from KAFKA_CLIENT_ID if not given."""
    topic_prefix: str
    """What the names of all topics begin with; default 'flock.'."""
    topic_artifacts: str | None
    """The log of artifacts; <prefix>artifacts unless given."""
    topic_by_id: str | None
    """The newest version of each artifact, compacted; <prefix>by_id unless given."""
    topic_processed: str | None
    """Which agent is done with what, compacted; <prefix>processed unless given."""
    topic_consumptions: str | None
    """Who consumed what, compacted; <prefix>consumptions unless given."""
    topic_agents: str | None
    """What is known of agents, compacted; <prefix>agents unless given."""
    topic_dlq_prefix: str | None
    """An agent's dead letters are in <this><agent>; <prefix>dlq. unless given."""
    topic_retry_prefix: str | None
    """The nth retry waits in <this><n>; <prefix>retry. unless given."""
    partitions: int
    """Partitions of topics that are made; default 8."""
    replication_factor: int
    """Replicas of topics that are made; -1 is the cluster's default; default -1."""
    retention_ms: int
    """How long the log of artifacts keeps them; -1 is for ever. The newest version of each is kept anyway; default -1."""
    marks_retention_ms: int
    """How long it is known which agent is done with what, and who consumed what; -1 is for ever. An artifact that is handed out again after that is worked on again; default 2592000000."""
    create_topics: bool
    """Whether topics that are not there are made; default True."""
    acks: Literal["all", "1", "0"]
    """Whose word makes a publish done; default 'all'."""
    enable_idempotence: bool
    """Whether a resend is written once; default True."""
    linger_ms: int
    """How long a publish waits for company; default 1."""
    batch_size: int
    """The most bytes of a batch; default 1000000."""
    transactions: bool
    """Publish, processed mark and offset are one transaction; default False; from KAFKA_TX_ENABLE if not given."""
    transactional_id: str | None
    """This node's name for its transactions: a new program of that name ends the old one's at once; <prefix>-orch-<host>-<random> unless given, whose transactions end after transaction.timeout.ms; from KAFKA_TX_ID if not given."""
    transaction_timeout_ms: int
    """After which the broker ends a transaction whose program has died; default 15000."""
    isolation_level: Literal["read_committed", "read_uncommitted"]
    """Whether records of open and aborted transactions are left out; default 'read_committed'."""
    index_window: int
    """How many artifacts list() and list_by_type() give, the newest; default 10000; from FLOCK_INDEX_WINDOW if not given."""
    index_path: str | None
    """The file of the local index, kept and gone on with; a temporary one unless given."""
    consistency: Literal["own", "latest", "local"]
    """What a read waits for: all that this store has written, all that is written now, or nothing; default 'own'."""
    read_timeout_ms: int
    """How long a read waits for that; default 30000."""
    lag_group: str | None
    """Publishers wait while this consumer group is too far behind; nobody waits unless given."""
    lag_high: int
    """With lag.group: the lag from which on publishers wait; default 10000."""
    lag_low: int
    """With lag.group: the lag at which they go on; default 5000."""
    connect_timeout_ms: int
    """How long a start keeps trying to reach the brokers; default 60000."""
    kafka: Mapping[str, str | int | float | bool] | None
    """Settings of the client library (librdkafka) itself, such as {'client.id': 'me'}."""
