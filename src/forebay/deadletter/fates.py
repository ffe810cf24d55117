"""What became of a replayed record: whether every view over the source has read it, and it was not refused."""

from __future__ import annotations

import threading
import time

from forebay.deadletter.desk_views import Fate
from forebay.deadletter.everybody import Who
from forebay.deadletter.index import IndexRow, LetterIndex
from forebay.errors import ForebayError

KEPT_S = 5.0


class Fates:
    """Of one desk.

    A letter is durable before its record's offset is committed. So a record is in the view if the group had committed
    past it, and the letters were read to their end after that, and none is about it. The rate limit may keep a letter
    out; then the ledger has the place.
    """

    def __init__(self, index: LetterIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._judged: dict[tuple[str, str], tuple[float, bool]] = {}

    def of(self, who: Who, row: IndexRow) -> tuple[Fate, str]:
        """What became of it, and how that is known."""
        if row.state == "open":
            return "open", "nobody has decided yet"
        if row.state == "discarded":
            return "discarded", "somebody decided that it is not wanted"
        if row.state == "failed_again":
            return "failed_again", "it was replayed and refused again: there is a new letter about it"
        if row.target_topic is None or row.target_partition is None or row.target_offset is None:
            return "sent", "a replay that was killed had sent it; where it is now was not written down"
        place = f"{row.target_topic}/{row.target_partition}/{row.target_offset}"
        if not self._judges(who, row.target_topic):
            return "sent", f"it is {place}; what its readers make of it is not known here"
        committed = who.followed.proved.get(who.owner.key, {}).get((row.target_topic, row.target_partition))
        if committed is None or committed <= row.target_offset:
            return "waiting", f"it is {place}, and not every view over '{who.owner.name}' has read it yet"
        for stretch in who.followed.ledgers.get(who.owner.key, ()):
            same = (stretch.topic, stretch.partition) == (row.target_topic, row.target_partition)
            if same and stretch.start <= row.target_offset < stretch.end:
                return (
                    "sent",
                    f"it is {place}; it was read, but the rate limit keeps letters out there: recover them",
                )
        return (
            "in_view",
            f"it is {place}; every view over '{who.owner.name}' has read it, and it was not refused",
        )

    def _judges(self, who: Who, topic: str) -> bool:
        key = (who.owner.key, topic)
        with self._lock:
            kept = self._judged.get(key)
        if kept is None or time.monotonic() - kept[0] > KEPT_S:
            try:
                kept = (time.monotonic(), who.owner.judges(topic))
            except ForebayError:
                kept = (time.monotonic(), False)
            with self._lock:
                self._judged[key] = kept
        return kept[1]
