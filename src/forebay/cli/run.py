"""`forebay run FILE.sql`: a pipeline in the foreground, with a live line, until it is told to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from forebay import threads
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import Output, show, words
from forebay.cli.phases import Phases
from forebay.errors import StatementError

if TYPE_CHECKING:
    from forebay.runtime.session import Session
    from forebay.runtime.status import QueryStatus
    from forebay.sql import Statement

REFRESH_S = 0.5
PLAIN_EVERY_S = 5.0  # without a terminal, a line now and then is enough for a log

MasterOption = Annotated[
    str,
    typer.Option(
        "--master", envvar="FOREBAY_MASTER", help="Spark master: local[*], spark://host:7077, yarn, …"
    ),
]


def run(
    file: Annotated[
        Path, typer.Argument(help="statements; ${NAME} and ${NAME:-default} come from the environment")
    ],
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="end once all that the topics hold now is in the views")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="give up after this many seconds (exit code 4 with --until-caught-up)"),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="serve Prometheus metrics on this port (docs/metrics.md); 0: one that is free",
        ),
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    master: MasterOption = "local[*]",
) -> None:
    """Run a pipeline. It goes on where it stood; SIGTERM or Ctrl-C finishes the batch in flight and commits.

    Examples: forebay run pipeline.sql --until-caught-up --timeout 60 · forebay run pipeline.sql --metrics-port 9400
    """
    from forebay.options import expand

    if not file.is_file():
        raise StatementError(f"there is no file {file}")
    script = expand(file.read_text())
    stop = threading.Event()
    _stop_on_signals(stop)
    with Phases() as phases:
        phases.say("loading")
        from forebay.runtime.session import connect

        session = connect(home, master)
    with session, _metrics(session, metrics_port):
        _execute(session, script)
        if session.queries():
            words.print(_goes_on(until_caught_up), style="dim", highlight=False)
        waiting = _Waiting(session, until_caught_up, timeout)
        watch(session, lambda: stop.is_set() or waiting.done())
        if not stop.is_set():
            waiting.raise_error()
        with words.status("finishing the batch in flight, committing offsets …"):
            session.close()


@contextmanager
def _metrics(session: Session, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from forebay.telemetry.server import MetricsServer

    server = MetricsServer(session.collector(), port)
    words.print(f"metrics at {server.address}", markup=False, highlight=False)
    try:
        yield
    finally:
        server.close()


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _execute(session: Session, script: str) -> None:
    """Statement by statement, naming what each waits for while it does."""
    from forebay import sql

    results = session.each(script)
    for statement in sql.parse(script):
        with Phases() as phases:
            phases.say(_waits_for(session, statement))
            result = next(results)
        if result.done:
            words.print("\n".join((result.done, *result.notes)), markup=False, highlight=False)
        else:
            show(result, Output.table)


def _waits_for(session: Session, statement: Statement) -> str:
    from forebay import sql

    if isinstance(statement, sql.CreateSource):
        brokers = statement.options.get("bootstrap.servers")
        where = f", reaching brokers at {brokers.text}" if brokers else ""
        return f"checking source {statement.name}{where}"
    starting = "" if session.spark_started else "starting Spark"
    if isinstance(statement, sql.CreateView):
        return f"{starting}, then view {statement.name}" if starting else f"starting view {statement.name}"
    if isinstance(statement, sql.Select):
        return f"{starting}, then the query" if starting else "running the query"
    return "working"


def _goes_on(until_caught_up: bool) -> str:
    if until_caught_up:
        return "catching up: ends when all that the topics hold now is in the views"
    return "running until Ctrl-C or SIGTERM"


class _Waiting:
    """Waits in a thread of its own, so that the live line goes on meanwhile."""

    def __init__(self, session: Session, until_caught_up: bool, timeout: float | None) -> None:
        self._error: Exception | None = None
        self._thread = threads.start(
            "forebay-wait",
            lambda: session.wait(until_caught_up=until_caught_up, timeout=timeout),
            self._failed,
            logged=False,
        )

    def _failed(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def watch(session: Session, done: Callable[[], bool]) -> None:
    """Show how the queries fare until `done()`."""
    if not words.is_terminal:
        _watch_plain(session, done)
        return
    with Live(console=words, refresh_per_second=4, transient=False) as live:
        while not done():
            live.update(_line(session.queries()))
            time.sleep(REFRESH_S)
        live.update(_line(session.queries()))


def _watch_plain(session: Session, done: Callable[[], bool]) -> None:
    last = time.monotonic()
    while not done():
        time.sleep(0.05)
        if time.monotonic() - last >= PLAIN_EVERY_S:
            last = time.monotonic()
            print(_line(session.queries()).plain, file=sys.stderr)
    print(_line(session.queries()).plain, file=sys.stderr)


def _line(queries: Sequence[QueryStatus]) -> Text:
    """A line a view: what it has, how fast, how far behind, how long a batch takes."""
    text = Text()
    for query in queries:
        text.append("\n" if text else "")
        text.append(f"{query.view:<16}", "bold")
        text.append(f" {query.state:<9}", "green" if query.state == "running" else "yellow")
        text.append(f" {query.records:>12,} records  {query.records_per_second:>10,.0f}/s")
        text.append(f"  lag {query.lag or 0:>9,}  batch {query.batch_ms:>6,} ms")
        if query.rejected:
            text.append(f"  {query.rejected:,} rejected", "red")
        if query.message:
            text.append(f"\n  {query.message.splitlines()[0]}", "red")
    return text
