"""`forebay topic`: topics made, listed, described and deleted."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.brokers import BrokersOption, KafkaConfigOption, SetOption, options, patiently
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_items, show_rows, words
from forebay.errors import MissingOptionError, ObjectExistsError

if TYPE_CHECKING:
    from forebay.kafka.topics import ClusterTopics

topic_app = typer.Typer(
    name="topic",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make, list, describe and delete topics.\n\n"
    "Brokers: [bold]--brokers[/], else KAFKA_BOOTSTRAP_SERVERS, else the stack of [bold]forebay dev up[/], else "
    "localhost:9092.\n\n"
    "A topic from nothing:\n\n"
    "  forebay topic create clicks --partitions 4\n\n"
    '  echo \'{"user_id": 1, "url": "/"}\' | forebay produce clicks\n\n'
    "  forebay consume clicks",
)
Name = Annotated[str, typer.Argument(help="the topic's name")]


@topic_app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="how many partitions")] = 1,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="how many copies; the broker's default if not given", show_default=False),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", help="a setting of the topic, name=value; may be repeated"),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="a topic that is there stays as it is; no error")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="let the broker check it, and make nothing")
    ] = False,
    brokers: BrokersOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Make a topic, and return when it can be written to.

    Examples: forebay topic create clicks · forebay topic create orders -p 4 -c retention.ms=-1 -c cleanup.policy=compact
    """
    from forebay.kafka.topics import settings_of

    settings = settings_of(config or (), "--config")
    with _topics(brokers, set_, kafka_config) as topics:
        try:
            patiently(lambda: topics.create(name, partitions, replicas, settings, dry_run=dry_run))
        except ObjectExistsError:
            if not if_not_exists:
                raise
            words.print(f"topic {name} exists already", markup=False, highlight=False)
            return
    count = f"{partitions} partition{'' if partitions == 1 else 's'}"
    done = "would be created" if dry_run else "created"
    words.print(f"topic {name} {done}, {count}", markup=False, highlight=False)


@topic_app.command()
def ls(
    match: Annotated[str, typer.Argument(help="only topics that contain this text")] = "",
    all_: Annotated[bool, typer.Option("--all", "-a", help="the cluster's own topics, too")] = False,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    brokers: BrokersOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """List topics, with how many records they hold at most (gaps in a log count).

    Examples: forebay topic ls · forebay topic ls orders -o json
    """
    from forebay.kafka.topics import TopicSummary

    with _topics(brokers, set_, kafka_config) as topics:
        found = [each for each in patiently(lambda: topics.summaries(internal=all_)) if match in each.topic]
    show_items(TopicSummary, found, output)
    if not found and output is OutputFormat.TABLE:
        words.print("no topics yet: forebay topic create NAME makes one", markup=False, highlight=False)


@topic_app.command()
def describe(
    name: Name,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    brokers: BrokersOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Show a topic's partitions, and those of its settings that are not the broker's defaults.

    Examples: forebay topic describe clicks · forebay topic describe clicks -o json
    """
    from forebay.kafka.topics import PartitionDetail

    with _topics(brokers, set_, kafka_config) as topics:
        found = patiently(lambda: topics.detail(name))
    if output is not OutputFormat.TABLE:
        show_rows([dataclasses.asdict(found)], output)
        return
    show_items(PartitionDetail, [_readable(each) for each in found.partitions], output)
    print(f"id: {found.id}")
    for key, value in found.config.items():
        print(f"{key} = {value}")


@topic_app.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="the topics' names")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="say what would be deleted, and do nothing")
    ] = False,
    brokers: BrokersOption = None,
    set_: SetOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Delete topics with all that they hold. Asks first.

    Examples: forebay topic delete clicks · forebay topic delete clicks orders --yes
    """
    with _topics(brokers, set_, kafka_config) as topics:
        patiently(lambda: topics.describe(names))
        held = {each.topic: each.records for each in patiently(topics.summaries)}
        what = ", ".join(f"{name} ({held.get(name, 0):,} records)" for name in names)
        if dry_run:
            words.print(f"would be deleted: {what}", markup=False, highlight=False)
            return
        if not yes and not _confirmed(f"Delete {what}?"):
            raise typer.Exit(1)
        patiently(lambda: topics.delete(names))
    words.print(f"deleted: {', '.join(names)}", markup=False, highlight=False)


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise MissingOptionError(
            "nobody is there to be asked", option="yes", remedy="--yes deletes without asking"
        )
    return typer.confirm(question, err=True)


def _readable(each: object) -> object:
    """Lists of brokers as text."""
    texts = {
        field: ", ".join(map(str, value)) or "none"
        for field, value in vars(each).items()
        if isinstance(value, tuple)
    }
    return dataclasses.replace(each, **texts)  # type: ignore[type-var]


@contextmanager
def _topics(
    brokers: str | None, pairs: list[str] | None, kafka_config: Path | None
) -> Iterator[ClusterTopics]:
    from forebay.kafka.topics import ClusterTopics

    topics = ClusterTopics(options(brokers, pairs=pairs, kafka_config=kafka_config))
    try:
        yield topics
    finally:
        topics.close()
