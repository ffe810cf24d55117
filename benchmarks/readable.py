"""When the rows of a table that grows could be read, from what is on the disk: nobody has to look while it is measured.

A row can be read when the commit that names its file is there. The time of that is the file system's: a file's status
changes when it gets its name, and not after that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
from pyarrow import parquet


@dataclass(frozen=True)
class Commit:
    """Files that could be read from then on."""

    name: str
    at_ms: float
    files: tuple[Path, ...]


def delta(folder: Path) -> Iterator[Commit]:
    """A Delta table. Files that hold only what others held, compacted, bring no new rows."""
    for path in sorted((folder / "_delta_log").glob("[0-9]*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines() if line]
        added = [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
        yield Commit(path.name, _named_ms(path), tuple(folder / unquote(one["path"]) for one in added))


def spark_sink(folder: Path) -> Iterator[Commit]:
    """The folder of Spark's file sink. A `.compact` has all files so far; those before it stay for ten minutes."""
    known: set[Path] = set()
    batches = [path for path in (folder / "_spark_metadata").glob("[0-9]*") if not path.name.startswith(".")]
    for path in sorted(batches, key=lambda each: int(each.name.split(".")[0])):
        entries = [json.loads(line) for line in path.read_text().splitlines()[1:] if line]
        listed = [Path(unquote(urlparse(entry["path"]).path)) for entry in entries]
        yield Commit(path.name, _named_ms(path), tuple(file for file in listed if file not in known))
        known.update(listed)


def finished_files(folder: Path) -> Iterator[Commit]:
    """The folder of Flink's filesystem connector: a file gets a name without a dot when it is finished."""
    for path in sorted(folder.glob("part-*")):
        yield Commit(path.name, _named_ms(path), (path,))


def _named_ms(path: Path) -> float:
    return path.stat().st_ctime_ns / 1e6


Layout = Callable[[Path], Iterator[Commit]]


@dataclass
class Arrivals:
    """What a table has brought of the records made in a span of time, each with the time when it could be read."""

    folder: Path
    layout: Layout
    begin_ms: float
    end_ms: float
    numbers: list[np.ndarray] = field(default_factory=list)
    ages_ms: list[np.ndarray] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def look(self) -> int:
        """Read what was committed since the last look; returns how many records there are."""
        for commit in self.layout(self.folder):
            if commit.name in self._known:
                continue
            self._known.add(commit.name)
            if commit.at_ms < self.begin_ms or not commit.files:
                continue
            rows = pa.concat_tables([parquet.read_table(file, columns=["k", "x"]) for file in commit.files])
            stamps = rows["x"].to_numpy()
            ours = (stamps >= self.begin_ms) & (stamps < self.end_ms)
            self.numbers.append(rows["k"].to_numpy()[ours])
            self.ages_ms.append(commit.at_ms - stamps[ours])
        return sum(map(len, self.numbers))


LAYOUTS: Mapping[str, Layout] = {"delta": delta, "spark": spark_sink, "flink": finished_files}
