"""Change logs as a database with Debezium would write them, and the table that the database then holds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Row = dict[str, Any]


@dataclass
class Database:
    """One table with a key `id`, and the log of what was done to it: (id, event) in the order of the commits."""

    rows: dict[int, Row] = field(default_factory=dict)
    log: list[tuple[int, Row | None]] = field(default_factory=list)

    def apply(self, key: int, row: Row | None, *, snapshot: bool = False) -> None:
        """Insert, update or delete one row; a delete is followed by a tombstone."""
        before = self.rows.pop(key, None)
        after = None if row is None else {"id": key} | row
        if before is None and after is None:
            return
        op = ("r" if snapshot else "c") if before is None else "d" if after is None else "u"
        self.log.append((key, {"before": before, "after": after, "op": op, "ts_ms": len(self.log)}))
        if after is None:
            self.log.append((key, None))
        else:
            self.rows[key] = after

    def messages(self, partitions: int, wrapped: bool = False) -> list[list[tuple[bytes, bytes | None]]]:
        """Keys and values by partition: a row's changes stay in order, those of different rows do not."""
        found: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(partitions)]
        for key, event in self.log:
            value = {"schema": {"type": "struct"}, "payload": event} if wrapped and event else event
            encoded = None if value is None else json.dumps(value).encode()
            found[key % partitions].append((json.dumps({"id": key}).encode(), encoded))
        return found


ROWS = st.fixed_dictionaries(
    {
        "city": st.sampled_from(["Oslo", "Rome", None]),
        "amount": st.one_of(st.none(), st.integers(-3, 3)),
        "name": st.one_of(st.none(), st.sampled_from(["a", "é", '"', ""])),
    }
)


@st.composite
def databases(draw: st.DrawFn) -> Database:
    database = Database()
    for key, row in draw(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), ROWS)), max_size=25)):
        database.apply(key, row, snapshot=draw(st.booleans()))
    return database


def multiset(rows: Any, *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in columns) for row in rows)
