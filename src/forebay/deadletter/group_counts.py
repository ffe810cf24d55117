"""Groups of letters, counted: by state, and over time for a sparkline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from forebay.deadletter.desk_views import LetterGroup
from forebay.deadletter.everybody import Who
from forebay.deadletter.index import HOUR, MINUTE, GroupCount, LetterIndex
from forebay.deadletter.letter import Letter

GROUPS_SHOWN = 500  # the largest; a thousand kinds of fault are no help to anybody
SAMPLES = 3
LONG = 2 * 24 * HOUR  # times up to this are counted by the minute


def counted_groups(
    index: LetterIndex,
    keys: Mapping[int, str],
    known: Mapping[str, Who],
    state: str,
    since_ms: int,
    buckets: int,
    group: str | None = None,
) -> tuple[LetterGroup, ...]:
    """The largest first. `keys` are owners' keys by their writers' numbers."""
    writers = list(keys)
    span = index.span(writers, state, since_ms) if writers else None
    if span is None:
        return ()
    buckets = max(1, min(buckets, 1000))
    unit = MINUTE if span[1] - span[0] < LONG else HOUR
    first = span[0] // unit
    width = max(1, -(-(span[1] // unit - first + 1) // buckets))  # in slots
    found: dict[str, list[GroupCount]] = defaultdict(list)
    for each in index.grouped(writers, unit, first, width, since_ms, group):
        found[each.group].append(each)
    made = []
    for name, parts in found.items():
        counts: dict[str, int] = defaultdict(int)
        line = [0] * buckets
        for part in parts:
            counts[part.state] += part.letters
            if state in ("all", part.state):
                line[max(0, min(part.bucket, buckets - 1))] += part.letters
        if any(line):
            made.append((sum(line), name, parts[0], dict(counts), tuple(line)))
    made.sort(key=lambda each: (-each[0], each[1]))
    return tuple(
        LetterGroup(
            name, keys[one.writer], known[keys[one.writer]].owner.name, one.kind, one.field, one.pattern, letters, counts,
            *index.times(one.writer, name, state, since_ms), width * unit, first * unit, line,
            tuple(row.id for row in index.rows([one.writer], state, name, limit=SAMPLES)),
        )
        for letters, name, one, counts, line in made[:GROUPS_SHOWN]
    )  # fmt: skip


def holds(letter: Letter, wanted: str) -> bool:
    """Whether a letter has a text in its key, value, headers or message. `wanted` is in lower case."""
    if wanted in letter.message.casefold():
        return True
    parts = [letter.key, letter.value, *(data for _, data in letter.headers)]
    return any(
        data is not None and wanted in data.decode(errors="replace").casefold() for data in parts
    ) or any(wanted in name.casefold() for name, _ in letter.headers)
