"""The dead-letter desk: groups of letters, one letter in all detail, repairs tried out, replays that run behind.

What a dashboard and an HTTP API show. A desk keeps an index of all letters (`index.py`), so that no click reads a
whole topic. All methods may be called from any thread, and may block; what a method says is as of the index, and
`IndexState` tells how far that is behind. What is masked (option `mask` of a source) is masked in all that a desk
gives; a replay sends the true bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol

from forebay.deadletter.desk_views import (
    EditForm,
    Fate,
    IndexState,
    LetterGroup,
    LetterGroups,
    LetterPage,
    LetterRow,
    LetterView,
    OwnerView,
    Preview,
    ReplayStatus,
    Selection,
    StateFilter,
    Trial,
)
from forebay.deadletter.edits import placed_in_json, with_value
from forebay.deadletter.entry import Entry
from forebay.deadletter.everybody import Everybody, LetterHome, WatchedTopics, Who
from forebay.deadletter.fates import Fates
from forebay.deadletter.follow import Follower
from forebay.deadletter.group_counts import counted_groups, holds
from forebay.deadletter.identity import Identity
from forebay.deadletter.index import IndexRow, LetterIndex
from forebay.deadletter.letter import Letter
from forebay.deadletter.letter_show import view_of
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.owners import complete
from forebay.deadletter.positions import letters_at
from forebay.deadletter.repair import RepairError
from forebay.deadletter.replacing import Replacement
from forebay.deadletter.replay_job import BackgroundReplay, Batches, IndexedReader
from forebay.deadletter.trials import Trials
from forebay.errors import (
    MissingOptionError,
    OptionConflictError,
    OptionValueError,
    StatementError,
    UnknownObjectError,
)

__all__ = ["LetterDesk", "LetterHome", "ReplayJob"]

log = logging.getLogger("forebay.deadletter")

FIRST_S = 0.3  # for letters that nobody has looked at yet
AGAIN_S = 5.0  # for a letter that the index does not have: it may be new
CLOSE_S = 10.0
PAGE_MOST = 1000
SAMPLES_MOST = 50
SEARCHED = 5000  # letters that a search looks at, the newest
SEARCH_S = 2.0
SEARCH_CHUNK = 500
BATCH = 2000  # letters looked up at once
LETTERS_KEPT = 64
LETTER_KEPT = 1 << 20  # bytes
JOBS_KEPT = 100
ANSWERS_KEPT = 64


class ReplayJob(Protocol):
    """A replay that runs in a thread of its own."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> ReplayStatus: ...

    def stop(self) -> None:
        """Between two chunks. What is sent is settled, once; the rest stays open. Returns at once."""
        ...

    def wait(self, timeout: float | None = None) -> ReplayStatus:
        """Until it has ended, or so many seconds."""
        ...


