"""Reads Spark's checkpoint: which batch was finished last, and where it ended.

The checkpoint is the truth about how far a query has got; everything else is a mirror of it. Only the
parts that Spark keeps stable are read: the file names in `offsets/` and `commits/`, the query's id in
`metadata`, and the layout of an offset file (a version line, a metadata line, then a line a source).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from forebay.connectors.contract import Offsets
from forebay.errors import CheckpointError
from forebay.runtime.checkpoint_places import CheckpointPath
from forebay.source.watermarks import CONTROL

# A batch that is repeated is left out by the tables that have it, so its commit may be forgotten.
REPEAT = "remove this file: the batch is done again, and left out by the tables that have it; nothing is lost or repeated"
# Where a batch ended is nowhere else: to plan it anew could leave records out.
RESTORE = (
    "restore this file from a backup; without one, DROP MATERIALIZED VIEW and create it again, which reads the source "
    "from its beginning. Nothing was changed"
)
NONE = "-"  # Spark's line of a source that has no offset yet


@dataclass(frozen=True)
class Checkpoint:
    """The last batch whose entry in the commit log exists, with each source's position after it."""

    query_id: str
    batch: int
    offsets: tuple[Offsets, ...]


def exists(path: CheckpointPath) -> bool:
    return (path / "metadata").is_file()


def committed(path: CheckpointPath) -> Checkpoint | None:
    """What the checkpoint has committed; None when there is none, or no batch was finished yet."""
    if not exists(path):
        return None
    batch = last_batch(path)
    if batch < 0:
        return None
    return Checkpoint(query_id(path), batch, offsets(path, batch))


def last_batch(path: CheckpointPath) -> int:
    """The last batch with an entry in the commit log; -1 before the first."""
    return max(_numbers(path / "commits"), default=-1)


def offsets(path: CheckpointPath, batch: int) -> tuple[Offsets, ...]:
    """Where a batch ends, a source an entry: from the log that Spark writes before it runs the batch."""
    file = path / "offsets" / str(batch)
    lines = [line for line in _lines(file, 3, RESTORE)[2:] if line != NONE]
    found = [_parsed(file, line, RESTORE) for line in lines]
    return tuple(each for each in found if CONTROL not in each)


def _numbers(directory: CheckpointPath) -> list[int]:
    try:
        return [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def sweep(path: CheckpointPath) -> None:
    """Take away what a process left that was killed while it wrote its first offsets.

    Spark writes to a hidden file and renames it. Where it finds no batch, but anything else in these folders, it
    refuses to start: the query would have to be dropped, though nothing is wrong with it. Without offsets no batch
    was begun, so nothing else was written.
    """
    if _numbers(path / "offsets"):
        return
    for log in ("offsets", "commits"):
        for draft in (path / log).glob(".*"):
            draft.unlink(missing_ok=True)


def in_flight(path: CheckpointPath) -> int | None:
    """The batch that was begun and is not done, if there is one."""
    begun = max(_numbers(path / "offsets"), default=-1)
    return begun if begun > last_batch(path) else None


def give_up(path: CheckpointPath, batch: int) -> None:
    """Forget that a batch was begun: the next one of its number is planned anew. Nobody may have kept anything of it."""
    for log in path / "offsets" / str(batch), path / "offsets" / f".{batch}.crc":
        log.unlink(missing_ok=True)


def query_id(path: CheckpointPath) -> str:
    """The id Spark gave the query when the checkpoint was made: another checkpoint, another id."""
    file = path / "metadata"
    return str(_parsed(file, "".join(_lines(file, 1, RESTORE)), RESTORE, "id")["id"])


def check(path: CheckpointPath) -> None:
    """CheckpointError if Spark could not go on from it. Spark itself would name neither the file nor a remedy."""
    if not exists(path):
        return
    query_id(path)
    for batch in sorted(_numbers(path / "offsets"))[-2:]:  # the last, and the one that it goes on from
        offsets(path, batch)
    last = last_batch(path)
    if last >= 0:
        file = path / "commits" / str(last)
        _parsed(file, "".join(_lines(file, 2, REPEAT)[1:]), REPEAT)


def _lines(file: CheckpointPath, least: int, remedy: str) -> list[str]:
    """Of one of Spark's files. FileNotFoundError where it is not there."""
    try:
        found = file.read_bytes().decode().splitlines()
    except UnicodeDecodeError:
        found = []
    if len(found) < least or (least > 1 and not found[0].startswith("v")):
        raise CheckpointError(f"the checkpoint is damaged: {file} is not what Spark writes", remedy=remedy)
    return found


def _parsed(file: CheckpointPath, text: str, remedy: str, *keys: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() >= {*keys}:
        raise CheckpointError(f"the checkpoint is damaged: {file} is not what Spark writes", remedy=remedy)
    return found
