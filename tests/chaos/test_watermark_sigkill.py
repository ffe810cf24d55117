"""SIGKILL in the middle of batches: marks of partitions survive it, and no row of a slow partition becomes late.

FOREBAY_CHAOS_KILLS sets how often (1).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pipelines import UNTIL_CAUGHT_UP, pipelines, table_of
from sessions import BASE_MS
from support import Cluster

from forebay.catalog import Catalog

KILLS = min(5, int(os.environ.get("FOREBAY_CHAOS_KILLS", "1")))
RECORDS, WINDOW_S, DELAY_S = 2_000, 100, 5
STEPS_S = {0: 10, 1: 1}  # between records, by partition
SELECT = "SELECT window_start AS w, count(*) AS n FROM marks GROUP BY TUMBLE(ts, INTERVAL '100' SECOND)"
PIPELINE = f"""
CREATE SOURCE marks (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '{DELAY_S}' SECOND)
FROM KAFKA (brokers = '{{brokers}}', topic = '{{topic}}', group_id = 'marks', max_records_per_batch = 200) FORMAT JSON;
CREATE MATERIALIZED VIEW sums AS {SELECT} EMIT CHANGES;
CREATE MATERIALIZED VIEW closed AS {SELECT} EMIT ON WINDOW CLOSE;
"""


@pytest.mark.long
@pytest.mark.timeout(240 + 60 * KILLS)
def test_no_row_of_a_slow_partition_is_late_however_often_the_driver_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    home, script, topic = tmp_path / "home", tmp_path / "pipeline.sql", cluster.make_topic(2)
    script.write_text(PIPELINE.format(brokers=cluster.bootstrap_servers, topic=topic))
    expected: Counter[int] = Counter()
    for partition, step_s in STEPS_S.items():
        times = [number * step_s for number in range(RECORDS)]
        rows = [json.dumps({"id": at, "ts": BASE_MS + at * 1000}) for at in times]
        cluster.produce(topic, rows, partition=partition)
        expected.update(at // WINDOW_S for at in times)
    with pipelines(script, home, tmp_path, view="sums") as start:
        for kill in range(KILLS):
            pipeline = start()
            pipeline.await_running(first_batch=True)
            pipeline.kill(whole_group=kill % 2 == 0)
        start(*UNTIL_CAUGHT_UP).finish()

    def counts(view: str) -> dict[int, int]:
        found = table_of(home, view).to_pyarrow_table().to_pylist()
        assert len({row["w"] for row in found}) == len(found)
        return {int(row["w"].timestamp() - BASE_MS / 1000) // WINDOW_S: row["n"] for row in found}

    assert counts("sums") == expected
    # The slow partition is at 1,999 s, less the delay: the windows before that are closed, and whole.
    closed = (RECORDS - 1 - DELAY_S) // WINDOW_S
    assert counts("closed") == {window: expected[window] for window in range(closed)}
    with closing(Catalog(home / "catalog.db")) as catalog:
        assert [totals.late for view in ("sums", "closed") for totals in catalog.totals(view=view)] == [0, 0]
