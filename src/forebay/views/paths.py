"""Where a view keeps what."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from forebay.files import make_folder, write_whole
from forebay.object_path import ObjectPath, TablePath, remove_table, table_path

OWN = "_forebay"  # folders with an underscore are no data to Delta


@dataclass(frozen=True)
class ViewPaths:
    """Where a view keeps what. Everything of a view is below one directory, but tables that it was given another place for."""

    root: Path

    @property
    def _location(self) -> Path:
        return self.root / "location.json"

    @cached_property
    def _elsewhere(self) -> Mapping[str, str]:
        try:
            found: dict[str, str] = json.loads(self._location.read_bytes())
            return found
        except FileNotFoundError:
            return {}

    def _place(self, name: str) -> TablePath:
        given = self._elsewhere.get(name)
        return self.root / name if given is None else table_path(given)

    @property
    def table(self) -> TablePath:
        return self._place("table")

    @property
    def groups(self) -> TablePath:
        """Of a view that groups: what its table is made of."""
        return self._place("groups")

    @property
    def late(self) -> TablePath:
        """The table of its late rows, where it has one."""
        return self._place("late")

    @property
    def elsewhere(self) -> bool:
        """Whether its tables have another place than the home."""
        return bool(self._elsewhere)

    @property
    def member(self) -> str | None:
        """Of a table that all members of a group append to (`common_table.py`): the name of this home among them."""
        return self._elsewhere.get("member")

    def put(self, location: str | None, storage: str | None, name: str, member: str | None = None) -> None:
        """Settle where the tables of a new view are: at its own location, or below the storage of the session."""
        place = place_of(location, storage, name)
        assert place is not None
        below = place / OWN
        if location is not None:
            found = {"table": place, "groups": below / "groups", "late": below / "late"}
        else:
            found = {each: place / each for each in ("table", "groups", "late")}
        make_folder(self.root, 0o700)
        form = {each: str(path) for each, path in found.items()}
        if member is not None:
            form["member"] = member
        write_whole(self._location, json.dumps(form).encode())

    def forget_place(self) -> None:
        """As if it had never been put anywhere."""
        self._location.unlink(missing_ok=True)

    def remove_elsewhere(self) -> None:
        """The tables that are not in the home, but for one that others append to. StorageError."""
        if self.elsewhere and self.member is None:
            for place in (self.groups, self.late, self.table):
                remove_table(place)

    def remove(self) -> None:
        """All that the view has. StorageError."""
        self.remove_elsewhere()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def start(self) -> Path:
        """Where the first batch starts. Spark does not keep it: a first batch that is repeated asks again."""
        return self.root / "start.json"

    @property
    def drain(self) -> Path:
        return self.root / "drain"

    def accounts_of(self, source: str) -> Path:
        """What tasks said of what they read of a source and is not in the catalog yet."""
        return self.root / "accounts" / source

    def health_of(self, source: str) -> Path:
        """How partitions of a source fared, where its error policy has limits."""
        return self.accounts_of(source) / "health"

    def event_times_of(self, source: str) -> Path:
        """The greatest event time that was read of each partition of a source."""
        return self.root / "watermarks" / source / "event-times.json"

    def watermark_of(self, source: str) -> Path:
        """The watermark of a source as of the last look."""
        return self.root / "watermarks" / source / "watermark.json"

    @property
    def adopting(self) -> Path:
        """There while the view takes over a table of a home that is lost."""
        return self.root / "adopting"

    @property
    def lock(self) -> Path:
        return self.root / "lock"


def place_of(location: str | None, storage: str | None, name: str) -> TablePath | None:
    """Below what the tables of a view are; None: in its home. OptionValueError."""
    if location is None and storage is None:
        return None
    found = table_path(location or storage or "")
    whole = found if isinstance(found, ObjectPath) else found.expanduser().absolute()
    return whole if location is not None else whole / name


def paths_of(home: Path, view: str) -> ViewPaths:
    return ViewPaths(home / "views" / view)
