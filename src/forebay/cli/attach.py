"""`--attach URL`: a command runs against a pipeline that runs elsewhere, over its dashboard's HTTP API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import typer

from forebay.errors import AttachError, ForebayError, OptionValueError, Position, StatementError, all_errors

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from forebay.runtime.results import Result

AttachOption = Annotated[
    str | None,
    typer.Option(
        "--attach",
        envvar="FOREBAY_ATTACH",
        help="the address of a dashboard (forebay run --ui, forebay ui), such as http://localhost:8420: the command runs "
        "there, also on a home that another process has open. Its token: FOREBAY_UI_TOKEN, or a file, FOREBAY_UI_TOKEN_FILE",
        show_default=False,
    ),
]
TIMEOUT_S = 600.0  # a statement may take as long as Spark does
MOST_ROWS = 10_000


class Attached:
    """A dashboard elsewhere. Every method blocks until it answers, and raises what it was refused with."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.netloc:
            raise OptionValueError(
                f"--attach cannot be '{url}'",
                option="attach",
                remedy="the dashboard's address: http://localhost:8420",
            )
        self._url = f"{split.scheme}://{split.netloc}"
        self._token = _token(environment)
        # Not by a proxy of the environment: a token is for the dashboard alone.
        self._opener: OpenerDirector = build_opener(ProxyHandler({}))

    def sql(self, script: str, limit: int = MOST_ROWS) -> Iterator[Result]:
        """The results of statements; the error of the one that failed after those before it."""
        from forebay.runtime.results import Result

        done = self._json("POST", "/api/sql", {"sql": script, "limit": limit}, failing=True)
        for each in done.get("answers", ()):
            table, notes = each["table"], [*each["notes"]]
            if table is None:
                yield Result(done=each["words"], notes=notes)
                continue
            if table["cut"]:
                notes.append(f"the first {len(table['rows']):,} rows")
            names = [column["name"] for column in table["columns"]]
            made = Result.of(names, table["rows"], notes)
            made.done = each["words"]
            yield made
        if done.get("error"):
            raise _error(done["error"], script)

    def get(self, path: str, **query: Any) -> Any:
        """What is at a path, as JSON."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._json("GET", f"{path}?{urlencode(given)}" if given else path)

    def stream(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Server-sent events: kind and data, until the server ends it."""
        given = {key: value for key, value in query.items() if value is not None}
        try:
            answer = self._open("GET", f"{path}?{urlencode(given)}", None)
        except _RefusedError as refused:
            raise _error(refused.body.get("error") or {}) from None
        with answer:
            kind = "message"
            for line in answer:
                text = line.decode("utf-8").rstrip("\r\n")
                name, _, value = text.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def tail(self, view: str, after: int | None, timeout: float | None) -> Iterator[dict[str, Any]]:
        """Every change of a view, a row each."""
        path = f"/api/views/{quote(view, safe='')}/changes"
        for kind, data in self.stream(path, after=-1 if after is None else after, timeout=timeout):
            if kind == "error":
                raise _error(data)
            names = [column["name"] for column in data["table"]["columns"]]
            for row in data["table"]["rows"]:
                yield dict(zip(names, row, strict=True))

    def _json(self, method: str, path: str, body: Any = None, *, failing: bool = False) -> Any:
        try:
            with self._open(method, path, body) as answer:
                return json.load(answer)
        except _RefusedError as refused:
            if failing and "answers" in refused.body:
                return refused.body
            raise _error(refused.body.get("error") or {}) from None
        except ValueError:
            raise self._no_dashboard("what answers there sends no JSON") from None

    def _open(self, method: str, path: str, body: Any) -> HTTPResponse:
        from forebay import actors

        headers = {
            "Accept": "application/json",
            "X-Forebay-Request": "1",
            "X-Forebay-Actor": _latin(actors.current().removeprefix("user: ")),
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = Request(f"{self._url}{path}", data, headers, method=method)  # noqa: S310 - http and https alone
        try:
            return self._opener.open(request, timeout=TIMEOUT_S)  # type: ignore[no-any-return]
        except HTTPError as error:
            with error:
                try:
                    raise _RefusedError(json.load(error)) from None
                except ValueError:
                    raise self._no_dashboard(f"it answered with status {error.code}") from None
        except URLError as error:
            raise self._no_dashboard(str(error.reason)) from None
        except OSError as error:
            raise self._no_dashboard(str(error)) from None

    def _no_dashboard(self, reason: str) -> AttachError:
        return AttachError(
            f"no dashboard answers at {self._url}: {reason}",
            remedy="start one with the pipeline: forebay run --ui; or look at a home with: forebay ui",
        )


class _RefusedError(Exception):
    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__("refused")
        self.body = body


def _error(found: Mapping[str, Any], script: str = "") -> ForebayError:
    """The dashboard's error, as one of this process."""
    kind = all_errors().get(found.get("code", ""), AttachError)
    message, remedy = str(found.get("message", "refused")), str(found.get("remedy", ""))
    if issubclass(kind, StatementError) and found.get("line"):
        place = Position(int(found["line"]), int(found.get("column") or 1))
        return kind(message, remedy=remedy, position=place, statement=script)
    return kind(message, remedy=remedy)


def _token(environment: Mapping[str, str]) -> str | None:
    if file := environment.get("FOREBAY_UI_TOKEN_FILE"):
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise OptionValueError(
                f"the token in {file} cannot be read", option="FOREBAY_UI_TOKEN_FILE"
            ) from None
    return environment.get("FOREBAY_UI_TOKEN") or None


def _latin(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")
