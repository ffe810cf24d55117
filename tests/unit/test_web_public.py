"""A dashboard behind a name of one's own, or behind a proxy with TLS: `--public-url`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_web_safety import OURS, PORT, TOKEN, served

from forebay.errors import OptionValueError
from forebay.web.backend import Backend
from forebay.web.public import PublicUrl
from forebay.web.server import Dashboard

PROXY = ("https://pipelines.example",)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    found = Backend(tmp_path_factory.mktemp("public") / "home")
    yield found
    found.close()


@pytest.mark.parametrize(
    "host", ["pipelines.example", "PIPELINES.example:443", "pipelines.example:8420", f"127.0.0.1:{PORT}"]
)
def test_a_public_address_is_one_of_ours_with_and_without_its_port(backend: Backend, host: str) -> None:
    answer = served(backend, TOKEN, public=PROXY)("GET", "/api/sources", headers={"Host": host, **BEARER})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "pipelines.example.evil.example", "pipelines.example:9", "x.pipelines.example"]
)
def test_other_names_stay_refused_with_the_option_that_allows_one(backend: Backend, host: str) -> None:
    answer = served(backend, TOKEN, public=PROXY)("GET", "/api/sources", headers={"Host": host, **BEARER})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FB8004")
    assert "--public-url" in answer.json()["error"]["remedy"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [("pipelines.example", "https://pipelines.example", 200),
     (f"127.0.0.1:{PORT}", "https://pipelines.example", 200),  # a proxy that sends the server's own name
     (f"127.0.0.1:{PORT}", f"http://127.0.0.1:{PORT}", 200),
     ("pipelines.example", "http://pipelines.example", 403),  # without TLS it may be anybody's
     ("pipelines.example", "https://pipelines.example:9", 403),
     ("pipelines.example", "https://evil.example", 403),
     ("pipelines.example", "https://pipelines.example/evil", 403),
     (f"127.0.0.1:{PORT}", "https://evil.example", 403)],
)  # fmt: skip
def test_changes_come_from_pages_of_the_public_address_or_of_our_own(
    backend: Backend, host: str, origin: str, status: int
) -> None:
    headers = {"Host": host, "Origin": origin, **BEARER, **OURS}
    answer = served(backend, TOKEN, public=PROXY)(
        "POST", "/api/sql", json={"sql": "SHOW SOURCES"}, headers=headers
    )
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("host", "origin", "secure"),
    [("pipelines.example", "https://pipelines.example", True),
     (f"127.0.0.1:{PORT}", "https://pipelines.example", True),
     ("pipelines.example", None, True),
     (f"localhost:{PORT}", f"http://localhost:{PORT}", False)],
)  # fmt: skip
def test_the_cookie_of_a_login_by_tls_is_for_tls_alone(
    backend: Backend, host: str, origin: str | None, secure: bool
) -> None:
    headers = {"Host": host} | ({"Origin": origin} if origin else OURS)
    answer = served(backend, TOKEN, public=PROXY)("POST", "/login", data={"token": TOKEN}, headers=headers)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert ("Secure" in cookie) is secure
    assert "HttpOnly" in cookie


def test_a_name_without_tls_is_given_the_same_way(backend: Backend) -> None:
    ask = served(backend, TOKEN, "0.0.0.0", (f"http://pipelines.example:{PORT}",))
    host = {"Host": f"pipelines.example:{PORT}"}
    assert ask("GET", "/api/sources", headers={**host, **BEARER}).status_code == 200
    origin = {"Origin": f"http://pipelines.example:{PORT}"}
    answer = ask("POST", "/login", data={"token": TOKEN}, headers={**host, **origin})
    assert answer.status_code == 303
    assert "Secure" not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "text", ["pipelines.example", "ftp://pipelines.example", "https://", "https://p.example/forebay",
             "https://p.example:x", "https://user@p.example", "https://p.example?x=1", "https://[::1"],
)  # fmt: skip
def test_what_is_no_address_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(OptionValueError):
        PublicUrl.of(text)


@pytest.mark.parametrize("text", ["https://p.example", "http://p.example:8420", "https://[2001:db8::1]:8443"])
def test_a_public_address_is_printed_as_it_was_given(text: str) -> None:
    assert str(PublicUrl.of(text)) == str(PublicUrl.of(f"{text}/")) == text


def test_a_token_is_required_where_others_come_by_a_proxy_of_this_machine(tmp_path: Path) -> None:
    with Dashboard(Backend(tmp_path / "a"), port=0, pages=False, public=PROXY) as dashboard:
        assert dashboard.made_token is not None
    with Dashboard(Backend(tmp_path / "b"), port=0, pages=False, public=["http://localhost:9"]) as dashboard:
        assert dashboard.made_token is None
