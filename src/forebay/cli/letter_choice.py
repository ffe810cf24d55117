"""Which letters a `forebay dlq` command is about: whose, where, and those of them that were asked for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli import profile
from forebay.cli.completion import complete_source
from forebay.cli.inspect import DEFAULT_HOME
from forebay.errors import MissingOptionError, OptionConflictError, UnsupportedSqlError

if TYPE_CHECKING:
    from forebay.deadletter.letters import DeadLetters
    from forebay.runtime.home import Home

SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        "-s",
        help="who wrote them: a source, a pool, an agent; all if not given",
        autocompletion=complete_source,
    ),
]
OneSource = Annotated[
    str | None,
    typer.Option(
        "--source",
        "-s",
        help="who wrote them: a source, a pool, an agent; needed if there are several",
        autocompletion=complete_source,
    ),
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        help="the letters of this topic: a pool's, an agent's, or a source's from before it wrote to another",
    ),
]
LetterBrokersOption = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        "-b",
        help="with --topic: where it is, host:port, …; KAFKA_BOOTSTRAP_SERVERS unless given",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", help="a pool's TOML file: its name, dead-letter topic, brokers and security"),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        help="a condition in SQL on source, topic, partition, offset, timestamp, failed_at, error_kind, error_message, "
        "field, state, key, value, size, …",
    ),
]
KindOption = Annotated[
    str | None, typer.Option("--kind", "-k", help="short for --where \"error_kind = '…'\"")
]
IdOption = Annotated[
    list[str] | None, typer.Option("--id", help="this letter, as ls shows it; may be given several times")
]


@dataclass(frozen=True)
class Whose:
    """Who wrote them, and where they are; `options` are how that is reached, where no source tells."""

    source: str | None
    topic: str | None
    options: dict[str, str] = field(default_factory=dict, repr=False)  # may hold a password
    flags: str = ""

    @classmethod
    def of(
        cls,
        home: Path,
        source: str | None,
        topic: str | None = None,
        brokers: str | None = None,
        config: str | None = None,
    ) -> Whose:
        flags = given_flags(home, source=source, topic=topic, brokers=brokers, config=config)
        if config is not None:
            return replace(_of_pool(source, topic, brokers, config), flags=flags)
        if brokers is not None and topic is None:
            raise MissingOptionError("--brokers needs --topic: which one has the letters?", option="topic")
        return cls(source, topic, {"bootstrap.servers": brokers} if brokers is not None else {}, flags)

    def all(self, home: Home) -> Iterator[DeadLetters]:
        """Of one, of all who have letters in a topic, or of all sources that write some."""
        for found in self._all(home):
            yield found.named_by(self.flags)

    def _all(self, home: Home) -> Iterator[DeadLetters]:
        if self.source is not None:
            yield home.dead_letters(self.source, topic=self.topic, options=self.options)
        elif self.topic is not None:
            yield from home.dead_letters_in(self.topic, options=self.options)
        else:
            for found in home.sources():
                try:
                    yield home.dead_letters(found.name)
                except UnsupportedSqlError:
                    continue  # its policy writes none

    def one(self, home: Home) -> DeadLetters:
        having = list(self.all(home))
        if len(having) == 1:
            return having[0]
        where = f"in topic '{self.topic}'" if self.topic else "among the sources of this home"
        listed = ", ".join(letters.source for letters in having) or "nobody"
        raise MissingOptionError(
            "whose letters?", option="source", remedy=f"--source; {where}, these write dead letters: {listed}"
        )


def _of_pool(source: str | None, topic: str | None, brokers: str | None, config: str) -> Whose:
    from forebay.pool.options import bind

    pool = bind({"bootstrap.servers": brokers}, config)
    topic = topic or pool["dead.letter.topic"]
    if topic is None:
        raise MissingOptionError(
            f"the pool of {config} has no 'dead.letter.topic'", option="topic", remedy="name it: --topic"
        )
    options = {name: text for name, text in pool.given.items() if name.startswith("kafka.")}
    options["bootstrap.servers"] = pool["bootstrap.servers"]
    return Whose(source or pool["name"] or pool["group.id"], topic, options)


def given_flags(
    home: Path, *, source: str | None, topic: str | None, brokers: str | None, config: str | None
) -> str:
    """Whose letters they are and where, as this command was given it: what a remedy has to repeat."""
    given = {"--source": source, "--topic": topic, "--brokers": brokers, "--config": config}
    given["--profile"] = profile.given()
    if home != DEFAULT_HOME and str(home) != os.environ.get("FOREBAY_HOME"):
        given["--home"] = str(home)
    return " ".join(f"{flag} {shlex.quote(value)}" for flag, value in given.items() if value is not None)


def narrowed(
    letters: DeadLetters, where: str | None, kind: str | None, ids: list[str] | None = None
) -> DeadLetters:
    """Those that a command selects."""
    if where is not None:
        letters = letters.where(where)
    if kind is not None:
        letters = letters.where(f"error_kind = {_quoted(kind)}")
    if ids:
        if where is not None or kind is not None:
            raise OptionConflictError("--id names letters, --where and --kind select them: choose one")
        letters = letters.only(ids)
    return letters


def must_select(where: str | None, kind: str | None, ids: list[str] | None, all_: bool) -> None:
    if not (where or kind or ids or all_):
        raise MissingOptionError("which letters?", remedy="--where, --kind, --id, or --all")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
