"""Questions to the index: filters as SQL, and the summaries that dashboards show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from forebay.blackboard.artifact import Codec, Document, decode, micros
from forebay.blackboard.index import Index
from forebay.blackboard.stats import Refusals

Clause = tuple[str, list[Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def where(filters: Any, resolve: Callable[[str], str]) -> Clause:
    """A WHERE clause with its values; `filters` is a FilterConfig of ours or of Flock's, or None."""
    parts: list[str] = []
    values: list[Any] = []

    def one_of(column: str, names: Any) -> None:
        parts.append(f"a.{column} IN ({', '.join('?' * len(names))})")
        values.extend(sorted(names))

    if filters is None:
        return "", []
    if filters.type_names:
        one_of("type", {resolve(name) for name in filters.type_names})
    if filters.produced_by:
        one_of("produced_by", filters.produced_by)
    if filters.visibility:
        one_of("visibility", filters.visibility)
    if filters.correlation_id:
        parts.append("a.correlation_id = ?")
        values.append(str(filters.correlation_id))
    for tag in sorted(filters.tags or ()):
        parts.append("EXISTS (SELECT 1 FROM json_each(a.tags) WHERE value = ?)")
        values.append(tag)
    if filters.start is not None:
        parts.append("a.created_us >= ?")
        values.append(micros(filters.start))
    if filters.end is not None:
        parts.append("a.created_us <= ?")
        values.append(micros(filters.end))
    return (" WHERE " + " AND ".join(parts), values) if parts else ("", [])


class FoundArtifact(NamedTuple):
    """An artifact as it is in the log, and as the program sees it."""

    document: Document
    artifact: Any


