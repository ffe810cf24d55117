"""The HTTP API of a dashboard beside a running pipeline, and commands that are attached to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import sessions
from dashboards import HOSTILE, Pipeline, pipeline
from made_up_requests import ask_everything
from support import Cluster
from typer.testing import CliRunner
from waiting import eventually

from forebay.cli.main import app
from forebay.runtime.session import Session
from forebay.web.server import Dashboard

OURS = {"X-Forebay-Request": "1", "X-Forebay-Actor": "ann"}


@pytest.fixture(scope="module")
def made(db: Session, cluster: Cluster) -> Iterator[Pipeline]:
    with pipeline(db, cluster) as found:
        found.send(*sessions.events(range(10)), "not json", '{"id": "no number"}')
        yield found


@pytest.fixture(scope="module")
def dashboard(made: Pipeline) -> Iterator[Dashboard]:
    served = Dashboard(made.backend, port=0, pages=False)
    yield served
    served.close()


@pytest.fixture
def api(dashboard: Dashboard) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=dashboard.url, headers=OURS, timeout=60, trust_env=False) as client:
        yield client


def attached(dashboard: Dashboard, *arguments: str) -> Any:
    """A command on a home that is not the pipeline's, attached to it."""
    environment = {"FOREBAY_ATTACH": dashboard.url, "FOREBAY_HOME": "/nowhere/at/all", "COLUMNS": "200"}
    return CliRunner().invoke(app, list(arguments), env=environment)


def test_it_describes_itself_and_says_that_it_is_well(api: httpx.Client) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"ready": True, "reasons": []}
    described = api.get("/api/openapi.json").json()
    assert {"/api/sources/{name}", "/api/letters/replay", "/api/sql", "/api/events"} <= set(
        described["paths"]
    )
    assert "forebay_records_total" in api.get("/metrics").text or "forebay_" in api.get("/metrics").text


def test_sources_views_and_topics_are_there(api: httpx.Client, made: Pipeline) -> None:
    assert [row["name"] for row in api.get("/api/sources").json()] == [made.source]
    page = api.get(f"/api/sources/{made.source}").json()
    assert sum(page["errors_by_kind"].values()) == 2
    assert api.get(f"/api/views/{made.view}").json()["rows"] == 10
    assert len(api.get(f"/api/views/{made.view}/rows", params={"limit": 4}).json()["rows"]) == 4
    assert made.topic in {row["name"] for row in api.get("/api/topics").json()}
    records = api.get(f"/api/topics/{made.topic}/records", params={"source": made.source}).json()["records"]
    assert {record["row"]["id"] for record in records if record["row"]} == set(range(10))


def test_a_change_over_http_is_written_down_with_who_made_it(api: httpx.Client, made: Pipeline) -> None:
    assert "paused" in api.post(f"/api/sources/{made.source}/pause").json()["message"]
    assert "resumed" in api.post(f"/api/sources/{made.source}/resume").json()["message"]
    lines = api.get("/api/audit").json()
    assert [(line["actor"], line["action"]) for line in lines[:2]] == [
        ("local: ann", "resume"),
        ("local: ann", "pause"),
    ]
    done = api.post("/api/sql", json={"sql": "SELECT actor, action FROM forebay_catalog.audit"}).json()
    assert ["local: ann", "pause"] in done["answers"][0]["table"]["rows"]


