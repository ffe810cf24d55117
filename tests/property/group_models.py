"""Tables of groups for tests: every type of key, parts of every kind, and a plain dictionary that does the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from hypothesis import strategies as st

from forebay.views.groups.group_table import GroupTable
from forebay.views.groups.layout import GroupLayout, PartColumn
from forebay.views.table import ViewTable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UTC_TIME = pa.timestamp("us", "UTC")
KINDS: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-2, 2),
    pa.int64(): st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.inf]),
    pa.string(): st.sampled_from(["", "a", "aa", "ä", "\x00", "\U0001f600"]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"a"]),
    pa.date32(): st.sampled_from([date(1969, 12, 31), date(2020, 2, 29)]),
    UTC_TIME: st.sampled_from([EPOCH, EPOCH - timedelta(microseconds=1), EPOCH + timedelta(days=9999)]),
    pa.decimal128(38, 6): st.sampled_from(
        [Decimal(0), Decimal("-1.5"), Decimal("12345678901234567890.123456")]
    ),
    pa.decimal128(5, 2): st.sampled_from([Decimal(0), Decimal("9.99"), Decimal("-9.99")]),
}
PARTS = (
    PartColumn("n", "sum", pa.int64()),
    PartColumn("total", "sum", pa.decimal128(38, 6)),
    PartColumn("low", "min", pa.float64()),
    PartColumn("high", "max", pa.float64()),
    PartColumn("first", "min", pa.string()),
    PartColumn("newest", "max", UTC_TIME),
)
VALUES: tuple[st.SearchStrategy[Any], ...] = (
    st.none() | st.integers(-5, 5),
    st.none() | st.decimals(-(10**30), 10**30, places=6),
    st.none() | KINDS[pa.float64()],
    st.none() | KINDS[pa.float64()],
    st.none() | KINDS[pa.string()],
    st.none() | KINDS[UTC_TIME],
)


def layouts() -> st.SearchStrategy[GroupLayout]:
    kinds = st.lists(st.sampled_from(list(KINDS)), max_size=3)
    return kinds.map(
        lambda found: GroupLayout(pa.schema([(f"a {at}", kind) for at, kind in enumerate(found)]), PARTS)
    )


def rows_of(layout: GroupLayout) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Partial groups of one batch, as tuples of keys and parts."""
    keys = [st.none() | KINDS[field.type] for field in layout.keys]
    return st.lists(st.tuples(*keys, *VALUES), max_size=12)


def record_batch(layout: GroupLayout, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [[row[at] for row in rows] for at in range(len(layout.schema))]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, layout.schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.schema)


def finish(table: pa.Table) -> pa.Table:
    """The view's columns: names that Delta takes, and one that is worked out."""
    named = table.rename_columns([name.replace(" ", "_") for name in table.column_names])
    return named.append_column("twice", pc.multiply_checked(named.column("n"), 2))


def positive(table: pa.Table) -> Any:
    """A HAVING: which groups have a sum above 0."""
    return np.asarray(pc.fill_null(pc.greater(table.column("n"), 0), False))


def make(root: Path, layout: GroupLayout, *, having: bool = False) -> GroupTable:
    """A table in a folder, made if it is not there."""
    public = ViewTable(root / "table")
    keys = tuple(name.replace(" ", "_") for name in layout.keys.names)
    table = GroupTable(root, layout, finish, public, keys, shown=positive if having else None)
    if not table.exists():
        columns = finish(layout.schema.empty_table()).schema
        DeltaTable.create(
            str(public.path), schema=columns, configuration={"delta.enableChangeDataFeed": "true"}
        )
        table.create()
    table.open()
    return table


class Model:
    """What a table of groups is, as a dictionary; with `having`, of the groups whose sum is above 0."""

    def __init__(self, layout: GroupLayout, *, having: bool = False) -> None:
        self._having = having
        self._keys = len(layout.keys)
        self._parts = layout.parts
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def apply(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Returns the changes: kind, keys and parts."""
        before = dict(self.groups)
        for row in rows:
            key = tuple(plain(value) for value in row[: self._keys])
            found = self.groups.get(key, (None,) * len(self._parts))
            parts = zip(self._parts, found, row[self._keys :], strict=True)
            self.groups[key] = tuple(_merged(part.merge, old, plain(new)) for part, old, new in parts)
        changes = []
        for key, new in self.groups.items():
            if key in before and before[key] == new:
                continue
            old = before.get(key)
            was, is_ = old is not None and self._shows(old), self._shows(new)
            changes += [("update_preimage" if is_ else "delete", *key, *(old or ()))] if was else []
            changes += [("update_postimage" if was else "insert", *key, *new)] if is_ else []
        return sorted(changes, key=repr)

    def rows(self) -> list[tuple[Any, ...]]:
        shown = ((*key, *parts) for key, parts in self.groups.items() if self._shows(parts))
        return sorted(shown, key=repr)

    def _shows(self, parts: tuple[Any, ...]) -> bool:
        return not self._having or (parts[0] is not None and parts[0] > 0)


def _merged(how: str, old: Any, new: Any) -> Any:
    if old is None or new is None:
        return new if old is None else old
    if how == "sum":
        with localcontext(Context(prec=100)):
            return old + new
    pick = min if how == "min" else max
    if isinstance(old, float) or isinstance(new, float) or (old == new == "NaN"):
        return pick(old, new, key=lambda value: (value == "NaN", 0.0 if value == "NaN" else value))
    return pick(old, new)


def plain(value: Any) -> Any:
    """Equal values become equal objects: one NaN, one zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value


def plain_rows(table: pa.Table, first: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    names = [*first, *(name for name in table.column_names if name not in (*first, "twice"))]
    columns = [[plain(value) for value in table.column(name).to_pylist()] for name in names]
    return sorted(zip(*columns, strict=True), key=repr)
