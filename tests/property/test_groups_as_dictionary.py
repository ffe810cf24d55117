"""A table of groups is a dictionary that batches are merged into, whatever is folded, published or opened anew meanwhile."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars
import pyarrow as pa
from deltalake import DeltaTable
from group_models import Model, layouts, make, plain_rows, record_batch, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.views.changes import CHANGE_TYPE
from forebay.views.groups import large_public, publishing

SMALL = publishing.SMALL
STEPS = st.lists(
    st.sampled_from(["batch", "batch", "batch", "tidy", "restart", "publish", "again"]), max_size=14
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), layouts(), STEPS, st.sampled_from([0, 3, SMALL]), st.booleans())
def test_rows_changes_and_the_public_table_are_what_a_dictionary_says(
    data: st.DataObject, layout: Any, steps: list[str], small: int, having: bool
) -> None:
    having = having and len(layout.keys) > 0
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(publishing, "SMALL", small),
        patch.object(large_public, "_CHECKPOINT_EVERY", 2),
    ):
        root = Path(folder)
        table, model, batch = make(root, layout, having=having), Model(layout, having=having), -1
        published = model.rows()
        rows: list[tuple[Any, ...]] = []
        for step in [*steps, "publish"]:
            match step:
                case "batch":
                    batch += 1
                    rows = data.draw(rows_of(layout))
                    cut = data.draw(st.integers(0, len(rows)))
                    given_groups = [record_batch(layout, part) for part in (rows[:cut], rows[cut:])]
                    done = table.apply(given_groups, "query", batch, {"offsets": str(batch)})
                    expected = model.apply(rows)
                    assert done.version is not None
                    assert plain_rows(table.changes(done.version), [CHANGE_TYPE]) == expected
                    assert table.holds("query", batch)
                    assert not table.holds("query", batch + 1)
                case "again" if batch >= 0:
                    assert table.apply([record_batch(layout, rows)], "query", batch).changed == 0
                case "tidy":
                    table.tidy()
                case "restart":
                    table = make(root, layout, having=having)
                    assert dict(table.state.metadata) == ({"offsets": str(batch)} if batch >= 0 else {})
                case "publish":
                    table.publish()
                    published = model.rows()
                    assert table.staleness_s() == 0
            assert plain_rows(table.rows()) == model.rows()
            public = DeltaTable(str(root / "table"))
            assert plain_rows(pa.table(public.scan())) == published
            assert plain_rows(polars.read_delta(str(root / "table")).to_arrow()) == published
        if small == SMALL:
            assert fed(public) == published


def fed(public: DeltaTable) -> list[tuple[Any, ...]]:
    """The rows that the change feed of a table adds up to."""
    feed = pa.table(public.load_cdf(0).read_all()).drop_columns(["_commit_version", "_commit_timestamp"])
    found: Counter[tuple[Any, ...]] = Counter()
    for kind, *row in plain_rows(feed, [CHANGE_TYPE]):
        found[tuple(row)] += -1 if kind in ("delete", "update_preimage") else 1
    assert min(found.values(), default=0) >= 0
    return sorted(found.elements(), key=repr)
