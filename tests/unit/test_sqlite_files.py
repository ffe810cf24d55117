"""Files that earlier versions made open, with all that is in them; a step that fails leaves a file as it was."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forebay.blackboard.board_topics import BoardTopics
from forebay.blackboard.index import FORM, Index
from forebay.blackboard.options import bind
from forebay.catalog import Catalog, Definition, QueryState
from forebay.connectors.contract import Stretch
from forebay.deadletter.identity import Identity
from forebay.deadletter.outcomes import Intent, LetterState, Outcomes
from forebay.home_tables import STEPS
from forebay.sqlite import adopt, columns, migrate, version

# As each version made them, and rows as it wrote them. Versions were not counted then: `user_version` is 0.
ALL = """
CREATE TABLE objects (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, definition TEXT NOT NULL, created_ms INTEGER NOT NULL,
    detail TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE status (
    view TEXT PRIMARY KEY, state TEXT NOT NULL, message TEXT NOT NULL, pid INTEGER NOT NULL, since_ms INTEGER NOT NULL
);
CREATE TABLE status_history (
    id INTEGER PRIMARY KEY, view TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE TABLE batches (
    view TEXT NOT NULL, batch INTEGER NOT NULL, at_ms INTEGER NOT NULL, records INTEGER NOT NULL,
    rejected INTEGER NOT NULL, duration_ms INTEGER NOT NULL, PRIMARY KEY (view, batch)
);
INSERT INTO objects VALUES ('v', 'view', 'CREATE MATERIALIZED VIEW v AS SELECT 1', 5, '{"emit": "append"}');
INSERT INTO status VALUES ('v', 'running', 'm', 7, 8);
INSERT INTO status_history VALUES (1, 'v', 'running', 'm', 8);
INSERT INTO batches VALUES ('v', 3, 9, 20, 2, 11);
"""
FIRST = """
CREATE TABLE totals (
    view TEXT NOT NULL, source TEXT NOT NULL, batch INTEGER NOT NULL, records INTEGER NOT NULL,
    rejected TEXT NOT NULL, example TEXT, lost TEXT NOT NULL, offsets TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (view, source)
);
INSERT INTO totals VALUES ('v', 's', 3, 20, '{"Other": 2}', 'e', '["t-0 [0, 5)", "t-0 [5, 6)", "t-1 [7, 9)"]', '{}', 9);
"""
LETTERS = """
CREATE TABLE totals (
    view TEXT NOT NULL, source TEXT NOT NULL, batch INTEGER NOT NULL, records INTEGER NOT NULL,
    rejected TEXT NOT NULL, example TEXT, lost TEXT NOT NULL, late INTEGER NOT NULL, offsets TEXT NOT NULL,
    at_ms INTEGER NOT NULL, skipped INTEGER NOT NULL DEFAULT 0, dlq INTEGER NOT NULL DEFAULT 0,
    rate_limited INTEGER NOT NULL DEFAULT 0, last_error_ms INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, source)
);
CREATE TABLE recent_errors (
    view TEXT NOT NULL, source TEXT NOT NULL, at_ms INTEGER NOT NULL, errors INTEGER NOT NULL
);
CREATE TABLE dead_letter_ledger (
    source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
    "end" INTEGER NOT NULL, count INTEGER NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (source, topic, partition, start)
);
CREATE TABLE dead_letter_outcomes (
    source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    state TEXT NOT NULL, at_ms INTEGER NOT NULL, reason TEXT, replay_id TEXT, target_topic TEXT,
    target_partition INTEGER, target_offset INTEGER, PRIMARY KEY (source, topic, partition, "offset")
) WITHOUT ROWID;
CREATE INDEX dead_letter_replays ON dead_letter_outcomes (replay_id);
CREATE TABLE dead_letter_intents (
    replay_id TEXT PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL, since TEXT NOT NULL, letters TEXT NOT NULL
);
CREATE TABLE dead_letter_replayers (source TEXT PRIMARY KEY, transactional_id TEXT NOT NULL);
CREATE TABLE dead_letter_watches (
    source TEXT NOT NULL, place TEXT NOT NULL, positions TEXT NOT NULL, PRIMARY KEY (source, place)
);
INSERT INTO totals VALUES
    ('v', 's', 3, 20, '{"Other": 2}', 'e', '["t-0 [0, 5)", "t-0 [5, 6)", "t-1 [7, 9)"]', 4, '{}', 9, 1, 2, 0, 6);
INSERT INTO dead_letter_ledger VALUES ('s', 't', 0, 10, 20, 5, 9);
INSERT INTO dead_letter_outcomes VALUES ('s', 't', 0, 1, 'discarded', 5, 'junk', NULL, NULL, NULL, NULL);
INSERT INTO dead_letter_intents VALUES ('q', 's', 't', '{"0": 3}', '[["t", 0, 7]]');
INSERT INTO dead_letter_replayers VALUES ('s', 'forebay-replay-s-1');
INSERT INTO dead_letter_watches VALUES ('s', 'p', '{"0": 4}');
"""
MARKS = (
    LETTERS.replace("    state TEXT NOT NULL, at_ms", "    mark TEXT NOT NULL, state TEXT NOT NULL, at_ms")
    .replace("('s', 't', 0, 1, 'discarded'", "('s', 't', 0, 1, '', 'discarded'")
    .replace("letters TEXT NOT NULL\n", "letters TEXT NOT NULL,\n    target_id TEXT NOT NULL DEFAULT ''\n")
    .replace("""'[["t", 0, 7]]')""", """'[["t", 0, 7, ""]]', '')""")
)
TOPIC_IDS = (
    MARKS.replace(
        "count INTEGER NOT NULL, at_ms", "count INTEGER NOT NULL, topic_id TEXT NOT NULL DEFAULT '', at_ms"
    )
    .replace("partition, start)\n", "partition, start, topic_id)\n")
    .replace("('s', 't', 0, 10, 20, 5, 9)", "('s', 't', 0, 10, 20, 5, '', 9)")
    .replace("    mark TEXT", "    topic_id TEXT NOT NULL DEFAULT '', mark TEXT")
    .replace('"offset")\n', '"offset", topic_id)\n')
    .replace("('s', 't', 0, 1, '', 'discarded'", "('s', 't', 0, 1, '', '', 'discarded'")
)
LOST_RANGES = (
    TOPIC_IDS.replace(" lost TEXT NOT NULL,", "")
    .replace("DEFAULT 0, PRIMARY KEY (view, source)", "DEFAULT 0, lost_ranges INTEGER NOT NULL DEFAULT 0,\n"
             "    lost_records INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, source)")
    .replace(""" '["t-0 [0, 5)", "t-0 [5, 6)", "t-1 [7, 9)"]',""", "")
    .replace("1, 2, 0, 6)", "1, 2, 0, 6, 2, 8)")
    + """
