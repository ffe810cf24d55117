"""How a letter and the counts of letters look in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forebay.deadletter.entry import Entry, moment, text_of
from forebay.deadletter.outcomes import LetterState
from forebay.deadletter.stats import HOUR_MS, LetterStats

if TYPE_CHECKING:
    from forebay.deadletter.desk_views import LetterGroup
    from forebay.deadletter.explain import Explanation, Line

BAR = 40  # columns
HOURS = 48  # as many rows as fit a screen
MARK = "bold reverse red"
STATES = {
    LetterState.OPEN: "yellow",
    LetterState.REPLAYED: "green",
    LetterState.FAILED_AGAIN: "red",
    LetterState.DISCARDED: "dim",
}


def draw_list(entries: Sequence[Entry], several: bool, console: Console) -> None:
    """A line a letter; ids stay whole, to be copied."""
    grid = Table(show_edge=False, pad_edge=False, header_style="bold")
    if several:
        grid.add_column("source", no_wrap=True)
    grid.add_column("id", no_wrap=True)
    for name in ("failed_at", "error_kind", "state"):
        grid.add_column(name, no_wrap=True)
    grid.add_column("error_message", overflow="fold", ratio=1)
    for entry in entries:
        letter = entry.letter
        grid.add_row(
            *([letter.source] if several else []),
            entry.id,
            f"{moment(letter.failed_at_ms):%Y-%m-%d %H:%M:%S}",
            letter.kind,
            Text(str(entry.outcome.state), STATES[entry.outcome.state]),
            Text(entry.shown.message),
        )
    console.print(grid)


SPARKS = " ▁▂▃▄▅▆▇█"


def draw_groups(groups: Sequence[LetterGroup], console: Console) -> None:
    """A line a group, with its letters over time."""
    grid = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in ("source", "error_kind", "field"):
        grid.add_column(name, no_wrap=True)
    grid.add_column("letters", justify="right", no_wrap=True)
    grid.add_column("over time", no_wrap=True)
    grid.add_column("last", no_wrap=True)
    grid.add_column("message", overflow="fold", ratio=1)
    for group in groups:
        most = max(group.buckets, default=0) or 1
        line = "".join(SPARKS[-(-count * (len(SPARKS) - 1) // most)] for count in group.buckets[-20:])
        grid.add_row(
            Text(group.source),
            Text(group.kind),
            Text(group.field or ""),
            f"{group.letters:,}",
            Text(line, "red"),
            f"{moment(group.last_ms):%Y-%m-%d %H:%M:%S}",
            Text(group.pattern),
        )
    console.print(grid)


def draw(found: Explanation, console: Console) -> None:
    """All about one letter."""
    letter, outcome = found.entry.letter, found.entry.outcome
    console.print(
        Text.assemble((letter.kind, "bold red"), f": {letter.message}"), soft_wrap=not console.is_terminal
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, value in _facts(found):
        grid.add_row(label, Text(value))
    for label, value in found.tried:
        grid.add_row(f"tried {label}", Text(value))
    grid.add_row("it now", Text(found.now))
    if outcome.state != "open":
        grid.add_row("state", Text(f"{outcome.state}{f': {outcome.reason}' if outcome.reason else ''}"))
    console.print(grid)
    console.print()
    _draw_bytes(found, console)
    if letter.stacktrace:
        console.print("the handler's traceback:", highlight=False)
        console.print(Text(letter.stacktrace.rstrip(), "dim"), soft_wrap=True)
        console.print()
    console.print(
        Text.assemble(("remedy", "bold green"), f"  {found.remedy}"), soft_wrap=not console.is_terminal
    )


def _facts(found: Explanation) -> Iterable[tuple[str, str]]:
    letter = found.entry.letter
    yield "record", f"{letter.topic}, partition {letter.partition}, offset {letter.offset}"
    yield "source", letter.source
    written, failed = moment(letter.timestamp_ms), moment(letter.failed_at_ms)
    if written is not None:
        yield "written", f"{written:%Y-%m-%d %H:%M:%S} UTC"
    yield "refused", f"{failed:%Y-%m-%d %H:%M:%S} UTC"
    if letter.field:
        yield "field", letter.field
    if letter.key is not None:
        yield "key", text_of(letter.key) or f"0x{letter.key.hex()}"
    for name, data in letter.headers:
        yield (
            "header",
            f"{name} = {text_of(data) if data is None or text_of(data) is not None else '0x' + data.hex()}",
        )
    if found.entry.replayed_from:
        yield "replay of", found.entry.replayed_from


def _draw_bytes(found: Explanation, console: Console) -> None:
    letter = found.entry.letter
    payload = letter.key if found.part == "key" else letter.value
    if payload is None:
        kept = "is not in the letter (include_raw_message = false)" if not letter.whole else "is null"
        console.print(f"the {found.part} {kept}\n", highlight=False)
        return
    size = letter.size if found.part == "value" else len(payload)
    place = f", failed at byte {found.span[0]}" if found.span else ""
    console.print(f"{found.part}, {size:,} bytes{place}:", highlight=False)
    before = 0
    for line in found.lines:
        if line.at != before:
            console.print(Text("          …", "dim"))
        console.print(line_text(line))
        if line.marked:
            console.print(_carets(line))
        before = line.at + len(line.data)
    if found.hidden:
        console.print(Text(f"          … {found.hidden:,} bytes more in the letter", "dim"))
    if found.masked:
        console.print(Text("          some of it is masked: mask of the source", "dim"))
    elif not letter.whole and found.part == "value":
        console.print(
            Text(
                f"          the letter has {len(payload):,} of {size:,} bytes; sha256 {letter.sha256}", "dim"
            )
        )
    console.print()


def line_text(line: Line) -> Text:
    """Offset, bytes in hex, the same as text; what is at fault stands out in both."""
    from forebay.deadletter.explain import WIDTH

    text = Text(f"{line.at:08x}  ", "dim")
    for place in range(WIDTH):
        if place == WIDTH // 2:
            text.append(" ")
        if place < len(line.data):
            text.append(f"{line.data[place]:02x}", MARK if place in line.marked else "")
            text.append(" ")
        else:
            text.append("   ")
    text.append(" │")
    for place, byte in enumerate(line.data):
        text.append(chr(byte) if 32 <= byte < 127 else "·", MARK if place in line.marked else "")
    text.append("│")
    return text


def _carets(line: Line) -> Text:
    """Under the bytes at fault, in hex and in text: colours do not reach a log file."""
    from forebay.deadletter.explain import WIDTH

    marks = "".join(
        (" " if place == WIDTH // 2 else "") + ("^^ " if place in line.marked else "   ")
        for place in range(WIDTH)
    )
    below = "".join("^" if place in line.marked else " " for place in range(len(line.data)))
    return Text(f"{' ' * 10}{marks}  {below}".rstrip(), "red")


def stats_rows(source: str, found: LetterStats, kept_out: int) -> list[dict[str, Any]]:
    """For programs: a row a count."""
    rows: list[dict[str, Any]] = [
        {"source": source, "by": "total", "what": None, "letters": found.total},
        {"source": source, "by": "kept_out", "what": None, "letters": kept_out},
    ]
    for label, counter in (("error_kind", found.kinds), ("state", found.states), ("field", found.fields)):
        rows += [
            {"source": source, "by": label, "what": what, "letters": n} for what, n in counter.most_common()
        ]
    rows += [
        {"source": source, "by": "partition", "what": f"{topic}/{number}", "letters": n}
        for (topic, number), n in sorted(found.partitions.items())
    ]
    rows += [
        {"source": source, "by": "hour", "what": f"{moment(hour):%Y-%m-%dT%H:%M:%SZ}", "letters": n}
        for hour, n in sorted(found.hours.items())
    ]
    return rows


def draw_stats(source: str, found: LetterStats, console: Console) -> None:
    console.print(
        Text.assemble(
            (source, "bold"),
            f"  {found.total:,} letter{'' if found.total == 1 else 's'}, {found.bytes:,} bytes of records",
        ),
        highlight=False,
    )
    if not found.total:
        return
    _bars("kind", found.kinds.most_common(), console)
    _bars("state", found.states.most_common(), console)
    if found.fields:
        _bars("field", found.fields.most_common(10), console)
    partitions = [(f"{topic}-{number}", n) for (topic, number), n in sorted(found.partitions.items())]
    _bars("partition", partitions, console)
    _bars("hour (UTC)", list(_hours(found)), console)
    console.print()


def _hours(found: LetterStats) -> Iterable[tuple[str, int]]:
    """Hour by hour, the quiet ones too, up to the newest; of a longer time the busy hours alone."""
    first, last = min(found.hours), max(found.hours)
    whole = (last - first) // HOUR_MS + 1
    hours = range(first, last + 1, HOUR_MS) if whole <= HOURS else sorted(found.hours)[-HOURS:]
    for hour in hours:
        yield f"{moment(hour):%Y-%m-%d %H}h", found.hours[hour]


def _bars(title: str, counts: list[tuple[str, int]], console: Console) -> None:
    most = max((count for _, count in counts), default=0) or 1
    grid = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    grid.add_column(title, min_width=20, overflow="fold")
    grid.add_column("letters", justify="right")
    grid.add_column("")
    for label, count in counts:
        grid.add_row(Text(label), f"{count:,}", Text("█" * max(count > 0, round(BAR * count / most)), "red"))
    console.print()
    console.print(grid)
