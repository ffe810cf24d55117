"""Reads Spark's checkpoint: which batch was finished last, and where it ended.

The checkpoint is the truth about how far a query has got; everything else is a mirror of it. Only the
parts that Spark keeps stable are read: the file names in `offsets/` and `commits/`, the query's id in
`metadata`, and the layout of an offset file (a version line, a metadata line, then a line a source).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from forebay.connectors.contract import Offsets


@dataclass(frozen=True)
class Checkpoint:
    """The last batch whose entry in the commit log exists, with each source's position after it."""

    query_id: str
    batch: int
    offsets: tuple[Offsets, ...]


def exists(path: Path) -> bool:
    return (path / "metadata").is_file()


def committed(path: Path) -> Checkpoint | None:
    """What the checkpoint has committed; None when there is none, or no batch was finished yet."""
    if not exists(path):
        return None
    batch = last_batch(path)
    if batch < 0:
        return None
    return Checkpoint(query_id(path), batch, offsets(path, batch))


def last_batch(path: Path) -> int:
    """The last batch with an entry in the commit log; -1 before the first."""
    return max(_numbers(path / "commits"), default=-1)


def offsets(path: Path, batch: int) -> tuple[Offsets, ...]:
    """Where a batch ends, a source an entry: from the log that Spark writes before it runs the batch."""
    lines = (path / "offsets" / str(batch)).read_text().splitlines()
    return tuple(json.loads(line) for line in lines[2:])


def _numbers(directory: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def sweep(path: Path) -> None:
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


def query_id(path: Path) -> str:
    """The id Spark gave the query when the checkpoint was made: another checkpoint, another id."""
    return str(json.loads((path / "metadata").read_text())["id"])
