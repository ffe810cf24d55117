"""Views: the list, the page about one, its newest rows, its changes as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from forebay.object_path import TablePath, parquet_file
from forebay.runtime.definitions import followed_as, table_of_view
from forebay.runtime.known import unknown
from forebay.web.ground import Ground
from forebay.web.model import Changes, ShownTable, ViewPage, ViewRow
from forebay.web.shown import columns_of, inert, table_of
from forebay.web.snapshot import Snapshot, ViewNow
from forebay.web.source_pages import batches, events

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS = 100
MOST_ROWS = 1000
MOST_CHANGES = 500  # of one version that are shown


def rows(snapshot: Snapshot) -> list[ViewRow]:
    return [row(each, snapshot) for each in snapshot.views.values()]


def row(view: ViewNow, snapshot: Snapshot) -> ViewRow:
    """A view in a list."""
    detail, name = view.definition.detail, view.definition.name
    flows = {source: snapshot.sources[source].flow for source in view.sources if source in snapshot.sources}
    words = [text for flow in flows.values() if (text := flow.for_view(name))]
    behind = [plan.behind for flow in flows.values() for plan in flow.plans if name in plan.views]
    newest = max((each.at_ms for each in view.totals), default=None)
    return ViewRow(
        name=name,
        state=str(view.state),
        message=inert(view.message),
        hint=view.hint,
        sources=view.sources,
        emit=str(detail.get("emit", "")),
        keys=tuple(detail.get("keys", ())),
        created_ms=view.definition.created_ms,
        batch=max((each.batch for each in view.totals), default=-1),
        records=view.records,
        rejected=view.rejected,
        late=sum(each.late for each in view.totals),
        rate=view.rate,
        lag=sum(each for each in behind if each is not None)
        if any(each is not None for each in behind)
        else None,
        batch_ms=view.batch_ms,
        catch_up="; ".join(words),
        freshness_s=None if newest is None else max(0.0, time.time() - newest / 1000),
    )


def found(snapshot: Snapshot, name: str) -> ViewNow:
    """UnknownObjectError if there is none."""
    if name not in snapshot.views:
        raise unknown("view", name, list(snapshot.views))
    return snapshot.views[name]


def page(ground: Ground, snapshot: Snapshot, name: str) -> ViewPage:
    """All about a view: from the catalog and from its table's log. No file of rows is opened."""
    view = found(snapshot, name)
    table = table_of_view(ground.path, ground.catalog, name)
    there = table.exists()
    delta = table.open() if there else None
    files = _files(delta) if delta is not None else []
    newest = max((each["modification_time"] for each in files), default=None)
    return ViewPage(
        row=row(view, snapshot),
        columns=columns_of(_schema(ground, name, delta)) if delta is not None else [],
        rows=sum(each["num_records"] or 0 for each in files) if there else None,
        size_bytes=sum(each["size_bytes"] for each in files) if there else None,
        files=len(files) if there else None,
        version=int(delta.version()) if delta is not None else None,
        freshness_s=None if newest is None else max(0.0, time.time() - newest),
        definition=view.definition.sql,
        path=str(table.path),
        batches=batches(ground, name),
        events=events(ground, EVENTS, {name}),
    )


def _schema(ground: Ground, view: str, delta: Any) -> pa.Schema:
    import pyarrow as pa

    hidden = _hidden(ground, view)
    return pa.schema([field for field in pa.schema(delta.schema().to_arrow()) if field.name != hidden])


def _hidden(ground: Ground, view: str) -> str | None:
    """The column of a table that says how often a row is there."""
    from forebay.sql.text import WEIGHT

    known = ground.catalog.get(view)
    return WEIGHT if known is not None and known.detail.get("kept") == "rows" else None


def _files(delta: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    files = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    wanted = ("path", "size_bytes", "num_records", "modification_time")
    columns = {name: files.column(name).to_pylist() for name in wanted}
    columns["modification_time"] = [_seconds(each) for each in columns["modification_time"]]
    return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]


