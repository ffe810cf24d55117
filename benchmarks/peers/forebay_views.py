"""Forebay with materialized views over one source that grows."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.contract import Peer, Prepared
from benchmarks.peers.forebay_sql import NAME, ForebaySql
from benchmarks.peers.live import answer, condition, reading
from benchmarks.peers.session import serve

PEER = Peer(NAME, "benchmarks.peers.forebay_views", lambda _: Prepared(sys.executable))


class ForebayViews(ForebaySql):
    def start(self, topic: str, views: int) -> list[Path]:
        from forebay.views.paths import paths_of

        self.db.execute(self._source("s", reading(topic)))
        for view in range(views):
            query = f"SELECT k, x FROM s WHERE {condition(view)}"
            self.db.execute(f"CREATE MATERIALIZED VIEW v{view} AS {query}")
        return [paths_of(self.db.home, f"v{view}").table for view in range(views)]

    def select(self, view: int) -> None:
        self.db.sql(f"SELECT count(*) AS n, max(k) AS k FROM v{view}").arrow()


if __name__ == "__main__":
    serve(ForebayViews, answer)
