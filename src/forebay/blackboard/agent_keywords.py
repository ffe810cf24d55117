"""The keyword arguments of `forebay.blackboard.Orchestrator`, with their types. Made from the option table by `make docs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class AgentKeywords(TypedDict, total=False):
    """What `forebay.blackboard.Orchestrator` can be given by keyword. docs/options.md has the same as a table."""

    name: str | None
    """What the pool is called in logs, metrics and dead letters; the group's unless given."""
    batch_size: int | None
    """Hand over lists of up to so many records."""
    processes: int | None
    """Run a plain function in so many processes."""
    adaptive: bool
    """Find out how many workers are worthwhile, up to 'workers': more as long as handlers do not get slower; default False."""
    heavy_lag: int | None
    """A partition that is further behind than this has at most 'heavy.workers' workers, so that others are not kept waiting; until it is at half of that, and as long as there are others that are not. Without it none is bounded."""
    heavy_workers: int
    """The most handlers at work at a time on a heavy partition; default 10."""
    queue_size: int
    """How many records wait for a worker before no more are fetched; default 5000."""
    max_uncommitted: int
    """How many records of a partition may be read beyond one that is not done, before it is paused; and how many may be done without being committed, which a crash would repeat, before no more are fetched; default 20000."""
    commit_interval_ms: int
    """How often offsets are committed; default 5000."""
    commit_batch: int
    """And after how many records at the latest; default 10000."""
    metadata_max_bytes: int
    """How much of what is done beyond a commit's offset is kept with it; the broker's offset.metadata.max.bytes; default 4096."""
    on_error: Literal["halt", "dead_letter", "skip"] | None
    """What becomes of a record whose last attempt has failed. halt: it stays unfinished, and the pool ends after 'max.errors' of them; dead_letter where 'dead.letter.topic' is given."""
    retry_backoff_ms: int
    """How long the second attempt waits; each further one twice as long; default 100."""
    retry_backoff_max_ms: int
    """The longest wait between two attempts; default 30000."""
    dead_letter_topic: str | None
    """The topic that takes dead letters; made if it is not there."""
    handler_timeout_ms: int | None
    """A handler that takes longer has failed."""
    stuck_after_ms: int
    """A handler that takes longer is named in the log; default 60000."""
    drain_timeout_ms: int
    """How long handlers may go on when their partition goes to another member; default 5000."""
    shutdown_timeout_ms: int
    """How long handlers may go on when the pool is stopped; default 30000."""
    metrics_port: int | None
    """Serve Prometheus metrics on this port; 0: one that is free."""
    metrics_host: str
    """The address that metrics are served on: this machine alone, unless another is given; 0.0.0.0 is every one it has; default '127.0.0.1'."""
    format: Literal["raw", "json", "avro", "protobuf", "debezium-json", "csv"]
    """How a value is decoded; raw: it stays bytes; default 'raw'."""
    columns: str | None
    """The columns of a value, as in CREATE SOURCE."""
    fetch_wait_max_ms: int
    """How long a fetch waits for fetch.min.bytes; default 500."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start a partition for which the group has no offset; none: that is an error; default 'earliest'."""
    partition_assignment_strategy: Literal["range", "roundrobin", "cooperative-sticky"]
    """How the group divides the partitions between its members; the same in each of them; default 'cooperative-sticky'."""
    connect_timeout_ms: int
    """How long a start keeps trying to reach the brokers; default 60000."""
    session_timeout_ms: int
    """The group's session timeout; default 45000."""
    heartbeat_interval_ms: int
    """The group's heartbeat interval; default 3000."""
    max_poll_interval_ms: int
    """The longest time between two polls; default 300000."""
    fetch_min_bytes: int
    """The fewest bytes a fetch waits for; default 1."""
    fetch_max_bytes: int
    """The most bytes in a fetch; default 52428800."""
    max_partition_fetch_bytes: int
    """The most bytes of a partition in a fetch; default 8388608."""
    schema_registry_url: str | None
    """The schema registry's address: payloads of avro, protobuf and json then begin with a schema id."""
    schema_registry_username: str | None
    """The registry's user."""
    schema_registry_password: str | None
    """The registry's password."""
    schema_registry_bearer_token: str | None
    """The registry's token."""
    schema_registry_ssl_ca_location: str | None
    """The CA that signed the registry's certificate."""
    schema_registry_ssl_certificate_location: str | None
    """The client's certificate."""
    schema_registry_ssl_key_location: str | None
    """The client's key."""
    schema_registry_ssl_key_password: str | None
    """The key's password."""
    schema_registry_subject_name_strategy: Literal["topic", "record", "topic-record"]
    """How the subject is named whose newest schema the records are resolved to; default 'topic'."""
    schema_registry_record_name: str | None
    """The record's full name, for the record strategies."""
    schema_evolution: Literal["ignore", "reject", "evolve"]
    """With a registry, what becomes of records whose schema is not the one that the source was created with. ignore: what they have beyond the columns is left out. reject: the source stops. evolve: new fields become columns, and what does not fit the columns stops the source; default 'ignore'."""
    schema_evolution_from: str | Sequence[int] | None
    """The ids of the schemas that the columns are from, filled in when the source is created."""
    avro_schema: str | None
    """With format = avro: the schema that the records were written with, as JSON; with a registry, the schema that they are resolved to."""
    avro_schema_file: str | None
    """A file that holds what avro.schema would, read where the session runs."""
    protobuf_schema: str | None
    """With format = protobuf: the messages' schema, as a .proto file has it."""
    protobuf_schema_file: str | None
    """A .proto file with it, on the machine where the statement runs; read whenever the source is opened."""
    protobuf_schema_folder: str | None
    """Where its imports are looked up, beside the well-known types; the file's own folder unless given."""
    protobuf_descriptor: str | None
    """The schema as a descriptor set in base64, made by protoc --include_imports --descriptor_set_out."""
    protobuf_descriptor_file: str | None
    """A file with a descriptor set."""
    protobuf_message: str | None
    """The message that records are, by its name; needed where the schema has several."""
    csv_delimiter: str
    """What separates the fields; default ','."""
    csv_quote: str
    """What encloses a field; empty: nothing does; default '"'."""
    csv_escape: str | None
    """What makes the next character literal."""
    csv_null: str
    """The text that means NULL; default ''."""
    csv_header: bool
    """Skip records that are the line of the columns' names; default False."""
    csv_comment: str | None
    """Skip records that begin with this character."""
    kafka: Mapping[str, str | int | float | bool] | None
    """Settings of the client library (librdkafka) itself, such as {'client.id': 'me'}."""
