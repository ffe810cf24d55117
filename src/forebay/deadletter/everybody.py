"""Whose letters a desk looks at: the sources of its home, and everybody who has letters in a topic that is watched."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from forebay.deadletter.desk_views import IndexState, OwnerKind, OwnerView
from forebay.deadletter.follow import Followed, Follower, place_name
from forebay.deadletter.foreign import system_of
from forebay.deadletter.index import LetterIndex
from forebay.deadletter.letterbox import Place
from forebay.deadletter.letters import DeadLetters
from forebay.deadletter.owners import Owner, cluster_of, topic_options
from forebay.errors import ForebayError, OptionValueError, UnknownObjectError, UnsupportedSqlError
from forebay.files import write_whole
from forebay.kafka.options import KAFKA
from forebay.options import Options

log = logging.getLogger("forebay.deadletter")

KEPT_S = 3.0  # how long a list of owners is used: a source that is new is seen after that
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class LetterHome(Protocol):
    """What a desk needs of a home: `runtime.home.Home` is one."""

    @property
    def path(self) -> Path: ...

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters: ...


@dataclass(frozen=True)
class Who:
    """An owner with what is known of its letters. `writer` is its number in the index; None while it has no letter there."""

    owner: Owner
    letters: DeadLetters
    kind: OwnerKind
    followed: Followed
    writer: int | None


class WatchedTopics:
    """A file in the home: topics with their brokers and options. Secrets are in it as references alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return []
        except ValueError:
            log.warning("%s is damaged, and left out: no topic is watched", self._path)
            return []

    def put(self, topic: str, options: Mapping[str, str]) -> None:
        rest = [each for each in self.all() if not _is(each, topic, options.get("bootstrap.servers"))]
        self._write([*rest, {"topic": topic, "options": dict(options)}])

    def remove(self, topic: str, brokers: str | None) -> None:
        self._write([each for each in self.all() if not _is(each, topic, brokers)])

    def _write(self, topics: list[dict[str, Any]]) -> None:
        write_whole(self._path, json.dumps(topics, indent=1).encode())


def _is(each: Mapping[str, Any], topic: str, brokers: str | None) -> bool:
    return (each["topic"], each["options"].get("bootstrap.servers")) == (topic, brokers)


