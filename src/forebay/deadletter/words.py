"""What was done with letters, in words for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.deadletter.recovery import RecoveryReport
    from forebay.deadletter.replay import ReplayReport

SHOWN = 10  # letters that something is wrong with


def letters_of(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"


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


def recovery_words(report: RecoveryReport) -> list[str]:
    """What a recovery did, for people."""
    if not report.kept_out:
        return [f"the rate limit has kept nothing of '{report.source}' out"]
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
    return lines
