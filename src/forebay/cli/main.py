"""`forebay`: the command, its subcommands, and how errors become exit codes."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from forebay import __version__
from forebay.cli.board import board_app
from forebay.cli.dev import dev_app
from forebay.cli.dlq import dlq_app
from forebay.cli.inspect import lag, show, tail
from forebay.cli.output import words
from forebay.cli.pool import pool_app
from forebay.cli.run import run
from forebay.cli.schema import schema_app
from forebay.cli.shell import sql
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
app.add_typer(dev_app, name="dev")
app.add_typer(schema_app, name="schema")
app.add_typer(dlq_app, name="dlq")
app.add_typer(pool_app, name="pool")
app.add_typer(board_app, name="board")
app.command()(run)
app.command()(sql)
app.command()(show)
app.command()(lag)
app.command()(tail)


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
        app()
    except ForebayError as error:
        words.print("[bold red]error[/] ", end="")
        words.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
