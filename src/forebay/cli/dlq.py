"""`forebay dlq`: dead letters looked at, explained, repaired, sent again, put away."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from forebay.cli.attach import Attached, AttachOption
from forebay.cli.inspect import DEFAULT_HOME, HomeOption
from forebay.cli.letter_choice import (
    ConfigOption,
    IdOption,
    KindOption,
    LetterBrokersOption,
    OneSource,
    SourceOption,
    TopicOption,
    WhereOption,
    Whose,
    must_select,
    narrowed,
)
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_rows, words
from forebay.errors import UnreachableError
from forebay.files import Draft

if TYPE_CHECKING:
    from forebay.deadletter.desk_views import LetterGroup
    from forebay.deadletter.entry import Entry
    from forebay.deadletter.letters import DeadLetters
    from forebay.deadletter.stats import LetterStats
    from forebay.runtime.home import Home
    from forebay.runtime.results import Result

dlq_app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Records that did not decode or were not handled, from the letter to the repair.\n\n"
    "A source with ON ERROR = 'dead_letter', a pool with a dead.letter.topic and the agents of a blackboard keep each of "
    "them, byte for byte, with the reason. "
    "Find out what is wrong ([bold]groups[/], [bold]stats[/], [bold]ls[/], [bold]show[/]); then send them again, as they are or repaired "
    "([bold]replay[/]), or put them away ([bold]discard[/], [bold]reopen[/]). A letter is sent once, however often you ask.\n\n"
    "A day with it:\n\n"
    "  forebay dlq stats --source orders\n\n"
    "  forebay dlq show --source orders orders/3/12345\n\n"
    '  forebay dlq replay --source orders --where "error_kind = \'SchemaMismatch\'" --patch \'{"currency": "EUR"}\' --dry-run\n\n'
    "Of a pool or an agent, which are no sources of this home:\n\n"
    "  forebay dlq ls --topic orders-dlq --brokers localhost:9092\n\n"
    "In SQL: SELECT … FROM forebay_catalog.dead_letters, and REPLAY | DISCARD | REOPEN | RECOVER DEAD LETTERS FROM orders.",
)

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="say what would happen, and do nothing")]


@dlq_app.command()
def ls(
    source: SourceOption = None,
    where: WhereOption = None,
    kind: KindOption = None,
    limit: Annotated[int, typer.Option(help="show the newest so many; 0 is all")] = 50,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """List letters, the newest first.

    Examples: forebay dlq ls -s orders · forebay dlq ls -s orders -w "state = 'open' AND partition = 3" -o jsonl
    """
    if attach is not None:
        from forebay.cli import attached_letters

        attached_letters.refuse(topic=topic, brokers=brokers, config=config)
        attached_letters.ls(Attached(attach), source, where, kind, limit, output)
        return
    with _opened(home) as at:
        chosen = [
            narrowed(each, where, kind) for each in Whose.of(home, source, topic, brokers, config).all(at)
        ]
        if output is OutputFormat.JSONL and not limit:
            for letters in chosen:
                with _watched(letters) as reading:
                    show_rows((_plain(entry) for entry in reading), output)
            return
        count = 0
        newest: list[tuple[int, int, Entry]] = []
        for letters in chosen:
            with _watched(letters) as reading:
                for entry in reading:
                    count += 1
                    item = (entry.letter.failed_at_ms, count, entry)
                    if not limit or len(newest) < limit:
                        heapq.heappush(newest, item)
                    else:
                        heapq.heappushpop(newest, item)
        rows = [entry for _, _, entry in sorted(newest, reverse=True)]
        if output is not OutputFormat.TABLE:
            show_rows([_plain(entry) for entry in rows], output)
            return
        if rows:
            from forebay.cli.letter_views import draw_list

            draw_list(rows, len(chosen) > 1, Console())
        if count > len(rows):
            words.print(f"the newest {len(rows):,} of {count:,}; --limit 0 shows all", highlight=False)
        if not count:
            _say_none(chosen, topic)


@dlq_app.command()
def show(
    id: Annotated[str, typer.Argument(help="a letter's id: topic/partition/offset, as ls shows it")],
    source: OneSource = None,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """Explain one letter: what was tried, where it failed, what the record holds, what to do.

    Examples: forebay dlq show -s orders orders/3/12345 · forebay dlq show -s orders 3/12345 -o json
    """
    if attach is not None:
        from forebay.cli import attached_letters

        attached_letters.refuse(topic=topic, brokers=brokers, config=config)
        attached_letters.show(Attached(attach), source, id, output)
        return
    with _opened(home) as at:
        letters = Whose.of(home, source, topic, brokers, config).one(at)
        with _watched(letters) as reading:
            found = reading.explain(id)
        if output is OutputFormat.TABLE:
            from forebay.cli.letter_views import draw

            draw(found, Console())
            return
        fields = {
            **_plain(found.entry),
            "tried": dict(found.tried),
            "failed_in": found.part,
            "failed_from_byte": found.span[0] if found.span else None,
            "failed_to_byte": found.span[1] if found.span else None,
            "now": found.now,
            "remedy": found.remedy,
            "letter": found.entry.letter.to_json(),
        }
        show_rows([fields], output)


@dlq_app.command()
def stats(
    source: SourceOption = None,
    where: WhereOption = None,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """Count letters by kind, state, field, partition and hour.

    Examples: forebay dlq stats · forebay dlq stats -s orders -w "state = 'open'" -o json
    """
    if attach is not None:
        from forebay.cli import attached_letters

        attached_letters.refuse(topic=topic, brokers=brokers, config=config)
        attached_letters.stats(Attached(attach), source, where, output)
        return
    from forebay.cli.letter_views import draw_stats, stats_rows

    with _opened(home) as at:
        chosen = [
            narrowed(each, where, None) for each in Whose.of(home, source, topic, brokers, config).all(at)
        ]
        counted: list[tuple[DeadLetters, LetterStats]] = []
        for letters in chosen:
            with _watched(letters) as reading:
                counted.append((letters, reading.stats()))
        if output is not OutputFormat.TABLE:
            show_rows(
                [row for each, found in counted for row in stats_rows(each.source, found, each.kept_out())],
                output,
            )
            return
        for each, found in counted:
            draw_stats(each.source, found, Console())
            if kept_out := each.kept_out():
                words.print(
                    f"{kept_out:,} more bad records of '{each.source}' have no letter: max_errors_per_second kept them out. "
                    f"Write them, as long as the topic holds them: forebay dlq recover {each.flags}",
                    markup=False, highlight=False, soft_wrap=True,
                )  # fmt: skip
        if not counted:
            _say_none(chosen, topic)


@dlq_app.command()
def groups(
    source: SourceOption = None,
    state: Annotated[
        Literal["open", "replayed", "failed_again", "discarded", "all"],
        typer.Option(help="letters in this state"),
    ] = "open",
    limit: Annotated[int, typer.Option(help="show the largest so many; 0 is all")] = 20,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Group letters with the same fault: by source, kind, field and message, whatever the values in it are.

    Letters are looked up in an index of the home; only what is new is read.

    Examples: forebay dlq groups · forebay dlq groups -s orders --state all -o json
    """
    from forebay.cli.progress_bar import Waiting

    with _opened(home) as at, at.letter_desk() as desk:
        with Waiting("reading letters that are new") as waiting:
            known = desk.refresh(source, 600.0, waiting)
        if source is not None and known.error is not None:
            raise UnreachableError(f"the letters of '{source}' cannot be read: {known.error}")
        found = desk.groups(source, state)
        shown = found.groups[: limit or None]
        if output is not OutputFormat.TABLE:
            show_rows([_group_row(group) for group in shown], output)
            return
        if shown:
            from forebay.cli.letter_views import draw_groups

            draw_groups(shown, Console())
        more = len(found.groups) - len(shown)
        if more:
            words.print(f"and {more:,} more; --limit 0 shows all", highlight=False)
        if not shown:
            words.print(
                "no such letters" + (f" of '{source}'" if source else ""), markup=False, highlight=False
            )
        for each in desk.owners():
            if each.index.error and source in (None, each.name):
                words.print(
                    f"the letters of '{each.name}' cannot be read: {each.index.error}",
                    markup=False,
                    highlight=False,
                )


