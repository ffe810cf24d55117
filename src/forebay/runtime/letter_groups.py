"""`forebay_catalog.dead_letter_groups`: letters with the same fault, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from forebay.catalog import Catalog
from forebay.runtime.known import KnownSources

if TYPE_CHECKING:
    from forebay.deadletter.letters import DeadLetters
    from forebay.deadletter.outcomes import Outcomes

STATES = ("open", "replayed", "failed_again", "discarded")
TIME = pa.timestamp("us", "UTC")
GROUPS = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("error_kind", pa.string()),
        pa.field("field", pa.string()),
        pa.field("pattern", pa.string()),
        pa.field("letters", pa.int64()),
        *(pa.field(state, pa.int64()) for state in STATES),
        pa.field("first_at", TIME),
        pa.field("last_at", TIME),
        pa.field("sample_id", pa.string()),
        pa.field("group_id", pa.string()),
    ]
)
PATIENCE_S = 600.0  # for an index that is made for the first time, of very many letters


@dataclass(frozen=True)
class _Letters:
    """A home, as a desk sees it."""

    path: Path
    _sources: KnownSources
    _catalog: Catalog
    _outcomes: Outcomes

    def dead_letters(
        self, source: str, *, topic: str | None = None, options: Mapping[str, str] | None = None
    ) -> DeadLetters:
        from forebay.deadletter.letters import DeadLetters
        from forebay.runtime.letter_owners import owner_of

        owner = owner_of(source, self._sources, self._catalog, topic, options)
        return DeadLetters(owner, self._outcomes, self.path)


def group_rows(home: Path, catalog: Catalog, sources: KnownSources, outcomes: Outcomes) -> pa.Table:
    """All groups, with their letters by state. Blocks while letters that are new are read."""
    # A SELECT over a view need not wait for Kafka's client.
    from forebay.deadletter.desk import LetterDesk
    from forebay.deadletter.entry import moment

    with LetterDesk(_Letters(home, sources, catalog, outcomes), outcomes, sources.names) as desk:
        desk.refresh(timeout=PATIENCE_S)
        rows = [
            {
                "source": group.source,
                "error_kind": group.kind,
                "field": group.field,
                "pattern": group.pattern,
                "letters": group.letters,
                **{state: group.counts.get(state, 0) for state in STATES},
                "first_at": moment(group.first_ms),
                "last_at": moment(group.last_ms),
                "sample_id": group.samples[0] if group.samples else None,
                "group_id": group.id,
            }
            for group in desk.groups(state="all").groups
        ]
    return pa.Table.from_pylist(rows, GROUPS)