def _seconds(at: Any) -> float:
    return float(at.timestamp()) if hasattr(at, "timestamp") else float(at) / 1000


def newest(ground: Ground, snapshot: Snapshot, name: str, limit: int) -> ShownTable:
    """The rows that were written last, as far as the times of the table's files say."""
    import pyarrow as pa

    found(snapshot, name)
    limit = max(1, min(limit, MOST_ROWS))
    table = table_of_view(ground.path, ground.catalog, name)
    if not table.exists():
        return ShownTable([], [])
    delta, hidden = table.open(), _hidden(ground, name)
    schema = _schema(ground, name, delta)
    files = sorted(_files(delta), key=lambda each: each["modification_time"], reverse=True)
    taken: list[pa.Table] = []
    count = 0
    for each in files:
        if count >= limit:
            break
        try:
            rows = _last_rows(_path(table.path, each["path"]), hidden, limit - count)
        except FileNotFoundError:  # merged with others meanwhile
            continue
        taken.append(
            pa.concat_tables([schema.empty_table(), rows], promote_options="default").select(schema.names)
        )
        count += rows.num_rows
    whole = pa.concat_tables([schema.empty_table(), *taken])
    total = sum(each["num_records"] or 0 for each in files)
    return table_of(whole, max(0, total - whole.num_rows))


def _last_rows(path: TablePath, hidden: str | None, limit: int) -> pa.Table:
    """The last rows of a file, the last one first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with parquet_file(path) as file:
        groups: list[Any] = []
        count = 0
        for number in reversed(range(file.metadata.num_row_groups)):
            rows = file.read_row_group(number)
            if hidden is not None and hidden in rows.column_names:
                rows = rows.filter(pc.greater(rows.column(hidden), 0)).drop_columns([hidden])
            groups.append(rows)
            count += rows.num_rows
            if count >= limit:
                break
    if not groups:
        return pa.table({})
    rows = pa.concat_tables(groups[::-1])
    last = rows.slice(max(0, rows.num_rows - limit))
    return last.take(pa.array(range(last.num_rows - 1, -1, -1), pa.int64()))


def _path(root: TablePath, name: str) -> TablePath:
    parsed = urlparse(name)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else root / unquote(name)


def version(ground: Ground, name: str) -> int:
    """The newest version of a view's changes."""
    from forebay.runtime.definitions import changes_of_view, defined

    defined(ground.catalog, "view", name)
    return changes_of_view(ground.path, ground.catalog, name).newest()


def readers(ground: Ground) -> dict[str, int]:
    """How many follow each view in this process."""
    from forebay.views.followers import followed

    if not (known := followed()):
        return {}
    names = [each.name for each in ground.catalog.all("view")]
    return {name: count for name in names if (count := known.get(followed_as(ground.path, name)))}


def following(ground: Ground, name: str) -> AbstractContextManager[None]:
    """While it is followed."""
    from forebay.views import followers

    return followers.following(followed_as(ground.path, name))


def tail(ground: Ground, name: str, after: int | None, timeout: float | None) -> Iterator[Changes]:
    """Changes as they come; from now on where no version is given."""
    import pyarrow as pa

    from forebay.runtime.definitions import changes_of_view, defined
    from forebay.views.changes import Subscription

    defined(ground.catalog, "view", name)
    feed = changes_of_view(ground.path, ground.catalog, name)
    hidden = _hidden(ground, name)
    with Subscription(feed, after=feed.newest() if after is None else after, timeout=timeout) as changes:
        for batch in changes:
            rows = pa.Table.from_batches([batch])
            if hidden is not None and hidden in rows.column_names:
                rows = rows.drop_columns([hidden])
            version = rows.column("_commit_version")[0].as_py() if rows.num_rows else changes.position
            yield Changes(
                version, table_of(rows.slice(0, MOST_CHANGES), max(0, rows.num_rows - MOST_CHANGES))
            )
