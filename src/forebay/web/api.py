"""The HTTP API: what `Backend` answers, as JSON. `/api/openapi.json` describes it.

A request's body is a pydantic model, an answer is one of the dataclasses of `model.py`. Whatever goes wrong is JSON with a code,
a message and a remedy.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from forebay import __version__
from forebay.errors import BadRequestError, ForebayError
from forebay.web.backend import Backend
from forebay.web.failures import failure_of, status_of
from forebay.web.letters_api import letters_router
from forebay.web.model import (
    AuditRow,
    BoardPage,
    Browse,
    Completion,
    EventRow,
    Execution,
    Failure,
    HistoryPoint,
    Overview,
    PoolRow,
    Produced,
    ShownTable,
    SourcePage,
    SourceRow,
    TopicRow,
    ViewPage,
    ViewRow,
)
from forebay.web.shown import inert
from forebay.web.streams import Streams

INT64 = 2**63 - 1
INT32 = 2**31 - 1
Name = Annotated[str, Path(min_length=1, max_length=255)]
Limit = Annotated[int, Query(ge=1, le=5000)]


class Body(BaseModel):
    """What a request says; a field that nobody knows is refused."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(BaseModel):
    """What every refusal looks like."""

    error: Failure


class SqlRequest(Body):
    sql: str = Field(max_length=1_000_000, description="statements, separated by semicolons")
    limit: int = Field(1000, ge=1, le=10_000, description="the most rows of an answer")


class Typed(Body):
    text: str = Field(max_length=1_000_000)
    cursor: int = Field(ge=0, le=1_000_000)


class Policy(Body):
    policy: str = Field(
        min_length=1,
        max_length=2000,
        description="skip, fail, or 'dead_letter' WITH (dead_letter_topic = '…')",
    )


class NewRecord(Body):
    key: str | None = Field(None, max_length=1_000_000)
    value: str | None = Field(None, max_length=1_000_000, description="null is a tombstone")
    headers: dict[str, str] = Field(default_factory=dict, max_length=100)
    partition: int | None = Field(None, ge=0, le=INT32)


class Said(BaseModel):
    """What happened, in words."""

    message: str


class Alive(BaseModel):
    status: str


class Readiness(BaseModel):
    ready: bool
    reasons: list[str]


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": words}
    for status, words in (
        (400, "the request makes no sense"), (401, "a token is needed"), (403, "refused: read-only, or of another page"),
        (404, "there is no such thing"), (409, "not as things are now"), (422, "wrong SQL, or a wrong value"),
        (503, "somebody else does not answer"),
    )
}  # fmt: skip


