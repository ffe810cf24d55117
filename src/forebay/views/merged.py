"""Where the rows of files are that were merged: for subscribers who go on behind a version whose files are gone.

A merge keeps the rows in order and writes down, in a file of its own, of which files they are from and how many. So the files
that were merged need not stay for as long as the view's retention: at ten batches a second they would be six million.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from forebay.files import make_folder, write_whole
from forebay.object_path import TablePath, files_in, parquet_file


class RowPlace(NamedTuple):
    """Rows of a file that another file has now."""

    file: str
    first: int
    rows: int


class MergedFiles:
    """Of one table."""

    def __init__(self, table: TablePath, folder: TablePath) -> None:
        self._table = table
        self._folder = folder
        self._known: tuple[str, Mapping[str, RowPlace]] | None = None  # a subscriber asks for neighbours

    def write(self, merged: str, files: Sequence[tuple[str, int]]) -> None:
        """Before a merge is committed: it has the rows of these files, so many of each, in this order."""
        parts: list[tuple[str, int]] = []
        for name, rows in files:
            parts += self._parts(name) or [(name, rows)]
        make_folder(self._folder)
        write_whole(self._path(merged), json.dumps(parts, separators=(",", ":")).encode())

    def find(self, name: str) -> RowPlace | None:
        """Where the rows of a file are now; None if it was not merged, or so long ago that nobody needs to know."""
        if self._known is not None and name in self._known[1]:
            merged, places = self._known
            if (self._table / merged).exists():
                return places[name]
        for path in files_in(self._folder, "*.json"):
            merged = path.name.removesuffix(".json")
            if not (self._table / merged).exists():  # of a merge that was killed, or is over
                continue
            try:
                text = path.read_text()
            except FileNotFoundError:  # merged again just now
                continue
            if json.dumps(name) in text:
                self._known = merged, _places(merged, json.loads(text))
                return self._known[1][name]
        return None

    def forget(self, merged: str) -> None:
        """A file that is removed: whoever has its rows now says so itself."""
        self._path(merged).unlink(missing_ok=True)

    def expire(self, before_ms: int) -> None:
        """Merges of before that time: no subscriber goes on behind a version that is older."""
        for path in self._folder.glob("*.json"):
            if path.stat().st_mtime * 1000 < before_ms:
                path.unlink(missing_ok=True)

    def _parts(self, name: str) -> list[tuple[str, int]]:
        try:
            return [(part, rows) for part, rows in json.loads(self._path(name).read_text())]
        except FileNotFoundError:
            return []

    def _path(self, merged: str) -> TablePath:
        return self._folder / f"{merged}.json"


class PlaceReader:
    """Reads rows that were merged. A subscriber asks for neighbours, so the row group of the last ones is kept."""

    def __init__(self, table: TablePath) -> None:
        self._table = table
        self._last: tuple[tuple[str, int], pa.Table] | None = None

    def rows(self, place: RowPlace) -> Iterator[pa.RecordBatch]:
        begins = 0
        with parquet_file(self._table / place.file) as file:
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                low, high = max(place.first - begins, 0), min(place.first + place.rows - begins, count)
                if low < high:
                    yield from self._group(file, place.file, group).slice(low, high - low).to_batches()
                begins += count

    def _group(self, file: pq.ParquetFile, name: str, group: int) -> pa.Table:
        if self._last is None or self._last[0] != (name, group):
            self._last = (name, group), file.read_row_group(group)
        return self._last[1]


def _places(merged: str, parts: Sequence[tuple[str, int]]) -> dict[str, RowPlace]:
    places: dict[str, RowPlace] = {}
    first = 0
    for name, rows in parts:
        places[name] = RowPlace(merged, first, rows)
        first += rows
    return places