class Queries:
    """What can be asked of an index. Each question is answered from one moment's state.

    What the program's own classes refuse is left out of an answer like what the index refuses, and named once.
    """

    def __init__(self, index: Index, codec: Codec, topic: str, refusals: Refusals | None = None) -> None:
        """`topic` is where the documents came from."""
        self._index = index
        self._codec = codec
        self._resolve = codec.resolve
        self._topic = topic
        self._refusals = refusals or Refusals()

    def one(self, artifact_id: str) -> Any | None:
        """Never waits: it may be asked in an event loop."""
        row = self._index.document(artifact_id)
        found = self._read([row] if row else (), self._seen)
        return found[0].artifact if found else None

    def recent(
        self,
        window: int,
        type_name: str | None = None,
        correlation_id: str | None = None,
        as_class: type[Any] | None = None,
    ) -> list[Any]:
        """The newest so many, the oldest of them first: artifacts, or their payloads as objects of a class."""
        parts, values = [], []
        for column, value in (("type", type_name), ("correlation_id", correlation_id)):
            if value is not None:
                parts.append(f"{column} = ?")
                values.append(value)
        clause = f"WHERE {' AND '.join(parts)} " if parts else ""
        rows = self._index.rows(
            f"SELECT document, partition, at_offset FROM artifacts {clause}"  # noqa: S608
            "ORDER BY created_us DESC, seq DESC LIMIT ?",
            [*values, window],
        )
        see = self._seen if as_class is None else lambda document: self._codec.payload(as_class, document)
        return [found.artifact for found in self._read(reversed(rows), see)]

    def page(self, filters: Any, limit: int, offset: int) -> tuple[list[FoundArtifact], int]:
        """Ordered by creation and id; a limit of 0 or less is all. The total counts those that are left out, too."""
        clause, values = where(filters, self._resolve)
        with self._index.moment() as rows:
            total = rows(f"SELECT count(*) FROM artifacts a{clause}", values)[0][0]  # noqa: S608
            found = rows(
                f"SELECT document, partition, at_offset FROM artifacts a{clause} "  # noqa: S608
                "ORDER BY created_us, id LIMIT ? OFFSET ?",
                [*values, limit if limit > 0 else -1, max(offset, 0)],
            )
        return self._read(found, self._seen), total

    def _seen(self, document: Document) -> Any:
        return self._codec.artifact(document)

    def _read(self, rows: Iterable[tuple[Any, ...]], see: Callable[[Document], Any]) -> list[FoundArtifact]:
        found = []
        for data, partition, offset in rows:
            try:
                document = decode(data)
                found.append(FoundArtifact(document, see(document)))
            except Exception as error:  # the program's classes may raise anything
                self._refusals.add((self._topic, partition, offset), error)
        return found

    def consumptions(self, artifact_ids: list[str]) -> dict[str, list[tuple[Any, ...]]]:
        """Consumer, run, correlation and time, by artifact."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for start in range(0, len(artifact_ids), 500):  # SQLite takes a limited number of values
            some = artifact_ids[start : start + 500]
            rows = self._index.rows(
                "SELECT artifact_id, consumer, run_id, correlation_id, consumed_at FROM consumptions "  # noqa: S608
                f"WHERE artifact_id IN ({', '.join('?' * len(some))}) ORDER BY consumed_at, key",
                some,
            )
            for row in rows:
                found.setdefault(row[0], []).append(row[1:])
        return found

    def summary(self, filters: Any) -> dict[str, Any]:
        clause, values = where(filters, self._resolve)
        with self._index.moment() as rows:

            def counts(column: str, more: str = "") -> dict[str, int]:
                question = f"SELECT {column}, count(*) FROM artifacts a{more}{clause} GROUP BY 1 ORDER BY 1"  # noqa: S608
                return dict(rows(question, values))

            total, first, last = rows(
                f"SELECT count(*), min(created_us), max(created_us) FROM artifacts a{clause}",  # noqa: S608
                values,
            )[0]
            return {
                "total": total,
                "by_type": counts("a.type"),
                "by_producer": counts("a.produced_by"),
                "by_visibility": counts("a.visibility"),
                "tag_counts": counts("t.value", ", json_each(a.tags) t"),
                "earliest_created_at": _iso(first),
                "latest_created_at": _iso(last),
                "is_full_window": filters is None or (filters.start is None and filters.end is None),
                "window_span_label": _span(first, last),
            }

    def history(self, agent: str, filters: Any) -> dict[str, Any]:
        """How much of each type an agent has produced and consumed, of the artifacts that are meant."""
        clause, values = where(filters, self._resolve)
        more = " AND " if clause else " WHERE "
        produced = self._index.rows(
            f"SELECT a.type, count(*) FROM artifacts a{clause}{more}a.produced_by = ? GROUP BY 1",  # noqa: S608
            [*values, agent],
        )
        consumed = self._index.rows(
            "SELECT a.type, count(*) FROM consumptions c JOIN artifacts a ON a.id = c.artifact_id"  # noqa: S608
            f"{clause}{more}c.consumer = ? GROUP BY 1",
            [*values, agent],
        )
        return {
            "produced": {"total": sum(n for _, n in produced), "by_type": dict(produced)},
            "consumed": {"total": sum(n for _, n in consumed), "by_type": dict(consumed)},
        }

    def agents(self) -> list[Any]:
        times = ("first_seen", "last_seen")
        found = []
        for row in self._index.rows("SELECT document FROM agents ORDER BY name"):
            form = json.loads(row[0])
            found.append(
                self._codec.snapshot(**{**form, **{key: datetime.fromisoformat(form[key]) for key in times}})
            )
        return found


def _iso(us: int | None) -> str | None:
    return None if us is None else (_EPOCH + timedelta(microseconds=us)).isoformat()


def _span(first: int | None, last: int | None) -> str:
    """How long a window is, in the words of Flock's dashboard."""
    if first is None or last is None:
        return "empty"
    seconds = (last - first) / 1e6
    if seconds >= 2 * 86_400:
        return f"{seconds // 86_400:.0f} days"
    if seconds >= 3_600:
        return f"{seconds / 3_600:.1f} hours"
    return f"{max(1, int(seconds / 60))} minutes" if seconds > 0 else "moments"
