"""REPLAY, DISCARD, REOPEN and RECOVER DEAD LETTERS: what they did, as a table and in words."""

from __future__ import annotations

from forebay import sql
from forebay.deadletter.letters import DeadLetters
from forebay.deadletter.recovery import RecoveryReport
from forebay.deadletter.replay import ReplayReport
from forebay.deadletter.words import letters_of, recovery_words, replay_words
from forebay.runtime.results import Result

LetterStatement = (
    sql.ReplayDeadLetters | sql.DiscardDeadLetters | sql.ReopenDeadLetters | sql.RecoverDeadLetters
)


def letter_statement(statement: LetterStatement, letters: DeadLetters) -> Result:
    """Run it on the letters of its source."""
    if isinstance(statement, sql.RecoverDeadLetters):
        return recovered(letters.recover(dry_run=statement.dry_run))
    if statement.where is not None:
        letters = letters.where(statement.where)
    if isinstance(statement, sql.ReplayDeadLetters):
        return replayed(letters.replay(to=statement.target, patch=statement.patch, dry_run=statement.dry_run))
    if isinstance(statement, sql.ReopenDeadLetters):
        return put("reopened", letters.source, letters.reopen(dry_run=statement.dry_run), statement.dry_run)
    count = letters.discard(statement.reason or "", dry_run=statement.dry_run)
    return put("discarded", letters.source, count, statement.dry_run)


def put(state: str, source: str, count: int, dry_run: bool) -> Result:
    """So many letters are discarded, or reopened, or would be."""
    note = f"{letters_of(count)} {'would be ' if dry_run else ''}{state}"
    return Result.of(("source", state, "dry_run"), [(source, count, dry_run)], [note])


def replayed(report: ReplayReport) -> Result:
    row = {
        "source": report.source,
        "target": report.target,
        "selected": report.selected,
        "sent": report.sent,
        "bytes": report.bytes,
        "found": report.found,
        "not_open": report.not_open,
        "left": report.left,
        "failed": report.problem_count,
        "refused": report.refused_count if report.judged else None,
        "dry_run": report.dry_run,
    }
    return Result.of(tuple(row), [tuple(row.values())], replay_words(report))


def recovered(report: RecoveryReport) -> Result:
    row = {
        "source": report.source,
        "kept_out": report.kept_out,
        "recovered": report.recovered,
        "gone": report.gone,
        "changed": report.changed,
        "dry_run": report.dry_run,
    }
    return Result.of(tuple(row), [tuple(row.values())], recovery_words(report))
