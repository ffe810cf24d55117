"""SIGKILL when a table has a batch and nobody has counted it: what the rate limit kept out is still known."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from killed_at import after_one_table_has_a_batch, before_a_batch_is_counted
from pipelines import UNTIL_CAUGHT_UP, pipelines, table_of
from sessions import connect
from support import Cluster, unique

from forebay.catalog import Catalog

RECORDS, LIMIT = 300, 5
KILLED_AT = Path(__file__).with_name("killed_at.py")
SOURCE = """
CREATE SOURCE kept_out (id BIGINT NOT NULL) FROM KAFKA (brokers = '{brokers}', topic = '{topic}') FORMAT JSON
ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{dlq}', max_errors_per_second = {limit});
"""
VIEWS = {
    "selects": ["SELECT id FROM kept_out"],
    "groups": ["SELECT id % 2 AS k, count(*) AS n FROM kept_out GROUP BY id % 2"],
    "by spark": ["SELECT DISTINCT id FROM kept_out"],
    "two": ["SELECT id FROM kept_out", "SELECT id AS other FROM kept_out"],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("views", "every", "point"),
    [
        ("two", 3, before_a_batch_is_counted),
        pytest.param("two", 3, after_one_table_has_a_batch, marks=pytest.mark.long),
        pytest.param("groups", 3, before_a_batch_is_counted, marks=pytest.mark.long),
        pytest.param("by spark", 3, before_a_batch_is_counted, marks=pytest.mark.long),
        pytest.param("selects", 1, before_a_batch_is_counted, marks=pytest.mark.long),
        pytest.param("by spark", 1, before_a_batch_is_counted, marks=pytest.mark.long),
    ],
    ids=lambda each: each if isinstance(each, str | int) else each.__name__,
)
def test_every_bad_record_has_a_letter_or_is_in_the_ledger_when_a_batch_was_not_counted(
    cluster: Cluster, tmp_path: Path, views: str, every: int, point: Callable[[], None]
) -> None:
    """`every`: of so many records, one is bad. Of a batch in which all are, no table has anything to take."""
    home, script, dlq = tmp_path / "home", tmp_path / "p.sql", unique("dlq")
    topic = cluster.make_topic(2)
    bad = {(number % 2, number // 2) for number in range(RECORDS) if number % every == 0}
    for partition in (0, 1):
        numbers = range(partition, RECORDS, 2)
        cluster.produce(
            topic, [b"{" if n % every == 0 else json.dumps({"id": n}) for n in numbers], partition=partition
        )
    written = SOURCE.format(brokers=cluster.bootstrap_servers, topic=topic, dlq=dlq, limit=LIMIT)
    for number, query in enumerate(VIEWS[views]):
        written += f"CREATE MATERIALIZED VIEW v{number} AS {query};\n"
    script.write_text(written)
    dies = (sys.executable, str(KILLED_AT), point.__name__)
    with pipelines(script, home, tmp_path, view="v0") as start:
        killed = start(program=dies)
        assert killed.process.wait(150) == -signal.SIGKILL, killed.log.read_text()
        ended = start(*UNTIL_CAUGHT_UP)
        # It ends with 1 where all that a view has read was bad.
        assert ended.process.wait(200) == (every == 1), ended.log.read_text()

    letters = {(each.partition, each.offset) for each in cluster.letters(dlq)}
    assert letters < bad
    with closing(Catalog(home / "catalog.db")) as catalog:
        ledger = catalog.ledger("kept_out")
        [errors] = catalog.source_errors()
    without = bad - letters
    assert all(any(s.partition == p and s.start <= o < s.end for s in ledger) for p, o in without)
    assert errors.errors_total == errors.dlq_total + errors.rate_limited == len(bad)
    with connect(home) as session:
        report = session.dead_letters("kept_out").recover()
        assert (report.recovered, report.gone) == (len(without), 0)
        found = [(each.letter.partition, each.letter.offset) for each in session.dead_letters("kept_out")]
        assert sorted(found) == sorted(bad)
        assert session.dead_letters("kept_out").recover().kept_out == 0
    good = RECORDS - len(bad)
    table = table_of(home, "v0").to_pyarrow_table()
    assert (sum(table["n"].to_pylist()) if views == "groups" else table.num_rows) == good
    assert not list(home.glob("**/accounts/**/*.json"))
