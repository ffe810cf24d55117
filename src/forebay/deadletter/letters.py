"""`session.dead_letters("orders")`: somebody's letters, and all that can be done with them."""

from __future__ import annotations

import dataclasses
import json
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from forebay import locks
from forebay.deadletter.entry import Condition, Entry, batch_of, everything, schema
from forebay.deadletter.forgetting import forget_gone
from forebay.deadletter.identity import Identity
from forebay.deadletter.letter import Letter
from forebay.deadletter.letterbox import Letterbox, LetterReader, Place, Progress, silent
from forebay.deadletter.outcomes import LetterState, Outcomes, mark_of
from forebay.deadletter.owners import Owner, mask_of
from forebay.deadletter.repair import Repair, checked, function
from forebay.deadletter.stats import LetterStats, count
from forebay.errors import (
    AlreadyRunningError,
    MissingOptionError,
    OptionConflictError,
    UnknownObjectError,
    UnsupportedSqlError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay.deadletter.explain import Explanation
    from forebay.deadletter.recovery import RecoveryReport
    from forebay.deadletter.replay import ReplayReport, Unsure

# The SQL parser, Arrow and what decodes records are imported where they are used: listing letters needs none of them.

log = logging.getLogger("forebay.deadletter")

CHUNK = 500  # letters whose outcome is written down, or that are made a batch of, at once


@dataclass(frozen=True, repr=False)
class DeadLetters:
    """The letters of one owner, or those that a condition selects. Iterate over it, or call a verb.

        for entry in session.dead_letters("orders").where("error_kind = 'TypeConversion'"):
            print(entry.id, entry.letter.message, entry.outcome.state)

    `Session.dead_letters()` gives it. Selecting with `where` and `only` reads nothing. Iterating, and every verb, reads
    the letters from where they are, and blocks meanwhile: `UnreachableError` where no broker answers. `replay`,
    `discard`, `reopen` and `recover` raise an `AlreadyRunningError` while another process does one of these.
    """

    _owner: Owner
    _outcomes: Outcomes
    _home: Path
    _wanted: Condition = everything
    _progress: Progress = silent
    _flags: str = ""

    def __repr__(self) -> str:
        chosen = "" if self._wanted is everything else ", selected by a condition"
        return f"<dead letters of {self.source} in {self.place}{chosen}>"

    @property
    def source(self) -> str:
        """Who wrote them: a source, a pool, an agent."""
        return self._owner.name

    @property
    def place(self) -> Place:
        """Where they are."""
        return self._owner.place

    @property
    def owner(self) -> Owner:
        """Whose they are, with how the brokers are reached."""
        return self._owner

    def where(self, text: str | Any) -> DeadLetters:
        """Those of them that a condition holds for, such as `partition = 3 AND error_kind = 'SchemaMismatch'`.

        A `StatementError` shows what of the condition is wrong. Its columns are those of `forebay_catalog.dead_letters`.
        """
        from forebay import sql
        from forebay.deadletter.where import condition

        asked = condition(sql.parse_condition(text) if isinstance(text, str) else text)
        before = self._wanted
        return dataclasses.replace(self, _wanted=lambda entry: before(entry) and asked(entry))

    def only(self, ids: Sequence[str]) -> DeadLetters:
        """Those of these ids. Without the topic's id in it, an id names all letters of its place."""
        named = [self._identity(id) for id in ids]
        before = self._wanted
        return dataclasses.replace(
            self, _wanted=lambda entry: before(entry) and any(map(entry.identity.is_named_by, named))
        )

    def watched_by(self, progress: Progress) -> DeadLetters:
        """The same, with somebody who hears how far the reading has got."""
        return dataclasses.replace(self, _progress=progress)

    def named_by(self, flags: str) -> DeadLetters:
        """The same, for whoever gave these flags to a command: a remedy repeats them."""
        return dataclasses.replace(self, _flags=flags)

    @property
    def flags(self) -> str:
        """How a `forebay dlq` command names whose letters these are."""
        if "--source" in self._flags.split():
            return self._flags
        return f"--source {shlex.quote(self.source)} {self._flags}".rstrip()

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self._reader().entries(self._progress) if self._wanted(entry))

    def get(self, id: str) -> Entry:
        """The letter of one record: `topic/partition/offset`, or `partition/offset` if there is one topic.

        If the topic was deleted and made again there may be two of these; the topic's id as a fourth part tells which.
        """
        wanted = self._identity(id)
        found = [entry for entry in self if entry.identity.is_named_by(wanted)]
        if not found:
            raise UnknownObjectError(
                f"'{self.source}' has no letter '{id}' in {self.place}",
                remedy=f"forebay dlq ls {self.flags} lists them",
            )
        if len(found) > 1:
            raise UnknownObjectError(
                f"'{self.source}' has {len(found)} letters '{id}' in {self.place}: the topic was deleted and made again",
                remedy="name one of them: " + ", ".join(str(entry.identity) for entry in found),
            )
        return found[0]

    def explain(self, id: str) -> Explanation:
        """All that is known about one letter: the bytes at fault, what decoding it says today, what to do.

        `UnknownObjectError` if there is no letter of that id.
        """
        self._owner.check()
        found = self._owner.explain(self.get(id), self.flags)
        if found.entry.mask is None:
            return found
        from forebay.deadletter.explain import masked_explanation

        return masked_explanation(found, found.entry.mask)

    def stats(self) -> LetterStats:
        """They are counted: by kind, state, partition, hour and field."""
        return count(self)

    def kept_out(self) -> int:
        """How many bad records have no letter, because of the rate limit; `recover` writes them."""
        return self._owner.kept_out()

    def arrow(self) -> pa.Table:
        """All of them in memory, in the columns of `forebay_catalog.dead_letters`."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches()), schema())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same columns as `arrow()`, a batch at a time: for more letters than memory holds."""
        for chunk in _chunks(self):
            yield batch_of(chunk)

    def export(self, to: IO[str]) -> int:
        """Write them as JSON lines, a letter with its state a line, and return how many. What is masked is not in them."""
        written = 0
        for entry in self:
            to.write(json.dumps({**entry.shown.to_json(), "state": str(entry.outcome.state)}) + "\n")
            written += 1
        return written

    def discard(self, reason: str, *, dry_run: bool = False) -> int:
        """Mark the open ones: they are not wanted. Their bytes stay where they are. How many."""
        done = 0
        with self.alone("discard"):
            for chunk in _chunks(self):
                wanted = {e.identity: mark_of(e.letter) for e in chunk if e.outcome.state is LetterState.OPEN}
                if not dry_run:
                    self._outcomes.discard(self._owner.key, wanted, reason)
                done += len(wanted)
        if not dry_run:
            log.info("event=letters_discarded source=%s count=%d reason=%r", self.source, done, reason)
        return done

    def reopen(self, *, dry_run: bool = False) -> int:
        """Take a discard back: those of them that are discarded are open again. How many."""
        done = 0
        with self.alone("reopen"):
            for chunk in _chunks(self):
                wanted = [e.identity for e in chunk if e.outcome.state is LetterState.DISCARDED]
                if not dry_run:
                    self._outcomes.reopen(self._owner.key, wanted)
                done += len(wanted)
        if not dry_run:
            log.info("event=letters_reopened source=%s count=%d", self.source, done)
        return done

    def replay(
        self,
        *,
        to: str | None = None,
        patch: str | None = None,
        replace: Sequence[str] = (),
        repair: Callable[[Letter], bytes | None] | str | None = None,
        dry_run: bool = False,
        unsure: Unsure | None = None,
        limit: int | None = None,
        rate: float | None = None,
    ) -> ReplayReport:
        """Send the open ones again, each once: their own bytes, or what a patch or a function makes of them.

        `patch` is a JSON merge patch (RFC 7386); `replace` are replacements in fields, which
        come before it, as `FIELD/PATTERN/TEXT`: `price/ EUR$/`. Avro and Protobuf
        are decoded for them, and encoded in the same schema again. `repair` a function, or its name as `module:function`,
        that takes a Letter and gives the new value, or None to leave the letter open. `unsure` says whether
        the records of a replay that was killed were "sent" or "unsent", where the topic cannot tell any more.
        `limit` is the most letters to send, `rate` the most a second. A dry run sends nothing, and says which records
        the source would refuse again.

        Each goes to the topic that it came from, unless `to` names one. Blocks until all are sent and written down.
        `OptionConflictError` for both a patch and a repair. A letter that cannot be sent stays open; the
        report says why.
        """
        from forebay.deadletter.replay import Replayer, ReplayReport

        if (patch is not None or replace) and repair is not None:
            raise OptionConflictError("a replay has a patch or a function, not both")
        made: Repair | None = None
        if patch is not None or replace:
            from forebay.deadletter.edits import Edits
            from forebay.deadletter.replacing import Replacement

            made = Edits.of(self._owner.source()).repair(patch, [Replacement.parse(each) for each in replace])
        elif repair is not None:
            made = function(repair) if isinstance(repair, str) else checked(repair)
        self._owner.check()
        with ExitStack() as held:
            if not dry_run:
                held.enter_context(self.alone("replay"))
            targets = [to] if to else self._targets()
            report = ReplayReport(self.source, ", ".join(targets) or "no topic", dry_run)
            for target in targets:
                wanted = self._wanted if len(targets) == 1 else _of_topic(self._wanted, target)
                left = None if limit is None else limit - report.sent
                replayer = Replayer(self._reader(), self._outcomes, self._owner.options, target)
                try:
                    if dry_run:
                        judge = self._owner.judge(target)
                        replayer.dry_run(wanted, made, self._progress, limit=left, judge=judge, report=report)
                    else:
                        replayer.run(
                            wanted, made, self._progress, unsure, limit=left, rate=rate, report=report
                        )
                finally:
                    replayer.close()
        log.info(
            "event=letters_replayed source=%s target=%s sent=%d found=%d left=%d failed=%d",
            self.source, report.target, report.sent, report.found, report.left, report.problem_count,
        )  # fmt: skip
        return report

    def recover(self, *, dry_run: bool = False) -> RecoveryReport:
        """Write letters for what the rate limit kept out, as far as the topic still holds it.

        Blocks while those stretches of the topic are read again. The report says what is gone.
        """
        with self.alone("recover"):
            report = self._owner.recover(self._reader().entries(), dry_run, self._progress)
        if not dry_run:
            log.info(
                "event=letters_recovered source=%s count=%d gone=%d",
                self.source,
                report.recovered,
                report.gone,
            )
        return report

    # -- inside --------------------------------------------------------------------------------------

    def _reader(self) -> LetterReader:
        owner = self._owner
        box = Letterbox(owner.place, owner.options)
        return LetterReader(owner.name, box, self._outcomes, owner.key, mask_of(owner))

    def _targets(self) -> list[str]:
        """The topics that letters go back to."""
        known = self._owner.topics()
        if len(known) == 1:
            return [str(known[0])]
        return sorted({entry.letter.topic for entry in self if entry.outcome.state is LetterState.OPEN})

    def _topic(self) -> str:
        """The topic of the records, where there is one."""
        topics = self._owner.topics()
        if len(topics) != 1:
            raise MissingOptionError(
                f"the records of '{self.source}' are not all of one topic: which one is meant?",
                option="id",
                remedy="an id is topic/partition/offset, as dlq ls shows it",
            )
        return str(topics[0])

    def _identity(self, id: str) -> Identity:
        try:
            return Identity.parse(id if id.count("/") > 1 else f"{self._topic()}/{id}")
        except ValueError:
            raise UnsupportedSqlError(
                f"'{id}' is no letter's id", remedy="an id is topic/partition/offset, as dlq ls shows it"
            ) from None

    @contextmanager
    def alone(self, verb: str) -> Iterator[None]:
        """One process at a time changes what becomes of an owner's letters."""
        folder = self._home / "dead_letters"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A pool's name may hold anything, slashes as well.
        held = locks.take(folder / f"{quote(self._owner.key, safe='@')}.lock")
        if held is None:
            raise AlreadyRunningError(
                f"somebody else replays, discards or recovers letters of '{self.source}' now",
                remedy=f"{verb} them when that is over",
            )
        try:
            yield
            forget_gone(self._owner, self._outcomes, folder)
        finally:
            held.release()


def _of_topic(wanted: Condition, topic: str) -> Condition:
    return lambda entry: entry.letter.topic == topic and wanted(entry)


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
    size = 0
    for entry in entries:
        chunk.append(entry)
        size += len(entry.letter.value or b"")
        if len(chunk) >= CHUNK or size > 16 << 20:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