class Everybody:
    """The owners of a desk. Making the list asks no broker but for writers that are new."""

    def __init__(
        self,
        home: LetterHome,
        sources: Callable[[], Sequence[str]],
        watched: WatchedTopics,
        index: LetterIndex,
        follower: Follower,
    ) -> None:
        self._home, self._sources, self._watched = home, sources, watched
        self._index, self._follower = index, follower
        self._lock = threading.RLock()
        self._made = 0.0
        self._known: dict[str, Who] = {}
        self._unreadable: list[OwnerView] = []
        self._places: list[Followed] = []
        self._found: dict[tuple[str, str], DeadLetters] = {}  # writers of watched topics, by place and name
        self._kept: dict[str, tuple[str, DeadLetters]] = {}  # sources, with their definitions
        self._named_places: dict[str, tuple[str, Options]] = {}  # by owner's key

    # -- watched topics -------------------------------------------------------------------------------

    def watch(self, topic: str, brokers: str | None, options: Mapping[str, str]) -> None:
        given = {**options, **({"bootstrap.servers": brokers} if brokers else {})}
        for name, value in given.items():
            if KAFKA.is_secret(name) and not _REFERENCE.fullmatch(value):
                raise OptionValueError(
                    f"'{name}' is a secret, and is not written down",
                    option=name,
                    remedy="put it into the environment, and name it: '${NAME}'",
                )
        cluster_of(topic, topic_options(topic, given))
        self._watched.put(topic, given)
        self.all(anew=True)

    def forget(self, topic: str, brokers: str | None) -> None:
        self._watched.remove(topic, brokers)
        self.all(anew=True)

    def watched(self) -> tuple[tuple[str, str | None], ...]:
        return tuple(
            (each["topic"], each["options"].get("bootstrap.servers")) for each in self._watched.all()
        )

    # -- owners ---------------------------------------------------------------------------------------

    def all(self, *, anew: bool = False) -> dict[str, Who]:
        """By key."""
        with self._lock:
            if anew or not self._made or time.monotonic() - self._made > KEPT_S:
                self._make()
            return self._known

    def one(self, key: str) -> Who:
        """UnknownObjectError."""
        for anew in (False, True):
            found = self.all(anew=anew).get(key)
            if found is not None:
                return found
        raise UnknownObjectError(
            f"nobody of the name '{key}' has dead letters here",
            remedy="there are: "
            + (", ".join(self._known) or "none")
            + "; others are found by their topic, once it is watched",
        )

    def chosen(self, key: str | None) -> dict[str, Who]:
        return self.all() if key is None else {key: self.one(key)}

    def unreadable(self) -> tuple[OwnerView, ...]:
        """Sources whose letters cannot be looked at, with why."""
        return tuple(self._unreadable)

    def places(self) -> list[Followed]:
        return list(self._places)

    def _make(self) -> None:
        letters: dict[str, DeadLetters] = {}
        unreadable: list[OwnerView] = []
        names = list(self._sources())
        for name in names:
            try:
                letters[name] = self._of_source(name)
                self._place(letters[name].owner)
            except UnsupportedSqlError:
                continue  # its policy writes none
            except ForebayError as error:
                letters.pop(name, None)
                state = IndexState(0, -1, False, None, error.message)
                unreadable.append(OwnerView(name, name, "source", "", {}, 0, (), state))
        watched = [(each["topic"], self._options(each), each["options"]) for each in self._watched.all()]
        there = [(Place(topic=topic), options) for topic, options, _ in watched if options is not None]
        for topic, options, given in watched:
            if options is not None:
                for found in self._writers(topic, options, given, set(names)):
                    letters.setdefault(found.owner.key, found)
        places = {key: self._place(each.owner) for key, each in letters.items()}
        owners = [(each.owner, *places[key]) for key, each in letters.items()]
        self._places = self._follower.follow(owners, there)
        by_name = {each.name: each for each in self._places}
        self._known = {}
        for key, found in letters.items():
            owner = found.owner
            followed = by_name[places[key][0]]
            number = (
                followed.number if followed.number is not None else self._index.known_place(followed.name)
            )
            writer = None if number is None else self._index.writers(number).get(owner.name)
            kind: OwnerKind = "source" if key in names else _kind(owner.name)
            self._known[key] = Who(owner, found, kind, followed, writer)
        self._unreadable = unreadable
        self._made = time.monotonic()

    def _of_source(self, name: str) -> DeadLetters:
        """Made anew when the source's definition is another: checking its options takes longer than all else here."""
        kept = self._kept.get(name)
        if kept is not None and kept[1].owner.definition() == kept[0]:
            return kept[1]
        found = self._home.dead_letters(name)
        self._kept[name] = (found.owner.definition(), found)
        self._named_places.pop(found.owner.key, None)
        return found

    def _place(self, owner: Owner) -> tuple[str, Options]:
        """Its place's name, and how it is reached. A secret that is not known is found out here."""
        if owner.key not in self._named_places:
            options = owner.place.options(owner.options)
            self._named_places[owner.key] = (place_name(owner.place, options), options)
        return self._named_places[owner.key]

    @staticmethod
    def _options(each: Mapping[str, Any]) -> Options | None:
        try:
            return topic_options(each["topic"], each["options"])
        except ForebayError as error:
            log.warning("the letters of topic '%s' cannot be looked at: %s", each["topic"], error.message)
            return None

    def _writers(
        self, topic: str, options: Options, given: Mapping[str, str], sources: set[str]
    ) -> Sequence[DeadLetters]:
        """Who has letters in a topic, as far as the index has it."""
        place = place_name(Place(topic=topic), options)
        number = self._index.known_place(place)
        found = []
        for name in self._index.writers(number) if number is not None else ():
            if name in sources:
                continue  # it is an owner already
            if (place, name) not in self._found:
                try:
                    self._found[place, name] = self._home.dead_letters(name, topic=topic, options=given)
                except ForebayError as error:
                    log.warning("the letters of '%s' cannot be looked at: %s", name, error.message)
                    continue
            found.append(self._found[place, name])
        return found


def _kind(name: str) -> OwnerKind:
    system = system_of(name)
    return system if system in ("connect", "spring", "streams") else "forebay"  # type: ignore[return-value]