class LetterDesk:
    """All that can be done with letters, for many users at a time. Close it when done."""

    def __init__(
        self,
        home: LetterHome,
        outcomes: Outcomes,
        sources: Callable[[], Sequence[str]],
        committed: Callable[[str], Mapping[tuple[str, int], int]] | None = None,
    ) -> None:
        """`sources()` are the names of the home's sources; `committed(source)` where its group stands, by partition.

        Without `committed` the brokers are asked.
        """
        folder = home.path / "dead_letters"
        self._outcomes = outcomes
        self._index = LetterIndex(folder, home.path / "catalog.db")
        self._follower = Follower(self._index, outcomes, committed)
        self._everybody = Everybody(
            home, sources, WatchedTopics(folder / "watched.json"), self._index, self._follower
        )
        self._trials = Trials()
        self._fates = Fates(self._index)
        self._jobs: list[BackgroundReplay] = []
        self._lock = threading.RLock()
        self._letters: OrderedDict[tuple[str, str], Letter] = OrderedDict()
        self._answers: dict[tuple[object, ...], tuple[int, tuple[LetterGroup, ...]]] = {}

    def __enter__(self) -> LetterDesk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop replays that run, between two transactions, and the reading."""
        with self._lock:
            running = [job for job in self._jobs if job.running]
        for job in running:
            job.stop()
        for job in running:
            job.wait(CLOSE_S)
        self._follower.close()
        self._index.close()

    # -- whose letters --------------------------------------------------------------------------------

    def owners(self) -> tuple[OwnerView, ...]:
        """Sources of the home that write letters, and who has letters in topics that are watched."""
        self._look()
        known = self._everybody.all()
        writers = {key: who.writer for key, who in known.items() if who.writer is not None}
        counts = self._index.counts(list(writers.values()))
        found = [
            OwnerView(
                key,
                who.owner.name,
                who.kind,
                str(who.owner.place),
                counts.get(writers.get(key, -1), {}),
                who.owner.kept_out(),
                tuple(who.owner.options.get("mask") or ()),
                who.followed.state,
            )
            for key, who in known.items()
        ]
        return tuple(found) + self._everybody.unreadable()

    def watch_topic(self, topic: str, brokers: str | None = None, **options: str) -> None:
        """Look at the letters of a topic, too: of pools, agents, Kafka Connect, Spring, Kafka Streams. Remembered.

        `options` are those of a Kafka source (`kafka.*`, `mask`), secrets by reference (`'${NAME}'`) alone.
        `UnknownTopicError`, `UnreachableError`.
        """
        self._everybody.watch(topic, brokers, options)
        self._look()

    def forget_topic(self, topic: str, brokers: str | None = None) -> None:
        """Do not look there any more. The letters stay where they are."""
        self._everybody.forget(topic, brokers)

    def watched(self) -> tuple[tuple[str, str | None], ...]:
        """Topic and brokers of all that are watched."""
        return self._everybody.watched()

    def refresh(
        self,
        owner: str | None = None,
        timeout: float = 30.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexState:
        """Wait until the index has all that was there when this was called, or for so many seconds."""
        deadline = time.monotonic() + timeout
        self._everybody.all(anew=True)
        look = self._follower.begin()
        while not self._follower.ended(look, min(0.2, max(0.01, deadline - time.monotonic()))):
            state = self._state(owner)
            if progress is not None:
                progress(state.indexed, state.indexed + max(0, state.behind))
            if time.monotonic() > deadline:
                break
        self._everybody.all(anew=True)  # writers that nobody knew of before their letters were read
        self._follower.settle()
        state = self._state(owner)
        if progress is not None:
            progress(state.indexed, state.indexed + max(0, state.behind))
        return state

    # -- looking --------------------------------------------------------------------------------------

    def groups(
        self,
        owner: str | None = None,
        state: StateFilter = "open",
        since_ms: int | None = None,
        buckets: int = 30,
    ) -> LetterGroups:
        """Letters with the same fault, by source, kind, field and message. `since_ms`: refused in that minute or later."""
        self._look()
        known = self._everybody.chosen(owner)
        keys = {who.writer: key for key, who in known.items() if who.writer is not None}
        asked = (tuple(sorted(keys)), state, since_ms, buckets)
        version = self._index.version()
        with self._lock:
            kept = self._answers.get(asked)
        if kept is None or kept[0] != version:
            kept = (version, counted_groups(self._index, keys, known, state, since_ms or 0, buckets))
            with self._lock:
                if len(self._answers) > ANSWERS_KEPT:
                    self._answers.clear()
                self._answers[asked] = kept
        return LetterGroups(kept[1], self._state(owner))

    def group(self, id: str) -> LetterGroup:
        """One of them, with all states counted. `UnknownObjectError`."""
        self._look()
        who = self._of_group(id)
        assert who.writer is not None
        found = counted_groups(
            self._index, {who.writer: who.owner.key}, {who.owner.key: who}, "all", 0, 30, group=id
        )
        if not found:
            raise UnknownObjectError(f"there is no group '{id}' any more", remedy="ask for the groups again")
        return found[0]

    def letters(
        self,
        group: str | None = None,
        state: StateFilter = "open",
        page: int = 0,
        size: int = 50,
        search: str | None = None,
        owner: str | None = None,
    ) -> LetterPage:
        """Some letters of a group, an owner or all. `search` looks at ids, keys, values, headers and messages.

        Masked values are not found. A search looks at the newest SEARCHED letters.
        """
        self._look()
        size, page = max(1, min(size, PAGE_MOST)), max(0, page)
        known = (
            {who.owner.key: who for who in [self._of_group(group)]}
            if group
            else self._everybody.chosen(owner)
        )
        by_writer = {who.writer: who for who in known.values() if who.writer is not None}
        writers = list(by_writer)
        searched = None
        if search:
            looked = self._index.rows(writers, state, group, limit=SEARCHED)
            found, searched = self._search(looked, by_writer, search)
            total, rows = len(found), found[page * size : (page + 1) * size]
        else:
            total = self._index.count(writers, state, group)
            rows = self._index.rows(writers, state, group, limit=size, offset=page * size)
        listed = tuple(self._row(row, by_writer[row.writer]) for row in rows)
        return LetterPage(listed, total, page, size, searched, self._state(owner))

    def letter(self, owner: str, id: str) -> LetterView:
        """`UnknownObjectError` if there is no letter of that id."""
        self._follower.asked()
        self._follower.settle()
        who, row = self._named(owner, id)
        letter = self._read(who, row)
        record = complete(letter, who.owner.options)
        known, mask = self._trials.of(who.owner)
        outcome = self._outcomes.of(who.owner.key, letter)
        return view_of(
            self._row(row, who),
            Entry(letter, outcome, mask),
            record,
            who.owner,
            known,
            mask,
            self._outcomes.history(who.owner.key, letter),
            self._fates.of(who, row)[1],
        )

    def fates(self, owner: str, ids: Sequence[str]) -> Mapping[str, Fate]:
        """What became of these letters' records, as of now."""
        self._look()
        return {id: self._fates.of(*self._named(owner, id))[0] for id in ids}

    # -- trying ---------------------------------------------------------------------------------------

    def dry_run(self, owner: str, id: str, value: bytes, form: EditForm = "text") -> Trial:
        """Decode an edited value as the source is defined now. `•••` stands for what the record has there."""
        who, row = self._named(owner, id)
        letter = complete(self._read(who, row), who.owner.options)
        try:
            true = self._trials.edits(who.owner).value(letter, value, form)
        except StatementError as error:
            if form == "text":
                raise
            return Trial(False, None, message=error.message)  # while it is typed, nothing is wrong with that
        trial = self._trials.judge(who.owner, with_value(letter, true))
        return trial if form == "text" else placed_in_json(trial, value.decode())

    def preview(
        self, group: str, patch: str | None, samples: int = 5, replace: Sequence[Replacement] = ()
    ) -> tuple[Preview, ...]:
        """What replacements and a JSON merge patch (RFC 7386) make of some letters, and whether it decodes.

        `OptionValueError` if one of them is wrong.
        """
        who = self._of_group(group)
        assert who.writer is not None
        edits = self._trials.edits(who.owner)
        repair = edits.repair(patch, replace)
        rows = self._index.rows([who.writer], "open", group, limit=max(1, min(samples, SAMPLES_MOST)))
        found = []
        for row, letter in letters_at(who.followed.place, who.followed.options, rows):
            record = complete(letter, who.owner.options)
            before = edits.shown(record)
            try:
                made = repair(record)
                if made is None:
                    raise RepairError("nothing of it changes: it stays open")
            except RepairError as error:
                found.append(Preview(row.id, before, None, None, str(error)))
                continue
            after = with_value(record, made)
            found.append(Preview(row.id, before, edits.shown(after), self._trials.judge(who.owner, after)))
        return tuple(found)

    # -- doing ----------------------------------------------------------------------------------------

    def replay(
        self,
        selection: Selection,
        *,
        actor: str,
        value: bytes | None = None,
        form: EditForm = "text",
        patch: str | None = None,
        replace: Sequence[Replacement] = (),
        rate: float | None = None,
        to: str | None = None,
    ) -> ReplayJob:
        """Send open letters again, in the background: their own bytes, one with an edited value, or each patched.

        Each goes to the topic that it came from, unless `to` names one. `AlreadyRunningError` while letters of that owner
        are being replayed. `OptionConflictError` for both a value and a patch, or a value for several letters.
        """
        patched = patch is not None or bool(replace)
        if value is not None and (patched or len(selection.ids) != 1):
            raise OptionConflictError(
                "an edited value is for one letter, and without a patch", option="value"
            )
        if rate is not None and not rate > 0:
            raise OptionValueError("'rate' is a number of letters a second, more than 0", option="rate")
        who = self._everybody.one(selection.owner)
        who.owner.check()
        _, mask = self._trials.of(who.owner)
        edits = self._trials.edits(who.owner)
        repair = edits.repair(patch, replace) if patched else None
        if value is not None:
            record = complete(self._read(*self._named(selection.owner, selection.ids[0])), who.owner.options)
            true = edits.value(record, value, form)
            repair = lambda letter: true  # noqa: E731
        with ExitStack() as stack:
            stack.enter_context(who.letters.alone("replay"))
            batches, total, topics = self._selected(who, selection, "open")
            # Without letters: those of a replay that was killed may be found to be sent.
            targets = {to: batches} if to else _own_topics(batches, topics or who.owner.topics()[:1])
            readers = {
                target: IndexedReader(who.owner, self._outcomes, rows, mask)
                for target, rows in targets.items()
            }
            job = BackgroundReplay(
                who.owner, self._outcomes, readers, total,
                actor=actor, repair=repair, rate=rate, held=stack.pop_all(),
                settled=self._follower.settle, fates=self._fates_of,
            )  # fmt: skip
        with self._lock:
            ended = [each for each in self._jobs if not each.running]
            for each in ended[: max(0, len(self._jobs) - JOBS_KEPT)]:
                self._jobs.remove(each)
            self._jobs.append(job)
        self._follower.asked()
        job.start()
        return job

    def jobs(self) -> tuple[ReplayStatus, ...]:
        """Replays of this desk, the newest first. They are forgotten with the desk; what they sent is not."""
        with self._lock:
            found = list(self._jobs)
        return tuple(job.status for job in reversed(found))

    def job(self, id: str) -> ReplayJob:
        """`UnknownObjectError`."""
        with self._lock:
            for each in self._jobs:
                if each.id == id:
                    return each
        raise UnknownObjectError(
            f"there is no replay '{id}'", remedy="it may be of another process, or long over"
        )

    def discard(self, selection: Selection, reason: str, *, actor: str) -> int:
        """Mark open letters as not wanted. How many."""
        who = self._everybody.one(selection.owner)
        done = 0
        with who.letters.alone("discard"):
            batches, _, _ = self._selected(who, selection, "open")
            for rows in batches():
                marks = {row.identity: row.mark for row in rows if row.state == "open"}
                self._outcomes.discard(who.owner.key, marks, reason, actor)
                done += len(marks)
        self._follower.settle()
        log.info(
            "event=letters_discarded source=%s count=%d reason=%r actor=%s",
            who.owner.name,
            done,
            reason,
            actor,
        )
        return done

    def reopen(self, selection: Selection, *, actor: str) -> int:
        """Take a discard back. How many."""
        who = self._everybody.one(selection.owner)
        done = 0
        with who.letters.alone("reopen"):
            batches, _, _ = self._selected(who, selection, "discarded")
            for rows in batches():
                wanted = [row.identity for row in rows if row.state == "discarded"]
                self._outcomes.reopen(who.owner.key, wanted, actor)
                done += len(wanted)
        self._follower.settle()
        log.info("event=letters_reopened source=%s count=%d actor=%s", who.owner.name, done, actor)
        return done

    # -- inside ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """The index follows while somebody looks. What is there for the first time is waited for a moment."""
        known = self._everybody.all()
        self._follower.asked()
        states = [who.followed.state for who in known.values()]
        unseen = any(state.looked_at_ms is None and state.error is None for state in states)
        if unseen and self._follower.ended(self._follower.begin(), FIRST_S):
            self._everybody.all(anew=True)
        self._follower.settle()

    def _state(self, owner: str | None) -> IndexState:
        """Of the one that is furthest behind."""
        found = [who.followed.state for who in self._everybody.chosen(owner).values()]
        found = found or [each.state for each in self._everybody.places()]
        if not found:
            return IndexState(0, 0, False, None)
        return max(found, key=lambda state: (state.behind < 0, state.behind, state.error is not None))

    def _of_group(self, id: str) -> Who:
        found = self._index.group(id)
        if found is not None:
            for who in self._everybody.all().values():
                if who.writer == found[0]:
                    return who
        raise UnknownObjectError(f"there is no group '{id}'", remedy="ask for the groups again")

    def _named(self, owner: str, id: str) -> tuple[Who, IndexRow]:
        try:
            identity = Identity.parse(id)
        except ValueError:
            raise UnknownObjectError(
                f"'{id}' is no letter's id",
                remedy="an id is topic/partition/offset, as a list of letters has it",
            ) from None
        for again in (False, True):
            if again:
                self.refresh(owner, AGAIN_S)
            who = self._everybody.one(owner)
            rows = [] if who.writer is None else self._index.named(who.writer, identity)
            if len(rows) == 1:
                return who, rows[0]
            if rows:
                raise UnknownObjectError(
                    f"'{who.owner.name}' has {len(rows)} letters '{id}': the topic was deleted and made again",
                    remedy="name one of them: " + ", ".join(row.id for row in rows),
                )
        raise UnknownObjectError(f"'{who.owner.name}' has no letter '{id}' in {who.owner.place}")

    def _read(self, who: Who, row: IndexRow) -> Letter:
        """A letter itself; those that were looked at last are kept, for an edit that is tried with every key."""
        key = (who.owner.key, f"{row.part} {row.at} {row.id}")
        with self._lock:
            if key in self._letters:
                self._letters.move_to_end(key)
                return self._letters[key]
        for _, letter in letters_at(who.followed.place, who.followed.options, [row]):
            with self._lock:
                if len(letter.value or b"") <= LETTER_KEPT:
                    self._letters[key] = letter
                while len(self._letters) > LETTERS_KEPT:
                    self._letters.popitem(last=False)
            return letter
        raise UnknownObjectError(f"the letter '{row.id}' is not in {who.owner.place} any more")

    def _row(self, row: IndexRow, who: Who) -> LetterRow:
        return LetterRow(
            row.id, who.owner.key, row.group, row.kind, row.field, row.pattern, row.topic, row.partition, row.offset,
            row.failed_at_ms, row.timestamp_ms, row.size, row.state, row.state_at_ms, self._fates.of(who, row)[0],
        )  # fmt: skip

    def _search(
        self, rows: Sequence[IndexRow], known: Mapping[int, Who], search: str
    ) -> tuple[list[IndexRow], int]:
        """Those that hold a text, as far as they may be shown; and how many were looked at before the time was over."""
        wanted, deadline = search.casefold(), time.monotonic() + SEARCH_S
        found = {
            row.number
            for row in rows
            if wanted in f"{row.id} {row.kind} {row.field} {row.pattern}".casefold()
        }
        looked = 0
        for start in range(0, len(rows), SEARCH_CHUNK):
            chunk = rows[start : start + SEARCH_CHUNK]
            for writer in {row.writer for row in chunk}:
                who = known[writer]
                _, mask = self._trials.of(who.owner)
                left = [row for row in chunk if row.writer == writer and row.number not in found]
                for row, letter in letters_at(who.followed.place, who.followed.options, left):
                    if holds(mask.letter(letter) if mask else letter, wanted):
                        found.add(row.number)
            looked += len(chunk)
            if time.monotonic() > deadline:
                break
        return [row for row in rows if row.number in found], looked

    def _selected(self, who: Who, selection: Selection, state: str) -> tuple[Batches, int, list[str]]:
        """Letters in a state, how many there are, and the topics of their records. Under the owner's lock."""
        self._follower.settle()
        if selection.ids:
            named = [self._named(selection.owner, id)[1] for id in dict.fromkeys(selection.ids)]
            rows = [row for row in named if row.state == state]
            return (
                lambda: iter([rows] if rows else []),
                len(rows),
                sorted({row.topic for row in rows or named}),
            )
        if who.writer is None:
            return lambda: iter(()), 0, []
        if selection.group is None and not selection.all:
            raise MissingOptionError("which letters?", remedy="name ids, a group, or all")
        if selection.group is not None and self._of_group(selection.group) is not who:
            raise OptionConflictError(
                f"group '{selection.group}' is not of '{who.owner.name}'", option="group"
            )
        # As of now: what comes to a letter again meanwhile is not sent again by the same replay.
        numbers = self._index.numbers(who.writer, state, selection.group)
        topics = self._index.topics(who.writer, state, selection.group)
        starts = range(0, len(numbers), BATCH)
        return (
            lambda: (self._index.numbered(numbers[start : start + BATCH]) for start in starts),
            len(numbers),
            topics,
        )

    def _fates_of(self, owner: str, replay_ids: Sequence[str]) -> Mapping[str, int]:
        who = self._everybody.one(owner)
        return Counter(self._fates.of(who, row)[0] for row in self._index.replayed(replay_ids))


def _own_topics(batches: Batches, topics: Sequence[str]) -> dict[str, Batches]:
    """The letters of each topic."""

    def of(topic: str) -> Batches:
        return lambda: ([row for row in rows if row.topic == topic] for rows in batches())

    return {topic: of(topic) for topic in topics} if len(topics) > 1 else dict.fromkeys(topics, batches)
