"""`forebay board`: a blackboard looked at, and artifacts handed to an agent once more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from forebay.blackboard import (
    Artifact,
    BoardReplay,
    FilterConfig,
    KafkaBlackboardStore,
    LagMonitor,
    replay,
)
from forebay.cli.brokers import BrokersOption, client_settings
from forebay.cli.brokers import brokers as usual_brokers
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_items, show_rows, words
from forebay.errors import UnknownObjectError
from forebay.patience import PATIENCE_S

board_app = typer.Typer(
    name="board",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Artifacts on a Kafka blackboard.\n\n"
    "Where it is comes from the environment (KAFKA_BOOTSTRAP_SERVERS, KAFKA_SASL_*, KAFKA_SSL_*) or from options.\n\n"
    "  forebay board ls --type Order --correlation-id c-1\n\n"
    "  forebay board replay pricing --since 2026-01-15T10:00 --dry-run",
)

Brokers = BrokersOption
Prefix = Annotated[str, typer.Option("--prefix", help="what the names of the blackboard's topics begin with")]
Types = Annotated[list[str] | None, typer.Option("--type", help="of this type; may be given several times")]
Correlation = Annotated[str | None, typer.Option("--correlation-id", help="of this correlation")]
Since = Annotated[datetime | None, typer.Option(help="at or after this time, UTC")]
Until = Annotated[datetime | None, typer.Option(help="up to this time, UTC")]
Out = Annotated[OutputFormat, OUTPUT_OPTION]
WIDTH = 60  # of a payload in a table
PATIENCE_MS = int(PATIENCE_S * 1000)


@dataclass(frozen=True)
class _Line:
    """An artifact in a table."""

    id: str
    type: str
    produced_by: str
    correlation_id: str | None
    created_at: datetime
    payload: str

    @classmethod
    def of(cls, artifact: Artifact) -> _Line:
        payload = json.dumps(artifact.payload)
        short = payload if len(payload) <= WIDTH else payload[: WIDTH - 1] + "…"
        return cls(
            str(artifact.id),
            artifact.type,
            artifact.produced_by,
            artifact.correlation_id,
            artifact.created_at,
            short,
        )


@dataclass(frozen=True)
class _Lag:
    partition: int
    lag: int


@board_app.command()
def ls(
    type: Types = None,
    produced_by: Annotated[str | None, typer.Option(help="of this agent")] = None,
    correlation_id: Correlation = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="so many; 0 is all")] = 50,
    brokers: Brokers = None,
    prefix: Prefix = "flock.",
    output: Out = OutputFormat.TABLE,
) -> None:
    """List artifacts in the order of their creation."""
    filters = FilterConfig(
        set(type or ()), {produced_by} if produced_by else None, correlation_id, start=since, end=until
    )

    async def work(store: KafkaBlackboardStore) -> None:
        found, total = await store.query_artifacts(filters, limit=limit)
        if output is OutputFormat.TABLE:
            show_items(_Line, [_Line.of(each) for each in found], output)
        else:
            show_rows([store._codec.document(each) for each in found], output)
        if total > len(found):
            words.print(f"{len(found):,} of {total:,}; --limit 0 shows all", highlight=False)

    _with(brokers, prefix, work)


@board_app.command()
def show(
    id: Annotated[UUID, typer.Argument(help="an artifact's id")],
    brokers: Brokers = None,
    prefix: Prefix = "flock.",
) -> None:
    """The newest version of one artifact, as JSON."""

    async def work(store: KafkaBlackboardStore) -> None:
        found = await store.get(id)
        if found is None:
            raise UnknownObjectError(f"there is no artifact {id}", remedy="forebay board ls lists them")
        show_rows([store._codec.document(found)], OutputFormat.JSONL)

    _with(brokers, prefix, work)


@board_app.command(name="replay")
def replay_command(
    agent: Annotated[str, typer.Argument(help="the agent that is to run once more")],
    type: Types = None,
    correlation_id: Correlation = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="say how many, and do nothing")] = False,
    brokers: Brokers = None,
    prefix: Prefix = "flock.",
    output: Out = OutputFormat.TABLE,
) -> None:
    """Hand artifacts of the log to an agent once more, though it is done with them. Times are when they were published."""

    async def work(store: KafkaBlackboardStore) -> None:
        done = await replay(
            store,
            agent,
            since=_utc(since),
            until=_utc(until),
            correlation_id=correlation_id,
            types=type or (),
            dry_run=dry_run,
        )
        show_items(BoardReplay, [done], output)

    _with(brokers, prefix, work)


@board_app.command()
def lag(
    group: Annotated[
        str | None, typer.Argument(help="the agents' consumer group; of these topics' prefix if not given")
    ] = None,
    brokers: Brokers = None,
    prefix: Prefix = "flock.",
    output: Out = OutputFormat.TABLE,
) -> None:
    """How many artifacts the agents are behind, partition by partition."""
    store = _store(brokers, prefix)
    monitor = LagMonitor(store.options, store.topics.artifacts, group or f"{prefix}orchestrator")
    try:
        found = [_Lag(partition, lag) for partition, lag in sorted(monitor.lag().items())]
    finally:
        monitor.close()
    show_items(_Lag, found, output)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None else None


def _store(brokers: str | None, prefix: str) -> KafkaBlackboardStore:
    servers = usual_brokers(brokers)
    settings: dict[str, Any] = {"topic_prefix": prefix, "create_topics": False}
    settings |= {"connect_timeout_ms": PATIENCE_MS, **client_settings(servers)}
    return KafkaBlackboardStore(servers, **settings)


def _with(brokers: str | None, prefix: str, work: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        async with _store(brokers, prefix) as store:
            await work(store)

    asyncio.run(run())
