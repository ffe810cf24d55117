"""Who is let in, and what a browser may do with the answers. A server on an empty home, and requests that should not pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from homes import finished_view

from forebay.catalog import Catalog, Definition
from forebay.errors import OptionValueError
from forebay.runtime.known import SourceFacts
from forebay.web.access import MOST_FAILED, Access, given_token, is_loopback, new_token
from forebay.web.api import make_app
from forebay.web.backend import Backend
from forebay.web.login import add_login
from forebay.web.public import PublicUrl
from forebay.web.safety import LARGEST, Safety
from forebay.web.shown import inert, value_of

PORT = 8420
TOKEN = "a-token-of-many-letters"
OURS = {"X-Forebay-Request": "1"}


class Asked:
    """Requests to an application in this process."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def __call__(self, method: str, path: str, **more: Any) -> httpx.Response:
        base = more.pop("base", f"http://127.0.0.1:{PORT}")

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, **more)

        return asyncio.run(go())

    def websocket(self, **headers: str) -> dict[str, Any]:
        """The first answer to the opening of a websocket."""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        scope = {
            "type": "websocket", "path": "/_nicegui_ws/", "raw_path": b"/_nicegui_ws/", "query_string": b"", "root_path": "",
            "headers": [(b"host", f"127.0.0.1:{PORT}".encode()), *((k.encode(), v.encode()) for k, v in headers.items())],
            "scheme": "ws", "subprotocols": [],
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))
        return sent[0]


@cache  # an application takes a while to make
def served(
    backend: Backend, token: str | None = None, host: str = "127.0.0.1", public: tuple[str, ...] = ()
) -> Asked:
    access = Access.with_token(token)
    app = make_app(backend)
    add_login(app, access, PORT)
    return Asked(Safety(app, access, host, PORT, [PublicUrl.of(each) for each in public]))


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    found = Backend(tmp_path_factory.mktemp("web") / "home")
    yield found
    found.close()


def test_every_answer_has_the_content_policy_without_inline_script_and_its_own_nonce(
    backend: Backend,
) -> None:
    ask = served(backend)
    first, second = ask("GET", "/api/sources"), ask("GET", "/nowhere")
    assert (first.status_code, second.status_code) == (200, 404)
    for answer in (first, second):
        policy = answer.headers["content-security-policy"]
        script = next(each for each in policy.split("; ") if each.startswith("script-src"))
        assert "unsafe-inline" not in script
        assert "'nonce-" in script
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
    assert first.headers["content-security-policy"] != second.headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1:9", "127.0.0.1.evil.example:8420", ""]
)
def test_a_name_that_is_not_ours_is_refused(backend: Backend, host: str) -> None:
    answer = served(backend)("GET", "/api/sources", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FB8004")


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "localhost:8420", "[::1]:8420", "LOCALHOST:8420"])
def test_this_machine_has_its_names(backend: Backend, host: str) -> None:
    assert served(backend)("GET", "/api/sources", headers={"Host": host}).status_code == 200


