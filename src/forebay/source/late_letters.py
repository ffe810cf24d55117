"""In a task: late rows as dead letters. Their records are read again, since a row has not its record's bytes."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.connectors.contract import RejectedRecord, RowPlaces, SourceConfig, SourceConnector
from forebay.connectors.registry import default_registry
from forebay.formats import RefusalKind
from forebay.source.late_rows import LateRecord, LateTarget
from forebay.source.serving import ServedView


def wants_letters(views: Iterable[ServedView]) -> bool:
    """Whether one of them has LATE DATA TO DEAD LETTERS: then rows must say which record they are of."""
    return any(LateTarget.from_json(view.late).letters for view in views)


def with_places(config: SourceConfig) -> tuple[SourceConfig, RowPlaces]:
    """The source with columns that tell which record a row is of. A view that wants letters is created where that can be had."""
    found = default_registry().get(config.connector).with_places(config)
    assert found is not None
    return found


def as_rejected(
    connector: SourceConnector, column: str | None, records: Iterable[LateRecord]
) -> list[RejectedRecord]:
    """What a router makes letters of, one a record. A record that is gone by now has a letter without its bytes."""
    late = {(record.partition, record.offset): record for record in records}
    if not late:
        return []
    [topic] = connector.topics() or ()
    places: dict[int, set[int]] = {}
    for partition, offset in late:
        places.setdefault(partition, set()).add(offset)
    raw = {(partition, offset): record for partition, offset, record in connector.raw_records(topic, places)}
    prefix = f"{column}: " if column else ""
    return [
        RejectedRecord(
            topic, partition, offset, str(RefusalKind.LATE_RECORD), prefix + record.reason, column or "",
            record=raw.get((partition, offset)),
        )
        for (partition, offset), record in sorted(late.items())
    ]  # fmt: skip
