"""`forebay pool run module:handler`: a pool in the foreground, with a live view."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.cli.brokers import BrokersOption, KafkaConfigOption, client_settings
from forebay.cli.brokers import brokers as usual_brokers
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.live import Cell, fitted
from forebay.cli.output import words
from forebay.cli.ui import (
    LOOPBACK,
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
from forebay.errors import OptionValueError, PoolStateError, StatementError, WaitTimeoutError

if TYPE_CHECKING:
    from forebay.pool import Pool
    from forebay.pool.stats import PartitionStats, PoolStats

REFRESH_S = 0.5
PLAIN_EVERY_S = 5.0  # without a terminal, a line now and then is enough for a log
MOST_PARTITIONS = 16  # in the live view

pool_app = typer.Typer(
    name="pool", no_args_is_help=True, help="Handle records with a Python function, many at a time."
)


@pool_app.callback()
def pool() -> None:
    """There is one command so far; without this, typer would leave its name out."""


@pool_app.command()
def run(
    handler: Annotated[str, typer.Argument(help="module:function, or module:pool with a handler of its own")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="a topic to read; may be repeated")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="the consumer group")] = None,
    brokers: BrokersOption = None,
    workers: Annotated[int | None, typer.Option(help="the most handlers at work at a time (100)")] = None,
    order: Annotated[str | None, typer.Option(help="unordered, key or partition (unordered)")] = None,
    config: Annotated[str | None, typer.Option(help="a TOML file of options, in a table \\[pool]")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="any option of a pool: --set max.attempts=5; may be repeated"),
    ] = None,
    kafka_config: KafkaConfigOption = None,
    transactional: Annotated[
        str | None,
        typer.Option("--transactional", help="write what record.send() is given in transactions of this id"),
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="end once all that the topics hold is done")
    ] = False,
    timeout: Annotated[float | None, typer.Option(help="end after this many seconds (exit code 4)")] = None,
    ui: UiOption = False,
    ui_port: UiPortOption = PORT,
    ui_host: UiHostOption = LOOPBACK,
    ui_public_url: UiPublicOption = None,
    ui_read_only: UiReadOnlyOption = False,
    ui_hide_payloads: UiHideOption = False,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Run a pool. SIGTERM or Ctrl-C finishes what is being handled and commits.

    Example: forebay pool run billing:handle --topic orders --group billing --workers 200 --order key
    """
    from forebay.pool import Pool
    from forebay.pool.loop import run as run_loop

    if ui:
        check_extra()
    found = _load(handler)
    if brokers is None and config is None and not os.environ.get("FOREBAY_POOL_BOOTSTRAP_SERVERS"):
        brokers = usual_brokers(None)
    reached = {} if brokers is None else client_settings(brokers, kafka_config)
    if isinstance(found, Pool):
        made, function = found, None
    else:
        settings: dict[str, Any] = {"topics": topic, "group_id": group, "bootstrap_servers": brokers}
        settings |= {"workers": workers, "order": order, **reached, **_pairs(option or [])}
        made, function = Pool(config=config, **settings), found
    if transactional:
        made.transactional(transactional)
    shown = beside(
        ui,
        home,
        ui_host,
        ui_port,
        pool=made,
        public=ui_public_url or (),
        read_only=ui_read_only,
        hide_payloads=ui_hide_payloads,
    )
    try:
        with shown:
            run_loop(_run(made, function, until_caught_up, timeout))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _run(pool: Pool, handler: Any, until_caught_up: bool, timeout: float | None) -> None:
    running = asyncio.ensure_future(pool.run(handler))
    viewing = asyncio.ensure_future(_view(pool, running))
    deadline = None if timeout is None else time.monotonic() + timeout
    late = False
    try:
        while not running.done():
            await asyncio.wait([running], timeout=REFRESH_S)
            late = deadline is not None and time.monotonic() > deadline
            if late or (until_caught_up and _caught_up(pool)):
                await pool.stop()
        await running
    finally:
        running.cancel()  # Ctrl-C has cancelled this task, and not that one; it ends in order all the same
        await asyncio.gather(running, return_exceptions=True)
        await viewing
    if late and until_caught_up:
        raise WaitTimeoutError(f"not caught up after {timeout:.0f} s")


def _caught_up(pool: Pool) -> bool:
    """Only what the broker itself has reported: before the first fetch nobody knows how much there is."""
    if pool.state != "running":
        return False
    partitions = pool.stats().partitions
    return bool(partitions) and all(one.lag == 0 and one.committed == one.frontier for one in partitions)


async def _view(pool: Pool, running: asyncio.Future[None]) -> None:
    """Until the pool has ended; one last time after that."""
    show: _live | _lines = _live(pool) if words.is_terminal else _lines(pool)
    with show as update:
        while not running.done():
            await asyncio.wait([running], timeout=REFRESH_S)
            if _begun(pool):
                update()


