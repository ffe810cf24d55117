"""`forebay run FILE.sql`: a pipeline in the foreground, with a live line, until it is stopped."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from forebay import threads
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.live import Cell, fitted
from forebay.cli.output import OutputFormat, show, words
from forebay.cli.phases import Phases
from forebay.cli.spark_options import LOCAL, ArchiveOption, ConfOption, MasterOption, archive_of, conf_of
from forebay.cli.ui import (
    PORT,
    UiHideOption,
    UiHostOption,
    UiOption,
    UiPortOption,
    UiPublicOption,
    UiReadOnlyOption,
    beside,
    check_extra,
)
from forebay.errors import MostRejectedError, OptionValueError, StatementError
from forebay.options import dereference, expand
from forebay.telemetry import LOOPBACK

if TYPE_CHECKING:
    from forebay.runtime.session import Session
    from forebay.runtime.status import QueryStatus
    from forebay.sql import Statement

REFRESH_S = 0.5
PLAIN_EVERY_S = 5.0  # without a terminal, a line now and then is enough for a log


StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        envvar="FOREBAY_STORAGE",
        help="where tables of new views are: s3://bucket/prefix, a folder; in the home unless given",
    ),
]


CheckpointsOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        envvar="FOREBAY_CHECKPOINTS",
        help="where checkpoints of new reads are: hdfs://host:port/folder; in the home unless given",
    ),
]


AdoptOption = Annotated[
    bool,
    typer.Option(
        "--adopt",
        envvar="FOREBAY_ADOPT",
        help="go on with tables that are in --storage already, where they stand: for a home that is lost",
    ),
]


def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="statements; ${NAME} and ${NAME:-default} come from the environment. Without a file: every view of the "
            "home"
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="end once all that the topics hold now is in the views; a SELECT in the file waits for the views before it",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="give up after this many seconds (exit code 4 with --until-caught-up)"),
    ] = None,
    max_rejected: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=100.0,
            help="with --until-caught-up: end with exit code 1 if this percentage of the records of a view was rejected, "
            "or more",
        ),
    ] = 100.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="serve Prometheus metrics on this port (docs/metrics.md); 0: one that is free",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            help="the address that metrics are served on: this machine alone, unless another is given; 0.0.0.0 is every one"
        ),
    ] = LOOPBACK,
    ui: UiOption = False,
    ui_port: UiPortOption = PORT,
    ui_host: UiHostOption = LOOPBACK,
    ui_public_url: UiPublicOption = None,
    ui_read_only: UiReadOnlyOption = False,
    ui_hide_payloads: UiHideOption = False,
    home: HomeOption = DEFAULT_HOME,
    master: MasterOption = LOCAL,
    archive: ArchiveOption = None,
    conf: ConfOption = None,
    storage: StorageOption = None,
    checkpoints: CheckpointsOption = None,
    adopt: AdoptOption = False,
) -> None:
    """Run a pipeline. It goes on where it stood; SIGTERM or Ctrl-C finishes the batch in flight and commits.

    Examples: forebay run pipeline.sql --until-caught-up --timeout 60 · forebay run pipeline.sql --metrics-port 9400 ·
    forebay run --ui · forebay run · forebay run pipeline.sql --master spark://host:7077 --archive forebay-env.tar.gz
    """
    if ui:
        check_extra()
    if file is not None and not file.is_file():
        raise StatementError(f"there is no file {file}")
    script = expand(file.read_text()) if file is not None else None
    stop = threading.Event()
    _stop_on_signals(stop)
    with Phases() as phases:
        phases.say("loading")
        from forebay.runtime.session import connect

        session = connect(
            home,
            master,
            conf_of(conf),
            archive=archive_of(archive),
            storage=storage,
            checkpoints=checkpoints,
            adopt=adopt,
        )
    with (
        session,
        _metrics(session, metrics_port, metrics_host),
        beside(
            ui,
            home,
            ui_host,
            ui_port,
            session=session,
            public=ui_public_url or (),
            read_only=ui_read_only,
            hide_payloads=ui_hide_payloads,
        ),
    ):
        before = {query.view: query for query in session.queries()}
        deadline = None if timeout is None else time.monotonic() + timeout
        if script is None:
            views = _start_all(session)
        else:
            views = _execute(session, script, _catch_up(session, deadline) if until_caught_up else None)
        session.watch_health()
        if views:
            words.print(_goes_on(until_caught_up), style="dim", highlight=False)
        waiting = _Waiting(session, until_caught_up, _left(deadline))
        watch(session, views, lambda: stop.is_set() or waiting.done())
        if stop.is_set():
            words.print("stopping: finishing the batch in flight; Ctrl-C again ends at once", style="dim")
            signal.signal(signal.SIGINT, signal.default_int_handler)
        else:
            waiting.raise_error()
        with words.status("finishing the batch in flight, committing offsets …"):
            after = [query for query in session.queries() if query.view in views]
            session.close()
        if until_caught_up and not stop.is_set():
            _check_rejected(before, after, max_rejected)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _catch_up(session: Session, deadline: float | None) -> Callable[[], None]:
    return lambda: session.wait(until_caught_up=True, timeout=_left(deadline))


def _start_all(session: Session) -> list[str]:
    with Phases() as phases:
        phases.say("starting Spark, then the views")
        started = session.start_all()
    if not started:
        raise StatementError(
            "there is no view to run in this home",
            remedy="name a file: forebay run pipeline.sql; or START VIEW name in forebay sql, if it was stopped",
        )
    words.print("\n".join(started), markup=False, highlight=False)
    return [query.view for query in session.queries() if query.state != "stopped"]


def _check_rejected(
    before: Mapping[str, QueryStatus], after: Sequence[QueryStatus], max_rejected: float
) -> None:
    """A run that could decode nothing did not do what it was asked to, though every record has its place."""
    for query in after:
        known = before.get(query.view)
        records = query.records - (known.records if known else 0)
        rejected = query.rejected - (known.rejected if known else 0)
        if rejected and rejected * 100 >= records * max_rejected:
            raise MostRejectedError(
                f"view '{query.view}': {rejected:,} of {records:,} records were rejected "
                f"({rejected * 100 / records:.1f} %)"
            )


@contextmanager
def _metrics(session: Session, port: int | None, host: str) -> Iterator[None]:
    if port is None:
        yield
        return
    from forebay.telemetry.server import MetricsServer

    server = MetricsServer(session.collector(), port, host)
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


def _execute(session: Session, script: str, catch_up: Callable[[], None] | None) -> list[str]:
    """Statement by statement, naming what each waits for while it does; returns the script's own views.

    Before a SELECT `catch_up` lets the views get there.
    """
    from forebay import sql

    views: dict[str, None] = {}
    results = session.each(script)
    for statement in sql.parse(script):
        with Phases() as phases:
            if isinstance(statement, sql.Select) and catch_up is not None:
                phases.say("catching up, then the query")
                catch_up()
            phases.say(_waits_for(session, statement))
            result = next(results)
        if isinstance(statement, sql.CreateView):
            views[statement.name] = None
        if result.done:
            words.print("\n".join((result.done, *result.notes)), markup=False, highlight=False)
        else:
            show(result, OutputFormat.TABLE)
    return [query.view for query in session.queries() if query.view in views]


def _waits_for(session: Session, statement: Statement) -> str:
    from forebay import sql

    if isinstance(statement, sql.CreateSource):
        where = ""
        if (brokers := statement.options.get("bootstrap.servers")) is not None:
            with suppress(OptionValueError):  # the statement itself will say that the variable is not set
                where = f", reaching brokers at {dereference('bootstrap.servers', brokers.text)}"
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


def watch(session: Session, views: Sequence[str], done: Callable[[], bool]) -> None:
    """Show how the queries of these views fare until `done()`."""

    def line(width: int | None = None) -> Text:
        return _line([query for query in session.queries() if query.view in views], width)

    if not words.is_terminal:
        _watch_plain(line, done)
        return
    with Live(console=words, refresh_per_second=4, transient=False) as live:
        while not done():
            live.update(line(words.width))
            time.sleep(REFRESH_S)
        live.update(line(words.width))


def _watch_plain(line: Callable[[], Text], done: Callable[[], bool]) -> None:
    last = time.monotonic()
    while not done():
        time.sleep(0.05)
        if time.monotonic() - last >= PLAIN_EVERY_S:
            last = time.monotonic()
            print(line().plain, file=sys.stderr)
    print(line().plain, file=sys.stderr)


def _line(queries: Sequence[QueryStatus], width: int | None) -> Text:
    """A line a view: what it has, how fast, how far behind, how long a batch takes; below them what is wrong."""
    text = fitted([_cells(query) for query in queries], width)
    for query in queries:
        if query.message:
            message = Text(f"{query.view}: {query.message.splitlines()[0]}", "red")
            if width is not None:
                message.truncate(width, overflow="ellipsis")
            text.append("\n").append_text(message)
    return text


def _cells(query: QueryStatus) -> list[Cell]:
    lag = "–" if query.lag is None else f"{query.lag:,}"
    return [
        Cell(query.view, "bold"),
        Cell(query.state, "green" if query.state == "running" else "yellow"),
        Cell(f"{query.records:,} records", right=True),
        Cell(f"{query.records_per_second:,.0f}/s", right=True, spare=1),
        Cell(f"lag {lag}", right=True),
        Cell(f"batch {query.batch_ms:,} ms", right=True, spare=2),
        Cell(f"{query.rejected:,} rejected" if query.rejected else "", "red", right=True),
    ]
