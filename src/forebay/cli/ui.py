"""`forebay ui`: the dashboard of a home; and `--ui` of the commands that run something."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.brokers import BrokersOption
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.output import words
from forebay.errors import ExtraMissingError

if TYPE_CHECKING:
    from forebay.pool import Pool
    from forebay.runtime.session import Session
    from forebay.web.backend import Backend
    from forebay.web.server import Dashboard

PORT = 8420
LOOPBACK = "127.0.0.1"

UiOption = Annotated[
    bool,
    typer.Option(
        "--ui",
        help="serve the dashboard and its HTTP API meanwhile (docs/dashboard.md; needs 'forebay\\[ui]')",
    ),
]
UiPortOption = Annotated[
    int, typer.Option("--ui-port", min=0, max=65535, help="the dashboard's port; 0: one that is free")
]
UiHostOption = Annotated[
    str,
    typer.Option(
        "--ui-host",
        help="the dashboard's address: this machine alone, unless another is given; then a token is required",
    ),
]
_PUBLIC = (
    "an address that people come by besides its own, such as https://pipelines.example of a proxy with TLS; may be repeated. "
    "A token is required then"
)
UiPublicOption = Annotated[
    list[str] | None, typer.Option("--ui-public-url", help=f"the dashboard's: {_PUBLIC}", show_default=False)
]
UiReadOnlyOption = Annotated[
    bool, typer.Option("--ui-read-only", help="nothing can be changed by the dashboard")
]
UiHideOption = Annotated[
    bool,
    typer.Option("--ui-hide-payloads", help="the dashboard shows no keys, values and headers of records"),
]


def ui(
    home: HomeOption = DEFAULT_HOME,
    host: Annotated[
        str,
        typer.Option(help="the address to serve on: this machine alone, unless another is given; 0.0.0.0 is every one"),
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free")] = PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", envvar="FOREBAY_UI_TOKEN_FILE", show_default=False,
            help="a file with the token that lets people in; else FOREBAY_UI_TOKEN. On another address than this machine's "
            "a token is required: without one, one is made and printed once",
        ),
    ] = None,
    public_url: Annotated[list[str] | None, typer.Option("--public-url", help=_PUBLIC, show_default=False)] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="refuse every change")] = False,
    hide_payloads: Annotated[
        bool, typer.Option("--hide-payloads", help="show no keys, values and headers of records and letters")
    ] = False,
    brokers: BrokersOption = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="a blackboard's: what the names of its topics begin with, such as flock.", show_default=False),
    ] = None,
    open_: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="open it in a browser; from a terminal it is, unless you say no", show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Serve the dashboard of a home: sources, views, dead letters, topics, SQL. Ctrl-C ends it.

    The home may be open elsewhere: what another process runs is looked at, paused, resumed, and its letters repaired and sent
    again. Statements that need Spark take the dashboard of the process that has it: forebay run --ui.

    Examples:

      forebay ui

      forebay ui --home pipelines/orders/.forebay --port 0 --no-open

      forebay ui --host 0.0.0.0 --token-file /run/secrets/forebay --read-only

      forebay ui --public-url https://pipelines.example --token-file /run/secrets/forebay

      forebay ui --brokers localhost:9092 --prefix flock.
    """
    check_extra()
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    with _served(
        home,
        host,
        port,
        token_file,
        public=public_url or (),
        read_only=read_only,
        hide_payloads=hide_payloads,
        brokers=brokers,
        prefix=prefix,
    ) as dashboard:
        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)
        if open_ or (open_ is None and sys.stdin.isatty() and sys.stderr.isatty()):
            _open(dashboard.url)
        stop.wait()


def check_extra() -> None:
    """ExtraMissingError where the packages are not installed that only the dashboard needs."""
    from importlib.util import find_spec

    if find_spec("nicegui") is None or find_spec("fastapi") is None:
        raise ExtraMissingError(
            "the dashboard needs packages that are not installed", remedy="pip install 'forebay[ui]'"
        )


@contextmanager
def beside(
    wanted: bool,
    home: Path,
    host: str,
    port: int,
    *,
    session: Session | None = None,
    pool: Pool | None = None,
    public: Sequence[str] = (),
    read_only: bool = False,
    hide_payloads: bool = False,
) -> Iterator[Dashboard | None]:
    """The dashboard of what this process runs, while it does; nothing where it is not wanted."""
    if not wanted:
        yield None
        return
    check_extra()
    file = os.environ.get("FOREBAY_UI_TOKEN_FILE")
    with _served(
        home, host, port, Path(file) if file else None, public=public, read_only=read_only, hide_payloads=hide_payloads,
        session=session, pool=pool,
    ) as dashboard:  # fmt: skip
        yield dashboard


@contextmanager
def _served(
    home: Path,
    host: str,
    port: int,
    token_file: Path | None,
    *,
    public: Sequence[str],
    read_only: bool,
    hide_payloads: bool,
    brokers: str | None = None,
    prefix: str | None = None,
    session: Session | None = None,
    pool: Pool | None = None,
) -> Iterator[Dashboard]:
    from forebay.web.access import given_token
    from forebay.web.backend import Backend
    from forebay.web.server import Dashboard

    token = given_token(token_file)
    given, board = _elsewhere(brokers, prefix)
    backend: Backend = Backend(
        home, session, read_only=read_only, hide_payloads=hide_payloads, pool=pool, board=board, brokers=given
    )
    try:
        dashboard = Dashboard(backend, host, port, token=token, public=public)
    except BaseException:
        backend.close()
        raise
    places = " and ".join([dashboard.url, *map(str, dashboard.public)])
    words.print(f"dashboard at {places}", markup=False, highlight=False, soft_wrap=True)
    if dashboard.made_token is not None:
        words.print(
            f"token, shown this once: {dashboard.made_token}", markup=False, highlight=False, soft_wrap=True
        )
    try:
        yield dashboard
    finally:
        dashboard.close()


def _elsewhere(
    brokers: str | None, prefix: str | None
) -> tuple[dict[str, str] | None, dict[str, Any] | None]:
    """Options of brokers to look at besides those of the home's sources, and keywords of a blackboard."""
    if brokers is None and prefix is None:
        return None, None
    from forebay.cli.brokers import brokers as usual_brokers
    from forebay.cli.brokers import client_settings
    from forebay.patience import PATIENCE_S

    servers = usual_brokers(brokers)
    reached = client_settings(servers)
    given = {"bootstrap.servers": servers, **reached}
    if prefix is None:
        return given, None
    board: dict[str, Any] = {"bootstrap_servers": servers, "topic_prefix": prefix, "create_topics": False}
    return given, board | {"connect_timeout_ms": int(PATIENCE_S * 1000), **reached}


def _open(url: str) -> None:
    import webbrowser

    try:
        webbrowser.open(url)
    except webbrowser.Error:
        return  # the address is on the screen
