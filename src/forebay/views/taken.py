"""Which records of its topics a table has that several processes write to.

Each commit of such a table carries all of it, so whoever reads the newest one knows it without the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from forebay.source.accounts import Span, joined_spans

NO_END = 1 << 63  # more than any offset


@dataclass(frozen=True)
class TakenOffsets:
    """Ranges of offsets. `ids` tell a topic from one of its name before it, of which nothing counts any more."""

    spans: tuple[Span, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)

    def of(self, wanted: Iterable[Span], ids: Mapping[str, str]) -> list[Span]:
        """What of these is there already."""
        known = [span for span in self.spans if self._is_same(span.topic, ids)]
        return joined_spans(
            Span(*want[:2], max(want.start, span.start), min(want.end, span.end))
            for want in wanted
            for span in known
            if want.overlaps(span)
        )

    def reached(self, topic: str, partition: int, at: int, ids: Mapping[str, str]) -> int:
        """The next record that is not there, from this one on."""
        following = [
            span.end for span in self.of([Span(topic, partition, at, NO_END)], ids) if span.start == at
        ]
        return following[0] if following else at

    def adding(self, more: Iterable[Span], ids: Mapping[str, str]) -> TakenOffsets:
        kept = [span for span in self.spans if self._is_same(span.topic, ids)]
        named = {topic: each for topic, each in ids.items() if each}
        return TakenOffsets(tuple(joined_spans([*kept, *more])), {**self.ids, **named})

    def _is_same(self, topic: str, ids: Mapping[str, str]) -> bool:
        known, given = self.ids.get(topic), ids.get(topic)
        return not known or not given or known == given

    def to_json(self) -> str:
        return json.dumps({"ids": dict(self.ids), "spans": self.spans}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> TakenOffsets:
        form = json.loads(text)
        return TakenOffsets(tuple(Span(*span) for span in form["spans"]), form["ids"])