@dlq_app.command()
def replay(
    source: OneSource = None,
    where: WhereOption = None,
    kind: KindOption = None,
    id: IdOption = None,
    to: Annotated[
        str | None, typer.Option("--to", help="a topic; the one that the records came from if not given")
    ] = None,
    patch: Annotated[
        str | None, typer.Option("--patch", help="a JSON merge patch (RFC 7386) on each record's value")
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            metavar="FIELD/PATTERN/TEXT",
            help="in a field, what a regular expression matches becomes another text; / may be any other character "
            "that is in none of the three",
        ),
    ] = None,
    with_: Annotated[
        str | None,
        typer.Option(
            "--with", help="module:function, which takes a Letter and gives bytes, or None to leave it"
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="all open letters")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="send so many at most")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="send so many a second at most")] = None,
    dry_run: DryRun = False,
    unsure: Annotated[
        Literal["sent", "unsent"] | None,
        typer.Option(help="of a replay that was killed, if the topic has lost what would tell"),
    ] = None,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """Send open letters' records again: their own bytes, or repaired ones. Each once, also if this is killed.

    A record that fails again gets a new letter, and its first one becomes failed_again. A dry run decodes what would be
    sent, and says what would be refused again. Ends with 1 if some could not be sent.

    Examples:

      forebay dlq replay -s orders --all --dry-run

      forebay dlq replay -s orders --all --limit 10

      forebay dlq replay -s orders -k SchemaMismatch --patch '{"currency": "EUR"}'

      forebay dlq replay -s orders -k TypeConversion --replace 'price/ EUR$/' --dry-run

      forebay dlq replay -s orders --all --rate 100 --with repairs:cents_to_euros --to orders-repaired
    """
    must_select(where, kind, id, all_)
    if attach is not None:
        from forebay.cli import attached_letters as elsewhere

        elsewhere.refuse(
            topic=topic, brokers=brokers, config=config, replace=replace, with_=with_, limit=limit, rate=rate, unsure=unsure
        )  # fmt: skip
        rest = f" TO {elsewhere.quoted(to)}" if to else ""
        rest += f" PATCH {elsewhere.quoted(patch)}" if patch else ""
        elsewhere.put(Attached(attach), "REPLAY", source, where, kind, id, rest, dry_run, output)
        return
    with _opened(home) as at:
        letters = narrowed(Whose.of(home, source, topic, brokers, config).one(at), where, kind, id)
        with _watched(letters) as reading:
            how = "with a patch" if patch or replace else f"with {with_}" if with_ else "as they are"
            with _noted(home, "replay dead letters", letters.source, how, dry_run):
                report = reading.replay(
                    to=to, patch=patch, replace=replace or (), repair=with_,
                    dry_run=dry_run, unsure=unsure, limit=limit, rate=rate,
                )  # fmt: skip
        from forebay.runtime.letter_statements import replayed

        _say(replayed(report), output)
        if dry_run and output is OutputFormat.TABLE:
            for outgoing in report.examples:
                value = outgoing.shown or b""
                text = value[:200].decode(errors="replace") + ("…" if len(value) > 200 else "")
                words.print(f"  {outgoing.entry.id}: {text}", markup=False, highlight=False)
        if report.problem_count:
            raise typer.Exit(1)


