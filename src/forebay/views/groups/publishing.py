"""The public table: what everybody who reads Delta sees, as of some batch, which its newest commit names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from forebay.object_path import TablePath
from forebay.views.groups.columns import Array
from forebay.views.groups.large_public import LargePublic
from forebay.views.groups.log import APP, LogState
from forebay.views.table import ViewTable

# Groups up to which the table is merged. To merge is to write it all, and any reader reads what it gives; a table with
# deletion vectors takes a reader that knows them.
SMALL = 50_000
Finish = Callable[[pa.Table], pa.Table]
Shown = Callable[[pa.Table], Array]
_SHOWN = "_forebay_shown"


class Publisher:
    """Writes the rows that have changed."""

    def __init__(
        self,
        public: ViewTable,
        keys: tuple[str, ...],
        finish: Finish,
        owners: TablePath,
        keep_s: float,
        shown: Shown | None = None,
    ) -> None:
        self._public = public
        self._keys = keys
        self._finish = finish
        self._shown = shown
        self._large = LargePublic(public, owners, keep_s)

    def sequence(self) -> int:
        """Of the newest batch that the public table has."""
        if not self._public.exists():
            return -1
        found = self._public.open().transaction_version(APP)
        return -1 if found is None else int(found)

    def publish(
        self,
        rows: pa.Table,
        ids: Array,
        state: LogState,
        whole: Callable[[], Iterable[tuple[pa.Table, Array]]],
    ) -> None:
        """Once: a batch that is there already is left out. `whole` has the rows and numbers of all groups."""
        if self.sequence() >= state.sequence:
            return
        if self._large.active():
            self._large.publish(*self._of_shown(rows, ids), ids, state)
        elif state.groups > SMALL:
            self._large.convert((self._of_shown(part, owners) for part, owners in whole()), state)
        elif self._shown is None:
            self._public.merge(self._finish(rows), self._keys, APP, state.sequence, state.named())
        else:
            weighed = self._finish(rows).append_column(_SHOWN, pa.array(self._shown(rows).astype(np.int8)))
            self._public.replace(weighed, self._keys, _SHOWN, APP, state.sequence, state.named())
            if (
                self.sequence() < state.sequence
            ):  # nothing of it is shown, and deltalake writes no empty commit
                self._public.note(APP, state.sequence, state.named())

    def _of_shown(self, rows: pa.Table, ids: Array) -> tuple[pa.Table, Array]:
        if self._shown is None:
            return self._finish(rows), ids
        flags = self._shown(rows)
        return self._finish(rows.filter(pa.array(flags))), ids[flags]

    def tidy(self, *, vacuum: bool) -> bool:
        """A merge leaves nothing to be tidied."""
        return self._large.active() and self._large.tidy(vacuum=vacuum)

    def published_at(self) -> float:
        return float(self._public.open().history(1)[0]["timestamp"]) / 1000

    def staleness_s(self, state: LogState) -> float:
        if self.sequence() >= state.sequence:
            return 0.0
        since_ms = state.behind_since_ms
        return max(0.0, time.time() - (self.published_at() if since_ms is None else since_ms / 1000))