CREATE TABLE lost_ranges (
    id INTEGER PRIMARY KEY, view TEXT NOT NULL, source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    start INTEGER NOT NULL, "end" INTEGER NOT NULL
);
CREATE INDEX lost_by_view ON lost_ranges (view, source);
CREATE TABLE beginnings (
    source TEXT PRIMARY KEY, identity TEXT NOT NULL, offsets TEXT NOT NULL, at_ms INTEGER NOT NULL
);
INSERT INTO lost_ranges VALUES (1, 'v', 's', 't', 0, 0, 6), (2, 'v', 's', 't', 1, 7, 9);
INSERT INTO beginnings VALUES ('s', 'i', '{"t": 1}', 9);
"""
)  # fmt: skip
UNCOUNTED = LOST_RANGES.replace(
    "lost_records INTEGER NOT NULL DEFAULT 0,",
    "lost_records INTEGER NOT NULL DEFAULT 0, case_mismatches INTEGER NOT NULL DEFAULT 0,",
).replace("1, 2, 0, 6, 2, 8)", "1, 2, 0, 6, 2, 8, 3)")
VERSIONS = {
    "first": FIRST,
    "letters": LETTERS,
    "marks": MARKS,
    "topic ids": TOPIC_IDS,
    "lost ranges": LOST_RANGES,
    "uncounted": UNCOUNTED,
}


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    path = tmp_path / "catalog.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(ALL + VERSIONS[request.param])
    return request.param, path


@pytest.mark.parametrize("catalog_first", [True, False])
def test_a_home_of_any_earlier_version_opens_with_all_that_was_in_it(
    old: tuple[str, Path], catalog_first: bool
) -> None:
    made_by, path = old
    opened = [Catalog, Outcomes] if catalog_first else [Outcomes, Catalog]
    for open_file in opened:
        open_file(path).close()
    catalog, outcomes = Catalog(path), Outcomes(path)
    try:
        assert catalog.get("v") == Definition(
            "v", "view", "CREATE MATERIALIZED VIEW v AS SELECT 1", 5, {"emit": "append"}
        )
        assert catalog.state("v") == (QueryState.RUNNING, "m", 7)
        assert catalog.history("v") == [(8, "running", "m")]
        assert catalog.batches("v") == [(3, 9, 20, 2, 11)]
        [total] = catalog.totals()
        assert (total.batch, total.records, total.rejected, total.example) == (3, 20, {"Other": 2}, "e")
        assert total.lost == ("t-0 [0, 6)", "t-1 [7, 9)")
        assert (total.lost_ranges, total.lost_records) == (2, 8)
        if made_by != "first":
            assert (total.late, total.skipped, total.dlq, total.last_error_ms) == (4, 1, 2, 6)
            assert catalog.ledger("s") == [Stretch("t", 0, 10, 20, 5)]
            assert outcomes.counts() == {("s", LetterState.DISCARDED): 1}
            assert outcomes.intents("s") == [Intent("q", "t", {0: 3}, {Identity("t", 0, 7): ""})]
            assert outcomes.transactional_id("s") == "forebay-replay-s-1"
            assert outcomes.watched("s", "p") == {0: 4}
        if made_by in ("lost ranges", "uncounted"):
            assert catalog.beginning("s", "i") == {"t": 1}
        assert total.case_mismatches == (3 if made_by == "uncounted" else 0)
    finally:
        catalog.close()
        outcomes.close()


def test_an_old_file_becomes_as_a_new_one_is(old: tuple[str, Path], tmp_path: Path) -> None:
    def shape(path: Path) -> tuple[int, dict[str, list[str]], set[str]]:
        with closing(sqlite3.connect(path)) as db:
            found = db.execute(
                "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            ).fetchall()
            tables = {name: columns(db, name) for name, kind in found if kind == "table"}
            return version(db), tables, {name for name, kind in found if kind == "index"}

    _, path = old
    Catalog(path).close()
    Outcomes(tmp_path / "new.db").close()
    assert shape(path) == shape(tmp_path / "new.db")
    assert shape(path)[0] == len(STEPS)


def test_a_file_of_this_version_is_not_written_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    Catalog(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # whoever would write has to wait
        Catalog(path).close()
        Outcomes(path).close()
        writer.execute("ROLLBACK")


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)


def test_only_the_steps_that_a_file_lacks_are_taken(tmp_path: Path) -> None:
    taken: list[int] = []
    with closing(connect(tmp_path / "a.db")) as db:
        migrate(db, [lambda db: taken.append(1)])
        migrate(db, [lambda db: taken.append(1), lambda db: taken.append(2)])
        migrate(db, [lambda db: taken.append(1)])  # an older version, which leaves it as it is
        assert (taken, version(db)) == ([1, 2], 2)


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    def fail(db: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with closing(connect(tmp_path / "a.db")) as db:
        with pytest.raises(ZeroDivisionError):
            migrate(db, [lambda db: adopt(db, "CREATE TABLE IF NOT EXISTS a (b)"), fail])
        assert (version(db), columns(db, "a")) == (0, [])


def test_processes_that_open_it_at_once_take_a_step_once(tmp_path: Path) -> None:
    path, taken = tmp_path / "a.db", []
    both = threading.Barrier(2)

    def step(db: sqlite3.Connection) -> None:
        taken.append(db)
        # Long enough that the other has seen version 0 and waits for its turn.
        both.wait(10)

    def first() -> None:
        with closing(connect(path)) as db:
            migrate(db, [step])

    class Asked(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "BEGIN IMMEDIATE":
                both.wait(10)
            return super().execute(sql, *values)  # type: ignore[arg-type]

    thread = threading.Thread(target=first)
    thread.start()
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30, factory=Asked)) as db:
            migrate(db, [step])
            assert (len(taken), version(db)) == (1, 1)
    finally:
        thread.join()


@pytest.mark.parametrize("form", [0, 1, FORM + 1])
def test_an_index_of_any_other_form_is_begun_again(form: int, tmp_path: Path) -> None:
    path = tmp_path / "board.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE artifacts (seq INTEGER PRIMARY KEY, id TEXT); INSERT INTO artifacts VALUES (1, 'a');"
            "CREATE TABLE of_old (a); CREATE INDEX artifacts_created ON artifacts (id);"
            f"PRAGMA user_version = {form}"
        )
    index = Index(BoardTopics.of(bind({})), path)
    try:
        assert index.rows("SELECT id FROM artifacts") == []
        assert index.rows("SELECT name FROM sqlite_master WHERE name = 'of_old'") == []
    finally:
        index.close()
