"""Where views begin in their sources."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from pathlib import Path

from forebay import sql
from forebay.catalog import Catalog
from forebay.connectors.contract import Offsets
from forebay.errors import UnsupportedSqlError
from forebay.files import make_folder, write_whole
from forebay.runtime.sources import Sources
from forebay.runtime.status import views_over
from forebay.runtime.view_positions import earlier
from forebay.views.options import BEGINNING, VIEW
from forebay.views.paths import paths_of


class ViewStarts:
    """Of a session's views. Worked out once, then kept beside the checkpoint."""

    def __init__(self, home: Path, catalog: Catalog, sources: Sources) -> None:
        self._home = home
        self._catalog = catalog
        self._sources = sources

    def of(self, statement: sql.CreateView, sources: Iterable[str]) -> tuple[dict[str, Offsets], list[str]]:
        """Where each source of the view starts: worked out once, then kept beside the checkpoint; and notes for people."""
        path, notes = paths_of(self._home, statement.name).start, list[str]()
        if not path.exists():
            options = VIEW.bind({key: value.text for key, value in statement.options.items()})
            starts = {}
            for name in sources:
                starts[name], gone = self._start_in(name, options["start"])
                notes += [
                    f"note: {each} of source '{name}' is gone; the view begins after it" for each in gone
                ]
            make_folder(path.parent, 0o700)
            write_whole(path, json.dumps(starts).encode())
        found: dict[str, Offsets] = json.loads(path.read_text())
        return found, notes

    def _start_in(self, source: str, start: str | int) -> tuple[Offsets, tuple[str, ...]]:
        if start != BEGINNING and self._sources.connector(source).share is not None:
            raise UnsupportedSqlError(
                f"a view over source '{source}' begins where its group is: 'group.mode' = 'shared'",
                remedy="leave the option start out; startup.mode of the source says where a new group begins",
            )
        if start == BEGINNING:
            return self._sources.beginning(source, lambda: self._earliest_start(source))
        when = None if isinstance(start, str) else start
        return self._sources.connector(source).offsets_at(when), ()

    def _earliest_start(self, source: str) -> Offsets | None:
        """Where the first view over a source began."""
        starts = [
            start
            for view in views_over(self._catalog, source)
            if (start := self.kept(view, source)) is not None
        ]
        return reduce(earlier, starts) if starts else None

    def kept(self, view: str, source: str) -> Offsets | None:
        """Where a view has begun in a source, if it has."""
        path = paths_of(self._home, view).start
        found: dict[str, Offsets] = json.loads(path.read_text()) if path.exists() else {}
        return found.get(source)