def test_a_server_on_all_addresses_is_asked_by_address_and_by_no_foreign_name(backend: Backend) -> None:
    ask = served(backend, TOKEN, "0.0.0.0")
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert ask("GET", "/api/sources", headers={"Host": "192.0.2.7:8420", **bearer}).status_code == 200
    assert ask("GET", "/api/sources", headers={"Host": "evil.example", **bearer}).status_code == 403
    assert ask("GET", "/healthz", headers={"Host": "any.name"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/api/sources/s/pause", "/api/sql", "/api/letters/discard", "/login", "/logout"]
)
@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9999"},
     {"Origin": "http://evil.example", **OURS}, {"Origin": "file://127.0.0.1:8420"}],
)  # fmt: skip
def test_a_change_that_another_page_may_have_made_is_refused(
    backend: Backend, path: str, headers: dict[str, str]
) -> None:
    answer = served(backend)("POST", path, json={}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FB8004")


def test_a_change_of_our_own_page_or_of_a_program_passes(backend: Backend) -> None:
    ask = served(backend)
    for headers in ({"Origin": f"http://127.0.0.1:{PORT}"}, OURS):
        answer = ask("POST", "/api/sql", json={"sql": "SHOW SOURCES"}, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["answers"][0]["table"]["rows"] == []


def test_a_websocket_of_another_page_is_closed(backend: Backend) -> None:
    for headers in ({"origin": "http://evil.example"}, {}):
        assert served(backend).websocket(**headers)["type"] == "websocket.close"


def test_a_websocket_without_a_login_is_closed_where_a_token_is_needed(backend: Backend) -> None:
    first = served(backend, TOKEN).websocket(origin=f"http://127.0.0.1:{PORT}")
    assert (first["type"], first["code"]) == ("websocket.close", 1008)


def test_without_the_token_nothing_is_told(backend: Backend) -> None:
    ask = served(backend, TOKEN)
    for path in ("/", "/api/sources", "/metrics", "/api/openapi.json", "/api/events", "/static/x.css"):
        answer = ask("GET", path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert ask("GET", "/api/sources", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert ask("GET", "/api/sources", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert [ask("GET", path).status_code for path in ("/healthz", "/readyz", "/login")] == [200, 200, 200]
    page = ask("GET", "/sources", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/sources")


def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_has(backend: Backend) -> None:
    ask = served(backend, TOKEN)
    ours = {"Origin": f"http://127.0.0.1:{PORT}"}
    wrong = ask("POST", "/login", data={"token": "no"}, headers=ours)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    done = ask("POST", "/login", data={"token": TOKEN, "next": "/letters"}, headers=ours)
    cookie = done.headers["set-cookie"]
    assert (done.status_code, done.headers["location"]) == (303, "/letters")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    value = cookie.partition(";")[0]
    assert ask("GET", "/api/sources", headers={"Cookie": value}).status_code == 200
    assert ask("POST", "/logout", headers={"Cookie": value, **ours}).status_code == 303
    assert ask("GET", "/api/sources", headers={"Cookie": value}).status_code == 401


@pytest.mark.parametrize(
    "place", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"]
)
def test_a_login_leads_to_no_other_server(backend: Backend, place: str) -> None:
    ask = served(backend, TOKEN)
    ours = {"Origin": f"http://127.0.0.1:{PORT}"}
    assert (
        ask("POST", "/login", data={"token": TOKEN, "next": place}, headers=ours).headers["location"] == "/"
    )
    assert "evil" not in ask("GET", "/login", params={"next": place}).text


def test_a_login_page_has_what_it_is_given_as_text(backend: Backend) -> None:
    page = served(backend, TOKEN)("GET", "/login", params={"next": '/"><script>alert(1)</script>'})
    assert "<script" not in page.text


def test_the_token_is_kept_as_a_hash_alone() -> None:
    access = Access.with_token(TOKEN)
    made = access.login()
    assert TOKEN not in repr(access)
    assert made not in repr(access)
    assert access.is_token(TOKEN)
    assert not access.is_token(TOKEN + "x")
    assert access.is_login(made)
    assert not access.is_login("")


def test_a_token_comes_from_a_file_or_the_environment_and_is_long(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert given_token(file, {}) == TOKEN
    assert given_token(None, {"FOREBAY_UI_TOKEN": TOKEN}) == TOKEN
    assert given_token(None, {}) is None
    assert len(new_token()) >= 40
    for bad in ("short", "with a space in it, and long", "nicht-äscii-und-lang"):
        file.write_text(bad)
        with pytest.raises(OptionValueError):
            given_token(file, {})
    with pytest.raises(OptionValueError):
        given_token(tmp_path / "nowhere", {})


def test_only_addresses_of_this_machine_need_no_token() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.0.0.2")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "127.example.org", "")))


def test_a_request_that_is_too_large_is_refused(backend: Backend) -> None:
    ask = served(backend)
    answer = ask("POST", "/api/sql", content=b"x", headers={**OURS, "Content-Length": str(LARGEST + 1)})
    assert answer.status_code == 403


def test_a_read_only_server_refuses_every_change_with_403(tmp_path: Path) -> None:
    backend = Backend(tmp_path / "home", read_only=True)
    try:
        ask = served(backend)
        changes: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/api/sources/s/pause", {}),
            ("POST", "/api/sources/s/resume", {}),
            ("POST", "/api/sql", {"sql": "PAUSE SOURCE s"}),
            ("POST", "/api/topics/t/records", {"value": "x"}),
            ("POST", "/api/letters/replay", {"owner": "s", "all": True}),
            ("POST", "/api/letters/discard", {"owner": "s", "all": True, "reason": "r"}),
            ("POST", "/api/letters/reopen", {"owner": "s", "all": True}),
            ("POST", "/api/letters/watched", {"topic": "t"}),
        ]
        for method, path, body in changes:
            answer = ask(method, path, json=body, headers=OURS)
            assert (path, answer.status_code, answer.json()["error"]["code"]) == (path, 403, "FB8001")
            assert answer.json()["error"]["remedy"]
        assert {row.outcome for row in backend.audit()} == {"refused"}
        assert len(backend.audit()) == len(changes)
    finally:
        backend.close()


def test_errors_are_json_with_code_message_and_remedy(backend: Backend) -> None:
    ask = served(backend)
    for method, path, body, status in (
        ("GET", "/api/sources/nobody", None, 404),
        ("GET", "/api/views/nobody", None, 404),
        ("GET", "/api/nowhere", None, 404),
        ("DELETE", "/api/sources", None, 405),
        ("GET", "/api/topics/t/records", None, 404),
        ("POST", "/api/sql", {"sql": "SELEC 1"}, 422),
        ("POST", "/api/sql", {"sql": "DROP SOURCE s"}, 409),
        ("POST", "/api/sql", {"nonsense": 1}, 422),
        ("GET", "/metrics", None, 409),
    ):
        answer = ask(method, path, json=body, headers=OURS)
        error = answer.json()["error"]
        assert (path, answer.status_code) == (path, status)
        assert error["code"].startswith("FB")
        assert error["message"]
        assert error["remedy"]


def test_names_in_the_catalog_come_back_as_inert_text(tmp_path: Path) -> None:
    """Names of views are checked when they are made; a catalog from elsewhere may have any."""
    home = tmp_path / "home"
    catalog = Catalog(home / "catalog.db")
    name = "<script>alert(1)</script>"
    detail = {"sources": ["s"], "emit": "\x1b[2J<b>", "keys": []}
    catalog.put(Definition(name, "view", "CREATE …", 1, detail))
    catalog.close()
    backend = Backend(home)
    try:
        answer = served(backend)("GET", "/api/views")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()[0]["name"] == name
    finally:
        backend.close()


def masked_home(path: Path) -> Backend:
    """A view over a source that masks a column."""
    finished_view(path, "people", pa.table({"id": [1, 2], "email": ["a@x", "b@x"], "name": ["A", "B"]}))
    facts = SourceFacts("kafka", {"topic": "t", "mask": "email, card*"}, ("id", "email"), None)
    catalog = Catalog(path / "catalog.db")
    catalog.put(Definition("s", "source", "CREATE SOURCE s", 1, {"facts": facts.to_json("CREATE SOURCE s")}))
    catalog.close()
    return Backend(path)


def test_masked_columns_are_not_shown_and_cannot_be_searched(tmp_path: Path) -> None:
    backend = masked_home(tmp_path / "home")
    try:
        assert [row[1] for row in backend.newest("people").rows] == ["•••", "•••"]
        for query in (
            "SELECT * FROM people",
            "SELECT id, email, name FROM people",
            "SELECT p.email FROM people p",
        ):
            done = backend.execute(query, "me")
            assert done.error is None
            assert "@x" not in repr(done)
        assert backend.execute("SELECT count(*) AS n FROM people", "me").error is None
        for query in (
            "SELECT email AS e FROM people",
            "SELECT upper(email) FROM people",
            "SELECT id FROM people WHERE email = 'a@x'",
            "SELECT id FROM people ORDER BY email",
            "SELECT max(email) FROM people GROUP BY id",
            "SELECT t.e FROM (SELECT email AS e FROM people) t",
            "WITH t(a, b, c) AS (SELECT * FROM people) SELECT b FROM t",
            "SELECT b FROM people AS t(a, b, c)",
            "SELECT name FROM people UNION ALL SELECT email FROM people",
            "SELECT to_json(struct(*)) FROM people",
            "SELECT a.id FROM people a JOIN people b USING (email)",
            "EXPLAIN SELECT id FROM people WHERE email = 'a@x'",
        ):
            found = backend.execute(query, "me")
            assert found.error is not None, query
            assert found.error.code == "FB8004", query
            assert "@x" not in repr(found.answers)
    finally:
        backend.close()


def test_a_view_that_gives_a_masked_column_another_name_hides_it_under_that_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    finished_view(
        home, "contacts", pa.table({"contact": ["a@x"], "loud": ["A@x"], "id": [7]}),
        query="SELECT email AS contact, upper(email) AS loud, id FROM s",
    )  # fmt: skip
    backend = masked_home(home)
    try:
        assert [list(row) for row in backend.newest("contacts").rows] == [["•••", "•••", 7]]
        for query in ("SELECT * FROM contacts", "SELECT contact, loud FROM contacts"):
            done = backend.execute(query, "me")
            assert done.error is None
            assert "@x" not in repr(done)
        for query in ("SELECT contact AS c FROM contacts", "SELECT id FROM contacts WHERE loud = 'A@x'"):
            refused = backend.execute(query, "me")
            assert refused.error is not None, query
            assert refused.error.code == "FB8004", query
    finally:
        backend.close()


def test_hidden_payloads_are_not_read_by_sql_either(tmp_path: Path) -> None:
    finished_view(tmp_path / "home", "v", pa.table({"id": [1]}))
    backend = Backend(tmp_path / "home", hide_payloads=True)
    try:
        for table in ("dead_letters", "source_errors", "events"):
            done = backend.execute(f"SELECT * FROM forebay_catalog.{table}", "me")
            assert done.error is not None
            assert done.error.code == "FB8004"
        assert backend.execute("SELECT * FROM v", "me").error is None
    finally:
        backend.close()


def test_control_characters_and_turned_text_are_shown_as_what_they_are() -> None:
    assert inert("\x1b[31m\u202ex\x00\ud800") == "␛[31m\\u202ex␀?"
    assert value_of({"\x1b": [b"\xff", 2**60, float("nan"), {"a": "\x07"}]}) == {
        "␛": ["0xff", str(2**60), "nan", {"a": "␇"}]
    }


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_origin_may_link_here_and_loads_nothing(backend: Backend, site: str) -> None:
    """`same-site` is also another port of this machine, whose requests carry our cookie."""
    ask = served(backend)
    loaded = ask("GET", "/api/sources", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})
    linked = ask("GET", "/api/sources", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})
    own = ask("GET", "/api/sources", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"})
    assert (loaded.status_code, linked.status_code, own.status_code) == (403, 200, 200)


def test_who_guesses_tokens_waits_and_others_do_not(backend: Backend) -> None:
    access = Access.with_token(TOKEN)
    for _ in range(MOST_FAILED):
        assert not access.is_guessing("192.0.2.1")
        access.failed("192.0.2.1")
    assert access.is_guessing("192.0.2.1")
    assert not access.is_guessing("192.0.2.2")
    ask = served(backend, TOKEN + "-guessed")
    wrong = {"Authorization": "Bearer wrong-wrong-wrong-wrong"}
    for _ in range(MOST_FAILED):
        assert "not the token" in ask("GET", "/api/sources", headers=wrong).text
    right = {"Authorization": f"Bearer {TOKEN}-guessed"}
    assert "too many" in ask("GET", "/api/sources", headers=right).text
    form = {"Origin": f"http://127.0.0.1:{PORT}"}
    assert ask("POST", "/login", data={"token": f"{TOKEN}-guessed"}, headers=form).status_code == 429
    assert ask("GET", "/healthz").status_code == 200


def test_a_websocket_ends_with_the_login_that_it_was_opened_with(backend: Backend) -> None:
    access = Access.with_token(TOKEN)
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append((await receive())["type"])
        access.logout(login)
        heard.append((await receive())["type"])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.receive", "text": "click"}

    async def send(message: Any) -> None: ...

    login = access.login()
    host = f"127.0.0.1:{PORT}".encode()
    cookie = f'odd="; =; forebay_{PORT}={login}'.encode()
    scope = {
        "type": "websocket", "path": "/_nicegui_ws/", "query_string": b"",
        "headers": [(b"host", host), (b"origin", b"http://" + host), (b"cookie", cookie)],
    }  # fmt: skip
    asyncio.run(Safety(app, access, "127.0.0.1", PORT)(scope, receive, send))
    assert heard == ["websocket.receive", "websocket.disconnect"]


def test_a_login_leads_back_to_the_page_that_was_asked_for(backend: Backend) -> None:
    ask = served(backend, TOKEN)
    answer = ask("GET", "/source?name=a%26b", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    shown = ask("GET", answer.headers["location"]).text
    assert 'value="/source?name=a%26b"' in shown


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "1e3"])
def test_a_length_that_is_no_number_is_refused(backend: Backend, length: str) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/api/sources", "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", length.encode("latin-1"))],
    }  # fmt: skip
    asyncio.run(served(backend).app(scope, receive, send))
    assert sent[0]["status"] == 403
