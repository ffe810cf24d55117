"""`forebay`: the command, its subcommands, and how errors become exit codes.

A subcommand's module is imported when it is invoked; its line in `--help` and in completion is known without it. The
modules of `cli/` import what they work with inside their functions, so that help and completion stay quick.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from forebay import __version__
from forebay.cli.live import StderrHandler
from forebay.cli.profile import add_profile


class Command(NamedTuple):
    """Where a subcommand is, below `forebay.cli`, and the first paragraph of its help."""

    place: str
    help: str
    project: bool = True  # whether it takes brokers, registry and home from forebay.toml
    waits: bool = (
        False  # whether it keeps trying to reach brokers: else a person gets an answer within seconds
    )


COMMANDS = {
    "init": Command(
        "init.init", "Make a project: a pipeline, its settings, a test of it and a README.", project=False
    ),
    "run": Command(
        "run.run",
        "Run a pipeline. It goes on where it stood; SIGTERM or Ctrl-C finishes the batch in flight and commits.",
        waits=True,
    ),
    "sql": Command("sql.sql", "A SQL shell; the queries of views created in it run as long as it does."),
    "show": Command("inspect.show", "List sources, views, sinks or queries."),
    "lag": Command(
        "inspect.lag",
        "How far each source's consumer group is behind, partition by partition, as the brokers see it.",
    ),
    "tail": Command("inspect.tail", "Follow a view: every change as a line of JSON, until Ctrl-C."),
    "recover": Command(
        "recover.recover", "Go on with views whose checkpoint is lost, where their tables stand."
    ),
    "pack": Command(
        "pack.pack",
        "Pack this environment for the workers of a Spark cluster: Forebay, its native part, the libraries that tasks use.",
        project=False,
    ),
    "topic": Command("topic.topic_app", "Make, list, describe and delete topics."),
    "produce": Command(
        "produce.produce", "Write records to a topic: each line of a file or of stdin is a value."
    ),
    "consume": Command(
        "consume.consume",
        "Print the records of a topic, up to its end or as they come. No consumer group is used or moved.",
    ),
    "dev": Command(
        "dev.dev_app",
        "A real Kafka broker and schema registry on this machine: no Docker, only Java 17 or newer.",
        project=False,
    ),
    "schema": Command(
        "schema.schema_app",
        "Look into a schema registry: subjects, versions, what changed, what would be taken.",
    ),
    "dlq": Command(
        "dlq.dlq_app", "Records that did not decode or were not handled, from the letter to the repair."
    ),
    "pool": Command("pool.pool_app", "Handle records with a Python function, many at a time.", waits=True),
    "board": Command("board.board_app", "Artifacts on a Kafka blackboard."),
    "ui": Command(
        "ui.ui",
        "Serve the dashboard of a home: sources, views, dead letters, topics, SQL. Ctrl-C ends it.",
        waits=True,
    ),
    "monitoring": Command(
        "monitoring.monitoring",
        "Write alert rules for Prometheus and a dashboard for Grafana into a folder (docs/monitoring.md).",
        project=False,
    ),
    "doctor": Command(
        "doctor.doctor",
        "Look whether all that Forebay needs is there: a line each, with what to do about it.",
        project=False,  # it says what is wrong with forebay.toml, instead of ending with it
    ),
}
"""In the order of `--help`."""


def load(name: str) -> Any:
    """Import a subcommand. It is made in a group, as typer would: alone it would lose its name and its markup."""
    module, _, attribute = COMMANDS[name].place.partition(".")
    found = getattr(import_module(f"forebay.cli.{module}"), attribute)
    group = typer.Typer(rich_markup_mode="rich", add_completion=False)
    group.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    made: Any = typer.main.get_command(group)
    if COMMANDS[name].project:
        add_profile(made.commands[name])
    return made.commands[name]


class LazyGroup(TyperGroup):
    """Lists all subcommands, and imports the one that is invoked or completed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=each.help) for name, each in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


app = typer.Typer(
    name="forebay",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Kafka in front of Spark, in SQL: nothing lost, nothing silently dropped.\n\n"
    "Try:  [bold]forebay dev up[/]  ·  [bold]forebay run pipeline.sql --until-caught-up[/]  ·  [bold]forebay sql[/]",
    epilog="Exit codes: 0 done, 1 the pipeline failed, 2 wrong use or wrong SQL, 3 cannot reach something, 4 timed out.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"forebay {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and end")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="say more about what happens")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="forebay: %(message)s",
        handlers=[StderrHandler()],
    )
    logging.getLogger("py4j").setLevel(logging.ERROR)
    if context.invoked_subcommand is not None and not COMMANDS[context.invoked_subcommand].waits:
        from forebay.cli.phases import Shown
        from forebay.patience import Person, waited_for_by

        context.with_resource(waited_for_by(Person(Shown())))


def main() -> None:
    """The entry point. An error is shown as a message; `-v` shows the traceback, too."""
    if {"--install-completion", "--show-completion"} & set(sys.argv):
        from forebay.cli.completion import complete_at_the_first_tab

        complete_at_the_first_tab()
    try:
        app(prog_name="forebay")  # also as `python -m forebay`
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        from forebay.cli.output import say_error

        sys.exit(say_error(error))


if __name__ == "__main__":
    main()
