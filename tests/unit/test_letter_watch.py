"""Topics of letters of pools and agents are found whenever they appear, and one that cannot be looked at is said so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from waiting import eventually

from forebay.deadletter.desk import LetterDesk
from forebay.deadletter.outcomes import Outcomes
from forebay.errors import UnknownTopicError, UnreachableError
from forebay.runtime.home import Home
from forebay.web import letter_watch
from forebay.web.backend import Backend
from forebay.web.letter_watch import LetterWatch


class Topics:
    """What there is, and what was looked at."""

    def __init__(self) -> None:
        self.there: dict[str, Exception | None] = {}
        self.seen: list[str] = []

    def all(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, {}) for name in self.there]

    def look_at(self, topic: str, options: Mapping[str, str]) -> None:
        if (error := self.there[topic]) is not None:
            raise error
        self.seen.append(topic)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    monkeypatch.setattr(letter_watch, "EVERY_S", 0.01)
    return Topics()


@pytest.fixture
def watch(topics: Topics) -> Iterator[LetterWatch]:
    made = LetterWatch(topics.all, topics.look_at)
    yield made
    made.close()


def test_an_agent_that_appears_later_is_looked_at_and_each_once(topics: Topics, watch: LetterWatch) -> None:
    topics.there["first"] = None
    eventually(lambda: topics.seen == ["first"], "the first is looked at")
    topics.there["second"] = UnknownTopicError("not made yet")
    topics.there["third"] = None
    eventually(lambda: topics.seen == ["first", "third"], "so is one that comes later")
    assert watch.problems() == []
    topics.there["second"] = None
    eventually(lambda: topics.seen == ["first", "third", "second"], "and one whose topic is made later")


def test_a_topic_that_cannot_be_looked_at_is_a_problem_until_it_can(
    topics: Topics, watch: LetterWatch
) -> None:
    topics.there["t"] = UnreachableError("nobody is there", remedy="start it")
    (found,) = eventually(watch.problems, "it is said")
    assert (found.title, found.message, found.remedy) == (
        "the letters in topic t are not shown", "nobody is there", "start it",
    )  # fmt: skip
    topics.there["t"] = None
    eventually(lambda: watch.problems() == [], "it is over")


def test_a_password_that_is_not_written_down_is_said_on_the_overview(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    backend = Backend(home)
    catalog = Home(home)
    desk = LetterDesk(catalog, Outcomes(home / "catalog.db"), list, lambda source: {})
    given = {"bootstrap.servers": "127.0.0.1:1", "kafka.sasl.password": "literal-password"}

    def look_at(topic: str, options: Mapping[str, str]) -> None:
        desk.watch_topic(topic, **options)

    topics.there["pool-dlq"] = None
    backend._letters = LetterWatch(lambda: [("pool-dlq", given)], look_at)
    try:
        problem = eventually(
            lambda: next((each for each in backend.overview().problems if "pool-dlq" in each.title), None),
            "the overview says so",
        )
        assert "kafka.sasl.password" in problem.message
        assert "${NAME}" in problem.remedy
        assert "literal-password" not in repr(problem)
    finally:
        backend.close()
        desk.close()
        catalog.close()
