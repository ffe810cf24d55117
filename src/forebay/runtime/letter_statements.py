"""REPLAY, DISCARD, REOPEN and RECOVER DEAD LETTERS: what they did, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from forebay import sql
from forebay.deadletter.recovery import RecoveryReport
from forebay.deadletter.replay import ReplayReport
from forebay.runtime.dead_letters import DeadLetters
from forebay.runtime.results import Result

LetterStatement = (
    sql.ReplayDeadLetters | sql.DiscardDeadLetters | sql.ReopenDeadLetters | sql.RecoverDeadLetters
)
SHOWN = 10  # problems


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


def letters_of(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"


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


def replay_words(report: ReplayReport) -> list[str]:
    """What a replay did, for people."""
    verb = "would be sent" if report.dry_run else "sent"
    lines = [f"{letters_of(report.sent)} of '{report.source}' {verb} to '{report.target}'"]
    if report.found:
        lines.append(
            f"{letters_of(report.found)} had been sent by a replay that was killed, and were not sent again"
        )
    if report.not_open:
        lines.append(f"{letters_of(report.not_open)} left out: replayed or discarded before")
    if report.left:
        lines.append(f"{letters_of(report.left)} left open by the repair")
    if report.problem_count:
        lines.append(f"{letters_of(report.problem_count)} could not be sent and stay open:")
        lines += _some(report.problems, report.problem_count)
    if report.refused_count:
        lines.append(f"{report.refused_count:,} would be refused again:")
        lines += _some(report.refused, report.refused_count)
    elif report.judged and report.sent:
        lines.append("the source would take " + ("it" if report.sent == 1 else "all of them"))
    return lines


def _some(letters: Sequence[tuple[str, str]], count: int) -> list[str]:
    """The first of them, and how many more there are."""
    lines = [f"  {id}: {why}" for id, why in letters[:SHOWN]]
    return [*lines, f"  and {count - SHOWN:,} more"] if count > SHOWN else lines


def recovered(report: RecoveryReport) -> Result:
    row = {
        "source": report.source,
        "kept_out": report.kept_out,
        "recovered": report.recovered,
        "gone": report.gone,
        "changed": report.changed,
        "dry_run": report.dry_run,
    }
    verb = "can be written for" if report.dry_run else "written for"
    lines = [f"{letters_of(report.recovered)} {verb} records that the rate limit kept out"]
    if report.gone:
        lines.append(f"{report.gone:,} are gone: the topic has lost them")
    if report.changed:
        lines.append(
            f"{report.changed:,} are not bad any more: the source takes them now, or they were compacted away"
        )
    if report.ranges:
        hidden = len(report.ranges) - SHOWN
        more = f" and {hidden:,} more" if hidden > 0 else ""
        lines.append(f"  in {', '.join(report.ranges[:SHOWN])}{more}")
    if not report.kept_out:
        lines = [f"the rate limit has kept nothing of '{report.source}' out"]
    return Result.of(tuple(row), [tuple(row.values())], lines)