def _begun(pool: Pool) -> bool:
    """Whether there is anything to show of it: a pool whose start fails never comes so far."""
    try:
        pool.stats()
    except PoolStateError:
        return False
    return True


class _Rate:
    """Records a second since the last look."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), 0)
        self.value = 0.0

    def see(self, completed: int) -> float:
        now = time.monotonic()
        then, before = self._last
        if now - then >= REFRESH_S / 2:
            self.value = (completed - before) / (now - then)
            self._last = now, completed
        return self.value


class _Watched:
    """A pool's figures as they are shown. What it had assigned is known for longer than it is assigned."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._rate = _Rate()
        self._last: tuple[PartitionStats, ...] = ()

    def look(self) -> tuple[PoolStats, float]:
        stats = self._pool.stats()
        self._last = stats.partitions or self._last
        return replace(stats, partitions=self._last), self._rate.see(stats.completed)


class _live:  # noqa: N801 - a context manager that reads as a word
    def __init__(self, pool: Pool) -> None:
        self._pool = _Watched(pool)
        self._live = Live(console=words, refresh_per_second=4)

    def __enter__(self) -> Callable[[], None]:
        self._live.__enter__()
        return lambda: self._live.update(view(*self._pool.look(), words.width))

    def __exit__(self, *how: Any) -> None:
        self._live.__exit__(*how)


class _lines:  # noqa: N801
    def __init__(self, pool: Pool) -> None:
        self._pool, self._said = _Watched(pool), float("-inf")
        self._look: tuple[PoolStats, float] | None = None

    def __enter__(self) -> Callable[[], None]:
        return self._update

    def _update(self) -> None:
        self._look = self._pool.look()
        if time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._say()

    def _say(self) -> None:
        if self._look is not None:
            self._said = time.monotonic()
            print(line(*self._look).plain, file=sys.stderr)

    def __exit__(self, *how: Any) -> None:
        self._say()


def line(stats: PoolStats, rate: float, width: int | None = None) -> Text:
    """One line: what is done, how fast, how far behind, what failed."""
    lag = "–" if stats.lag is None else f"{stats.lag:,}"
    mean_ms = stats.handler_seconds / stats.completed * 1000 if stats.completed else 0.0
    cells = [
        Cell(stats.name, "bold"),
        Cell(stats.state, "green" if stats.state == "running" else "yellow"),
        Cell(f"{stats.completed:,} records"),
        Cell(f"{rate:,.0f}/s"),
        Cell(f"lag {lag}"),
        Cell(f"workers {stats.workers}/{stats.worker_limit}", spare=1),
        Cell(f"handler {mean_ms:.1f} ms", spare=2),
    ]
    for count, what in (
        (stats.retries, "retries"),
        (stats.dead_letters, "dead letters"),
        (stats.skipped, "skipped"),
        (stats.halted, "failed"),
        (stats.commit_failures, "commits failed"),
    ):
        cells.append(Cell(f"{count:,} {what}" if count else "", "red"))
    return fitted([cells], width)


def view(stats: PoolStats, rate: float, width: int) -> Group:
    """The line, and a line a partition."""
    partitions = Table(box=None, padding=(0, 2))
    for head in ("partition", "done", "committed", "open", "lag", ""):
        partitions.add_column(head, justify="left" if head in ("partition", "") else "right", style="dim")
    for one in stats.partitions[:MOST_PARTITIONS]:
        figures = (one.frontier, one.committed, one.uncommitted, one.lag)
        cells = ("–" if figure is None else f"{figure:,}" for figure in figures)
        partitions.add_row(
            f"{one.topic}-{one.partition}", *cells, "paused" if one.paused else "heavy" if one.heavy else ""
        )
    if len(stats.partitions) > MOST_PARTITIONS:
        partitions.add_row(f"and {len(stats.partitions) - MOST_PARTITIONS} more")
    return Group(line(stats, rate, width), partitions)


def _load(text: str) -> Any:
    module, _, name = text.partition(":")
    if not module or not name:
        raise StatementError(
            f"'{text}' names no handler", remedy="write module:function, such as billing:handle"
        )
    sys.path.insert(0, "")  # as `python -m` does: modules of the folder that this is called in
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise StatementError(
            f"there is no module '{error.name}'", remedy="call this in the module's folder, or set PYTHONPATH"
        ) from None
    if not hasattr(found, name):
        raise StatementError(f"module '{module}' has no '{name}'")
    return getattr(found, name)


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise OptionValueError(f"--set {text}: expected name=value", option=name)
        pairs[name] = value
    return pairs