def test_events_come_as_they_happen(api: httpx.Client, made: Pipeline) -> None:
    found: list[str] = []

    def listen() -> None:
        with api.stream("GET", "/api/events", params={"timeout": 20}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                found.append(line)
                if '"kind":"rejected"' in line:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    eventually(lambda: "event: overview" in found, "the stream is open")
    made.send('{"id": 1, "ts": "no time"}', b"\xff\xfe")
    made.send(json.dumps({"id": None}))
    thread.join(30)
    assert any(line == "event: event" for line in found)


def test_hostile_records_come_back_as_inert_json(api: httpx.Client, cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    for text in HOSTILE:
        cluster.produce(
            topic, [text.encode()], key=text.encode(), headers=[(text.replace("\x00", ""), text.encode())]
        )
    answer = api.get(f"/api/topics/{topic}/records", params={"offset": 0, "partition": 0})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.json()["records"]) == len(HOSTILE)
    assert not any(mark in answer.text for mark in ("\x1b", "\x00", "\u202e"))


def test_letters_are_found_explained_tried_and_replayed(api: httpx.Client, made: Pipeline) -> None:
    api.post("/api/letters/refresh").raise_for_status()
    owner = next(each for each in api.get("/api/letters").json() if each["name"] == made.source)["key"]
    groups = api.get("/api/letters/groups", params={"owner": owner}).json()["groups"]
    assert groups
    page = api.get("/api/letters/list", params={"owner": owner}).json()
    chosen = next(
        each for each in page["letters"] if each["kind"] == "MalformedPayload" or each["field"] is None
    )
    letter = api.get("/api/letters/letter", params={"owner": owner, "id": chosen["id"]}).json()
    assert letter["remedy"]
    repaired = json.dumps({"id": 500, "k": "a", "v": 1, "ts": sessions.BASE_MS})
    trial = api.post(
        "/api/letters/dry-run", json={"owner": owner, "id": chosen["id"], "value": repaired}
    ).json()
    assert trial["accepted"]
    body = {"owner": owner, "ids": [chosen["id"]], "value": repaired}
    job = api.post("/api/letters/replay", json=body).json()
    eventually(lambda: api.get(f"/api/letters/jobs/{job['id']}").json()["state"] == "done", "it is sent")
    sessions.caught_up(made.session)
    rows = sessions.rows(made.session, f"SELECT id FROM {made.view} WHERE id = 500")
    assert rows == [(500,)]
    assert api.get("/api/audit").json()[0]["action"] == "replay"


def test_commands_run_against_the_pipeline_that_they_are_attached_to(
    dashboard: Dashboard, made: Pipeline
) -> None:
    shown = attached(dashboard, "show", "sources", "-o", "json")
    assert json.loads(shown.stdout)[0]["name"] == made.source
    counted = attached(dashboard, "sql", "-e", f"SELECT count(*) AS n FROM {made.view}", "-o", "json")
    assert json.loads(counted.stdout)[0]["n"] >= 10
    lag = attached(dashboard, "lag", "-o", "json")
    assert {row["topic"] for row in json.loads(lag.stdout)} == {made.topic}
    tailed = attached(dashboard, "tail", made.view, "--timeout", "1")
    assert len(tailed.stdout.splitlines()) >= 10
    listed = attached(dashboard, "dlq", "ls", "-s", made.source, "-o", "json")
    letters = json.loads(listed.stdout)
    assert letters
    assert made.source in attached(dashboard, "dlq", "ls").stdout
    counts = json.loads(attached(dashboard, "dlq", "stats", "-o", "json").stdout)
    assert sum(row["letters"] for row in counts) == len(letters)
    explained = attached(dashboard, "dlq", "show", "-s", made.source, letters[0]["id"])
    assert letters[0]["error_kind"] in explained.stdout
    tried = attached(dashboard, "dlq", "replay", "-s", made.source, "--all", "--dry-run")
    assert "would be" in tried.stdout
    put = attached(
        dashboard, "dlq", "discard", "-s", made.source, "--id", letters[0]["id"], "-r", "it's \\ old"
    )
    assert "1 letter discarded" in put.stdout
    assert made.backend.audit(1)[0].action == "discard dead letters"


def test_errors_of_a_pipeline_that_a_command_is_attached_to_are_its_own(
    dashboard: Dashboard, made: Pipeline
) -> None:
    from forebay.errors import AttachError, SqlSyntaxError, UnknownObjectError

    wrong = attached(dashboard, "sql", "-e", "SELECT 1;\nSELEC 2")
    assert isinstance(wrong.exception, SqlSyntaxError)
    assert wrong.exception.position is not None
    assert wrong.exception.position.line == 2
    assert isinstance(attached(dashboard, "tail", "nobody").exception, UnknownObjectError)
    away = CliRunner().invoke(app, ["show", "sources", "--attach", "http://127.0.0.1:9"])
    assert isinstance(away.exception, AttachError)


def test_no_request_about_letters_that_are_there_is_answered_with_500(
    dashboard: Dashboard, made: Pipeline
) -> None:
    made.send("not json again")
    desk = made.backend.desk
    desk.refresh()
    letter = desk.letters().letters[0]
    # What is sent again goes where it came from, at once: a topic or a rate that was made up would take long.
    aim = {"owner": letter.owner, "id": letter.id, "ids": [letter.id], "group": letter.group}
    asked, statuses = ask_everything(
        dashboard.url, include="^/api/letters", exclude=r"/watched$|/jobs/",
        aim={**aim, "to": None, "rate": None, "search": "not"},
    )  # fmt: skip
    assert asked == 12
    assert {200, 422} <= statuses
    assert sum(sum(each.counts.values()) for each in desk.owners()) >= 3
