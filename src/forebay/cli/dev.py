"""`forebay dev`: a local Kafka broker and schema registry in one command."""

from __future__ import annotations

import json
import time
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import javaproperties
import typer
from rich.console import Console
from rich.table import Table

from forebay.devstack import daemon
from forebay.devstack.guard import Security
from forebay.errors import StackNotRunningError

dev_app = typer.Typer(
    name="dev",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="A real Kafka broker and schema registry on this machine: no Docker, only Java 17 or newer.",
)
_words = Console(stderr=True)

# The exit code of `status` when nothing runs, the same as for a server that cannot be reached.
_NOT_RUNNING = 3


class AddressFormat(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"


class ServiceName(StrEnum):
    """Which server's log."""

    BROKER = "broker"
    REGISTRY = "registry"


OutputOption = Annotated[AddressFormat, typer.Option("-o", "--output", help="How to print the addresses.")]


@dev_app.command()
def up(
    registry: Annotated[
        bool,
        typer.Option("--registry/--no-registry", help="Start a schema registry too (109 MB download, once)."),
    ] = True,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="The broker's port (9092, or a free one if that is taken).",
            show_default=False,
        ),
    ] = None,
    registry_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="The registry's port (8081, or a free one if that is taken).",
            show_default=False,
        ),
    ] = None,
    security: Annotated[
        Security | None,
        typer.Option(
            help="ask who is there. sasl-ssl: TLS and a password; mtls: TLS and a certificate; acl: as sasl-ssl, and a user may "
            "do only what is allowed. Everybody is let in unless given.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = AddressFormat.TABLE,
) -> None:
    """Start the broker and the registry in the background, and print their addresses.

    Safe to repeat: what runs already is left alone. Topics and schemas are kept until
    [bold]forebay dev down --wipe[/bold].

    [dim]Examples:[/dim]

      forebay dev up

      forebay dev up --no-registry --port 19092

      forebay dev up --security sasl-ssl

      export KAFKA_BOOTSTRAP_SERVERS=$(forebay dev up -o json | jq -r .bootstrap_servers)
    """
    daemon.fetch(registry)
    with _words.status("Starting the stack…"):
        now, started = daemon.up(registry=registry, port=port, registry_port=registry_port, security=security)
    _words.print(f"Started: {', '.join(started)}" if started else "Already up", highlight=False)
    _say_how_to_get_in(now)
    _print(now, output)


@dev_app.command()
def status(output: OutputOption = AddressFormat.TABLE) -> None:
    """Print what runs, and where. The exit code is 3 when the broker does not run.

    [dim]Example:[/dim]  forebay dev status -o json
    """
    now = daemon.status()
    _say_how_to_get_in(now)
    _print(now, output)
    if now.broker is None:
        _words.print("The stack is not running; start it with: forebay dev up", highlight=False)
        raise typer.Exit(_NOT_RUNNING)


@dev_app.command(context_settings={"ignore_unknown_options": True})
def acls(
    words: Annotated[
        list[str], typer.Argument(help="as kafka-acls takes them: --add, --remove or --list, and what")
    ],
) -> None:
    """Allow users of the stack something, or no longer: the words of Kafka's own [bold]kafka-acls[/bold].

    For a stack that was started with [bold]--security acl[/bold]. Its user is User:forebay.

    [dim]Examples:[/dim]

      forebay dev acls --add --allow-principal User:forebay --operation Read --topic orders

      forebay dev acls --list
    """
    from forebay.devstack.grants import Grants

    now = daemon.status()
    if now.security != Security.ACL:
        raise StackNotRunningError(
            "no stack with ACLs is running", remedy="start one with: forebay dev up --security acl"
        )
    assert now.bootstrap_servers is not None
    assert now.admin_config is not None
    settings = javaproperties.loads(Path(now.admin_config).read_text(encoding="utf-8"))
    for line in Grants(now.bootstrap_servers, settings).run(words):
        typer.echo(line)


@dev_app.command()
def logs(
    service: Annotated[ServiceName, typer.Argument(help="Whose log.")] = ServiceName.BROKER,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as the log grows; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Print the end of a server's log; it is kept after [bold]forebay dev down[/bold].

    [dim]Examples:[/dim]

      forebay dev logs

      forebay dev logs registry -n 200 -f
    """
    path = daemon.log_path(service.value)
    if not path.exists():
        raise StackNotRunningError(f"there is no log of a {service.value} yet: {path}")
    try:
        _print_log(path, lines, follow)
    except KeyboardInterrupt:
        return


@dev_app.command()
def down(
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Remove all topics, schemas and logs as well.")
    ] = False,
) -> None:
    """Stop what [bold]forebay dev up[/bold] started, and nothing else. Data is kept.

    [dim]Examples:[/dim]

      forebay dev down

      forebay dev down --wipe
    """
    with _words.status("Stopping the stack…"):
        stopped = daemon.down(wipe=wipe)
    _words.print(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running", highlight=False)
    if wipe:
        _words.print("Data removed")


def _say_how_to_get_in(now: daemon.Status) -> None:
    """Where the secrets are, and not what they are."""
    if not now.security:
        return
    lines = [
        f"The broker asks who is there ({now.security}). forebay topic, produce, consume and doctor know how to get in.",
        f"  a shell, SQL with '${{NAME}}':   . {now.client_environment}",
        f"  --kafka-config of a command:   {now.client_config}",
        f"  the same of an administrator:  {now.admin_config}",
    ]
    if now.security == Security.ACL:
        lines.append(
            "  User:forebay may do nothing yet: forebay dev acls --add --allow-principal User:forebay --operation All --topic '*'"
        )
    for line in lines:
        _words.print(line, markup=False, highlight=False, soft_wrap=True)


def _print(now: daemon.Status, output: AddressFormat) -> None:
    services = {"broker": now.broker, "registry": now.registry}
    if output is AddressFormat.JSON:
        body: dict[str, object] = {
            "bootstrap_servers": now.bootstrap_servers,
            "schema_registry_url": now.schema_registry_url,
        }
        if now.security:
            body |= {
                "security": now.security,
                "client_config": now.client_config,
                "client_environment": now.client_environment,
                "admin_config": now.admin_config,
            }
        for name, service in services.items():
            described = service and {key: getattr(service, key) for key in ("pid", "port", "log", "data")}
            body[name] = described
        typer.echo(json.dumps(body, indent=2))
        return
    table = Table("service", "address", "pid", "log", box=None, pad_edge=False)
    addresses = {"broker": now.bootstrap_servers, "registry": now.schema_registry_url}
    for name, service in services.items():
        row = (addresses[name], str(service.pid), service.log) if service else ("not running", "", "")
        table.add_row(name, *row)
    # Wider than any terminal: an address cut in half is of no use to whoever copies it.
    Console(width=1000).print(table, highlight=False)


def _print_log(path: Path, lines: int, follow: bool) -> None:
    with path.open(encoding="utf-8", errors="replace") as handle:
        for line in deque(handle, maxlen=lines):
            typer.echo(line, nl=False)
        while follow:
            line = handle.readline()
            if line:
                typer.echo(line, nl=False)
            else:
                time.sleep(0.2)


if __name__ == "__main__":
    dev_app()