def make_app(backend: Backend, lifespan: Any = None) -> FastAPI:
    """The application with all routes of the API; pages are attached to it by whoever wants them."""
    app = FastAPI(
        title="Forebay",
        version=__version__,
        description="A running pipeline: its sources, views, dead letters and topics.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    router = APIRouter(responses=ERRORS)
    _add_probes(router, backend)
    _add_sources(router, backend)
    _add_views(router, backend)
    _add_statements(router, backend)
    _add_topics(router, backend)
    _add_rest(router, backend)
    app.include_router(router)
    app.include_router(letters_router(backend), responses=ERRORS)
    _add_errors(app)
    return app


def actor_of(request: Request) -> str:
    """Who is written down as the one who changes something."""
    return str(getattr(request.state, "actor", "local"))


def _add_errors(app: FastAPI) -> None:
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, ForebayError)
        return answer(error)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
        wrong = BadRequestError(inert("; ".join(found)), remedy="/api/openapi.json says what is taken")
        return answer(wrong, 422)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        wrong = BadRequestError(inert(str(error.detail)), remedy="/api/openapi.json lists what there is")
        return answer(wrong, error.status_code, dict(error.headers or {}))

    app.add_exception_handler(ForebayError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def answer(error: ForebayError, status: int | None = None, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": failure_of(error)}, status or status_of(error), headers)


def _json(content: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


# -- probes ------------------------------------------------------------------------------------------------


def _add_probes(router: APIRouter, backend: Backend) -> None:
    @router.get("/healthz")
    def healthz() -> Alive:
        """Whether the server answers."""
        return Alive(status="ok")

    @router.get("/readyz", response_model=Readiness)
    def readyz() -> Response:
        """Whether the views of this home get on: 503 where one has failed, or the session is closed."""
        reasons = backend.not_ready()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    @router.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """For Prometheus: the session's or the pool's, as docs/metrics.md names them."""
        return Response(backend.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


# -- looking -----------------------------------------------------------------------------------------------


def _add_sources(router: APIRouter, backend: Backend) -> None:
    @router.get("/api/overview")
    def overview() -> Overview:
        """The pipeline as a graph, and what is wrong with it."""
        return backend.overview()

    @router.get("/api/sources")
    def sources() -> list[SourceRow]:
        """All sources: state, rates, lag, errors."""
        return list(backend.sources())

    @router.get("/api/sources/{name}")
    def source(name: Name) -> SourcePage:
        """A source: partitions, watermark, decisions, batches, errors by kind."""
        return backend.source(name)

    @router.get("/api/sources/{name}/history")
    def history(name: Name, seconds: Annotated[int, Query(ge=1, le=86_400)] = 3600) -> list[HistoryPoint]:
        """Samples of a source, the oldest first."""
        return list(backend.history(name, seconds))

    @router.post("/api/sources/{name}/pause")
    def pause(name: Name, request: Request) -> Said:
        """PAUSE SOURCE: nothing more is fetched of it."""
        return Said(message=backend.pause(name, actor_of(request)))

    @router.post("/api/sources/{name}/resume")
    def resume(name: Name, request: Request) -> Said:
        """RESUME SOURCE: its reads go on where they stood."""
        return Said(message=backend.resume(name, actor_of(request)))

    @router.put("/api/sources/{name}/on-error")
    def on_error(name: Name, policy: Policy, request: Request) -> Said:
        """ALTER SOURCE … ON ERROR, from the next micro-batch on."""
        return Said(message=backend.set_on_error(name, policy.policy, actor_of(request)))


def _add_views(router: APIRouter, backend: Backend) -> None:
    streams = Streams()

    @router.get("/api/views")
    def views() -> list[ViewRow]:
        """All views: state, counts, how far behind."""
        return list(backend.views())

    @router.get("/api/views/{name}")
    def view(name: Name) -> ViewPage:
        """A view: schema, size, files, freshness, batches."""
        return backend.view(name)

    @router.get("/api/views/{name}/rows")
    def rows(name: Name, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> ShownTable:
        """The rows that were written last."""
        return backend.newest(name, limit)

    @router.get("/api/views/{name}/changes", response_class=StreamingResponse)
    def changes(
        name: Name,
        after: Annotated[int | None, Query(ge=-1, le=INT64)] = None,
        timeout: Annotated[float | None, Query(ge=0, le=86_400)] = None,
    ) -> Response:
        """Every change as a server-sent event with JSON, from now on or after a version."""
        backend.view(name)
        return streams.changes(backend, name, after, timeout)

    @router.get("/api/events", response_class=StreamingResponse)
    def events(timeout: Annotated[float | None, Query(ge=0, le=86_400)] = None) -> Response:
        """What happens, as server-sent events: states, rebalances, errors (`event`) and the overview (`overview`)."""
        return streams.events(backend, timeout)

    @router.get("/api/events/recent")
    def recent(
        limit: Limit = 200, name: Annotated[str | None, Query(max_length=255)] = None
    ) -> list[EventRow]:
        """What happened, the newest first."""
        return list(backend.events(limit, name))


def _add_statements(router: APIRouter, backend: Backend) -> None:
    @router.post("/api/sql", response_model=Execution)
    def sql(script: SqlRequest, request: Request) -> Any:
        """Run statements. Where one fails, the answers of those before it are there, too."""
        done = backend.execute(script.sql, actor_of(request), script.limit)
        return done if done.error is None else _json(done, _status(done.error))

    @router.post("/api/complete")
    def complete(typed: Typed) -> list[Completion]:
        """What may be typed at the cursor."""
        return list(backend.complete(typed.text, typed.cursor))


def _status(error: Failure) -> int:
    from forebay.errors import all_errors

    kind = all_errors().get(error.code, ForebayError)
    return status_of(kind(error.message))


def _add_topics(router: APIRouter, backend: Backend) -> None:
    @router.get("/api/topics")
    def topics() -> list[TopicRow]:
        """Topics of the brokers that the sources name. Waits for the brokers."""
        return list(backend.topics())

    @router.get("/api/topics/{topic}/records")
    def records(
        topic: Name,
        partition: Annotated[int | None, Query(ge=0, le=INT32)] = None,
        offset: Annotated[int | None, Query(ge=0, le=INT64)] = None,
        timestamp_ms: Annotated[int | None, Query(ge=0, le=253_402_300_799_999)] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        source: Annotated[str | None, Query(max_length=255)] = None,
    ) -> Browse:
        """Records from an offset or a time on, or the newest; with a source, as its decoder reads them."""
        return backend.browse(topic, partition, offset, timestamp_ms, limit, source)

    @router.post("/api/topics/{topic}/records")
    def produce(topic: Name, record: NewRecord, request: Request) -> Produced:
        """Write a record."""
        return backend.produce(
            topic, record.key, record.value, record.headers, actor_of(request), record.partition
        )


def _add_rest(router: APIRouter, backend: Backend) -> None:
    @router.get("/api/audit")
    def audit(limit: Limit = 200) -> list[AuditRow]:
        """Who changed what, the newest first."""
        return list(backend.audit(limit))

    @router.get("/api/pools")
    def pools() -> list[PoolRow]:
        """The pool of this process."""
        return list(backend.pools())

    @router.get("/api/board")
    def board(
        type: Annotated[str | None, Query(max_length=255)] = None,
        correlation: Annotated[str | None, Query(max_length=255)] = None,
        artifact: Annotated[str | None, Query(max_length=64)] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> BoardPage | None:
        """The blackboard: artifacts by type, of a correlation with its timeline, or all versions of one."""
        return backend.board(type, correlation, artifact, limit)
