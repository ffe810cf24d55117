"""Letters read from where the index says they lie, and nothing between them that is far away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from forebay.deadletter.foreign import letter_of
from forebay.deadletter.index import IndexRow
from forebay.deadletter.letter import Letter, NotALetterError
from forebay.deadletter.letterbox import Place, read_records
from forebay.kafka.offsets import Range
from forebay.options import Options

NEAR = 1000  # records between two letters that are read rather than jumped over: a jump takes longer


def letters_at(place: Place, options: Options, rows: Sequence[IndexRow]) -> Iterator[tuple[IndexRow, Letter]]:
    """Those that are still there, in the order in which they lie. `options` are how the place is reached."""
    found = _in_topic(place.topic, options, rows) if place.topic else _in_files(rows)
    for row, letter in found:
        if letter.identity == row.identity:
            yield row, letter


def _in_topic(topic: str, options: Options, rows: Sequence[IndexRow]) -> Iterator[tuple[IndexRow, Letter]]:
    wanted = {(int(row.part), row.at): row for row in rows}
    rounds: list[list[Range]] = []
    for partition in {part for part, _ in wanted}:
        places = sorted(at for part, at in wanted if part == partition)
        for number, (start, end) in enumerate(_runs(places)):
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(Range(topic, partition, start, end))
    for ranges in rounds:  # a reader takes one range a partition
        for messages in read_records(ranges, options):
            for message in messages:
                row = wanted.get((message.partition(), message.offset()))
                if row is not None:
                    try:
                        yield row, letter_of(message)
                    except NotALetterError:
                        continue  # the topic was deleted and made again meanwhile


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = last = places[0]
    for place in places[1:]:
        if place - last > NEAR:
            yield start, last + 1
            start = place
        last = place
    yield start, last + 1


def _in_files(rows: Sequence[IndexRow]) -> Iterator[tuple[IndexRow, Letter]]:
    by_file: dict[str, list[IndexRow]] = {}
    for row in rows:
        by_file.setdefault(row.part, []).append(row)
    for file, found in by_file.items():
        try:
            with open(file, "rb") as lines:  # noqa: PTH123
                for row in sorted(found, key=lambda row: row.at):
                    lines.seek(row.at)
                    try:
                        yield row, Letter.from_json(json.loads(lines.readline()))
                    except (NotALetterError, ValueError):
                        continue
        except FileNotFoundError:
            continue