@dlq_app.command()
def export(
    source: SourceOption = None,
    where: WhereOption = None,
    kind: KindOption = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="write here; to stdout if not given", dir_okay=False)
    ] = None,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Write letters as JSON lines: raw_bytes_base64, error_message, error_kind, …

    Examples: forebay dlq export -s orders -f letters.jsonl · forebay dlq export -s orders | jq .error_message
    """
    with _opened(home) as at:
        chosen = [
            narrowed(each, where, kind) for each in Whose.of(home, source, topic, brokers, config).all(at)
        ]
        written = 0
        with Draft(file, "w") if file else nullcontext() as draft:
            for letters in chosen:
                with _watched(letters) as reading:
                    written += reading.export(draft.file if draft else sys.stdout)
        words.print(
            f"{written:,} letters written{f' to {file}' if file else ''}", markup=False, highlight=False
        )


@dlq_app.command()
def discard(
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="why; it stays with the letter", show_default=False)
    ],
    source: OneSource = None,
    where: WhereOption = None,
    kind: KindOption = None,
    id: IdOption = None,
    all_: Annotated[bool, typer.Option("--all", help="all open letters")] = False,
    dry_run: DryRun = False,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
    attach: AttachOption = None,
) -> None:
    """Mark open letters as not wanted: no replay sends them. Their bytes stay where they are.

    Examples: forebay dlq discard -s orders --id orders/3/12345 -r "load test" · forebay dlq discard -s orders --all -r old
    """
    must_select(where, kind, id, all_)
    if attach is not None:
        from forebay.cli import attached_letters as elsewhere

        elsewhere.refuse(topic=topic, brokers=brokers, config=config)
        rest = f" REASON {elsewhere.quoted(reason)}"
        elsewhere.put(Attached(attach), "DISCARD", source, where, kind, id, rest, dry_run, output)
        return
    with _opened(home) as at:
        letters = narrowed(Whose.of(home, source, topic, brokers, config).one(at), where, kind, id)
        with (
            _watched(letters) as reading,
            _noted(home, "discard dead letters", letters.source, reason, dry_run),
        ):
            count = reading.discard(reason, dry_run=dry_run)
        from forebay.runtime.letter_statements import put

        _say(put("discarded", letters.source, count, dry_run), output)


@dlq_app.command()
def reopen(
    source: OneSource = None,
    where: WhereOption = None,
    kind: KindOption = None,
    id: IdOption = None,
    all_: Annotated[bool, typer.Option("--all", help="all discarded letters")] = False,
    dry_run: DryRun = False,
    topic: TopicOption = None,
    brokers: LetterBrokersOption = None,
    config: ConfigOption = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Take a discard back: letters that are discarded are open again, and a replay sends them.

    Examples: forebay dlq reopen -s orders --id orders/3/12345 · forebay dlq reopen -s orders -w "state_reason = 'old'"
    """
    must_select(where, kind, id, all_)
    with _opened(home) as at:
        letters = narrowed(Whose.of(home, source, topic, brokers, config).one(at), where, kind, id)
        with (
            _watched(letters) as reading,
            _noted(home, "reopen dead letters", letters.source, "", dry_run),
        ):
            count = reading.reopen(dry_run=dry_run)
        from forebay.runtime.letter_statements import put

        _say(put("reopened", letters.source, count, dry_run), output)


