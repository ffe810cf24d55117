"""`forebay`: the command, its subcommands, and how errors become exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from forebay import __version__
from forebay.errors import ForebayError

app = typer.Typer(
    name="forebay",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Kafka in front of Spark, in SQL: nothing lost, nothing silently dropped.\n\n"
    "Try:  [bold]forebay dev up[/]  ·  [bold]forebay run pipeline.sql --until-caught-up[/]  ·  [bold]forebay sql[/]",
    epilog="Exit codes: 0 done, 1 the pipeline failed, 2 wrong use or wrong SQL, 3 cannot reach something, 4 timed out.",
)
COMMANDS = {
    "dev": "dev.dev_app",
    "schema": "schema.schema_app",
    "dlq": "dlq.dlq_app",
    "pool": "pool.pool_app",
    "board": "board.board_app",
    "run": "run.run",
    "sql": "shell.sql",
    "show": "inspect.show",
    "lag": "inspect.lag",
    "tail": "inspect.tail",
}
"""In the order of `--help`; each with its module and its name there."""


def add_commands(arguments: Sequence[str]) -> None:
    """The one that is asked for, or all: what the others import would cost each command half a second."""
    asked = next((word for word in arguments if not word.startswith("-")), "")
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(import_module(f"forebay.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


def _version(asked: bool) -> None:
    if asked:
        print(f"forebay {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and end")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="say more about what happens")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="forebay: %(message)s", stream=sys.stderr
    )
    logging.getLogger("py4j").setLevel(logging.ERROR)


def main() -> None:
    """The entry point. An error of ours is shown as a message, never as a traceback."""
    try:
        add_commands(sys.argv[1:])
        app()
    except ForebayError as error:
        from forebay.cli.output import words

        words.print("[bold red]error[/] ", end="")
        words.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
