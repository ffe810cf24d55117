"""How far groups are behind, of sources that no session of this process watches: asked now and then, by one thread.

A question to brokers takes a connection or two. So few are kept open, and the thread rests nine times as long as its questions
took: a home of two hundred sources is looked at less often, and never at the cost of the pipeline.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forebay import threads
from forebay.connectors.contract import HealthStatus
from forebay.errors import ForebayError
from forebay.web.ground import Ground

if TYPE_CHECKING:
    from forebay.kafka.admin import Cluster
    from forebay.kafka.lag import OldestUnread

EVERY_S = 2.0
REST = 9.0  # times as long as asking took
LONGEST_REST_S = 60.0
OPEN = 16  # clusters
PATIENCE_MS = 3000
CLOSE_S = 5.0


class LagWatch:
    """`others` has the health of those sources that somebody else watches: these are not asked."""

    def __init__(self, ground: Ground, others: Callable[[], Mapping[str, HealthStatus]]) -> None:
        self._ground = ground
        self._others = others
        self._found: dict[str, HealthStatus] = {}
        self._clusters: OrderedDict[str, tuple[str, Cluster, OldestUnread]] = OrderedDict()
        self._closed = threading.Event()
        self._thread = threads.keep_running("forebay-ui-lag", self._run, self._closed)

    def last(self) -> dict[str, HealthStatus]:
        """The last word on each source; nothing of one that was not asked yet. Never waits."""
        return {**self._found, **self._others()}

    def close(self) -> None:
        self._closed.set()
        self._thread.join(CLOSE_S)
        while self._clusters:
            self._clusters.popitem()[1][1].close()

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            watched = self._others()
            names = self._ground.sources.names()
            for name in names:
                if self._closed.is_set():
                    return
                if name not in watched:
                    self._found[name] = self._ask(name)
            for name in self._found.keys() - set(names):
                self._found.pop(name, None)
            took = time.monotonic() - began
            self._closed.wait(min(LONGEST_REST_S, max(EVERY_S, REST * took)))

    def _ask(self, source: str) -> HealthStatus:
        try:
            return self._lag(source)
        except ForebayError as error:
            return HealthStatus(False, error.message)
        except Exception as error:  # of somebody else's connector: it must not silence the others
            return HealthStatus(False, f"{type(error).__name__}: {error}")

    def _lag(self, source: str) -> HealthStatus:
        facts = self._ground.sources.facts(source)
        if facts.connector != "kafka":
            return HealthStatus(True, "")  # what is not read here is not connected here
        from forebay.kafka.lag import lag_of

        cluster, oldest = self._cluster(source, repr(sorted(facts.options.items())))
        found = oldest.aged(lag_of(cluster, cluster.describe(cluster.matching())))
        return HealthStatus(True, f"lag: {sum(each.lag for each in found)}", partitions=tuple(found))

    def _cluster(self, source: str, text: str) -> tuple[Cluster, OldestUnread]:
        from forebay.kafka.admin import Cluster
        from forebay.kafka.lag import OldestUnread

        kept = self._clusters.pop(source, None)
        if kept is not None and kept[0] != text:
            kept[1].close()
            kept = None
        if kept is None:
            known = self._ground.options(source)
            patience_ms = min(PATIENCE_MS, known["connect.timeout.ms"])
            options = known.table.bind({**known.given, "connect.timeout.ms": str(patience_ms)})
            kept = (text, Cluster(options), OldestUnread(options))
        self._clusters[source] = kept
        while len(self._clusters) > OPEN:
            self._clusters.popitem(last=False)[1][1].close()
        return kept[1], kept[2]