@dlq_app.command()
def recover(
    source: OneSource = None,
    dry_run: DryRun = False,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Write letters for what max_errors_per_second kept out, as long as the source's topic still holds it.

    Example: forebay dlq recover -s orders
    """
    with _opened(home) as at:
        with (
            _watched(Whose.of(home, source).one(at)) as reading,
            _noted(home, "recover dead letters", reading.source, "", dry_run),
        ):
            report = reading.recover(dry_run=dry_run)
        from forebay.runtime.letter_statements import recovered

        _say(recovered(report), output)


@contextmanager
def _noted(home: Path, action: str, source: str, detail: str, dry_run: bool) -> Iterator[None]:
    """A change of letters, in the home's audit log."""
    if dry_run:
        yield
        return
    from forebay import actors
    from forebay.catalog.audit import AuditLog

    log = AuditLog(home.expanduser().resolve())
    try:
        with log.noted(actors.current(), action, source, detail):
            yield
    finally:
        log.close()


def _group_row(group: LetterGroup) -> dict[str, Any]:
    """A row of `dlq groups -o json`."""
    from forebay.deadletter.entry import moment

    return {
        "group": group.id,
        "source": group.source,
        "error_kind": group.kind,
        "field": group.field,
        "pattern": group.pattern,
        "letters": group.letters,
        "states": dict(group.counts),
        "first_at": moment(group.first_ms),
        "last_at": moment(group.last_ms),
        "samples": list(group.samples),
    }


def _opened(home: Path) -> Home:
    from forebay.runtime.home import Home

    return Home(home)


@contextmanager
def _watched(letters: DeadLetters) -> Iterator[DeadLetters]:
    from forebay.cli.progress_bar import Waiting

    with Waiting(f"reading letters of {letters.source}") as waiting:
        yield letters.watched_by(waiting)


def _say(result: Result, output: OutputFormat) -> None:
    """What was done: in words for people, as a row for programs."""
    if output is OutputFormat.TABLE:
        for line in result.notes:
            print(line)
    else:
        show_rows(result.rows(), output)


def _plain(entry: Entry) -> dict[str, Any]:
    """A row of `-o json`: what a program wants to filter by; the bytes are in `export` and `show`."""
    row = entry.row([name for name in entry.row() if name not in ("key_bytes", "value_bytes", "headers")])
    return {"id": row.pop("id"), **row}


def _say_none(chosen: list[DeadLetters], topic: str | None) -> None:
    if not chosen and topic is not None:
        words.print(f"there are no letters in topic '{topic}'", markup=False, highlight=False)
    elif not chosen:
        words.print(
            "no source of this home writes dead letters (CREATE SOURCE … ON ERROR = 'dead_letter' WITH (…)), and no "
            "topic with somebody else's was named (--topic, --brokers)",
            markup=False,
        )
    hint = "; without --source everybody's there are shown" if topic is not None else ""
    for letters in chosen:
        words.print(
            f"no such letters of '{letters.source}' in {letters.place}{hint}", markup=False, highlight=False
        )
