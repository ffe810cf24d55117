"""What a person sees who types a name at a prompt: a line that says what matters, a table in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.blackboard.stats import AgentStats, BoardStats, OrchestratorStats
from forebay.connectors.contract import PartitionLag
from forebay.deadletter.entry import Entry
from forebay.deadletter.letter import Letter
from forebay.deadletter.letters import DeadLetters
from forebay.deadletter.outcomes import OPEN
from forebay.deadletter.owners import TopicOwner, topic_options
from forebay.deadletter.stats import count
from forebay.tables import counted, html_table

PARTITION = forebay.PartitionStats("orders", 3, 1_500, 1_200, 1_000, 2_300, 300, True, False)
STATS = forebay.PoolStats(
    name="billing", state="running", seconds=12.34, completed=1_200, retries=4, dead_letters=0, skipped=0, halted=0,
    workers=17, worker_limit=100, queued=42, commits=3, commit_failures=0, rebalances=1, handler_seconds=9.5,
    partitions=(PARTITION,),
)  # fmt: skip
LETTER = Letter(
    "orders",
    "orders",
    0,
    7,
    None,
    b"k",
    b"<b>",
    (),
    "TypeConversion",
    "column 'n': <b> is no number\nmore",
    0,
    size=3,
)
AGENTS = OrchestratorStats({("pricing", 0): AgentStats(handled=10, errors=2, seconds=1.5)}, refused=1)


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (
            STATS,
            "<pool billing: running for 12.3 s, 1,200 done, lag 2,300 in 1 partition, 17 of 100 workers busy, 42 queued, "
            "4 retried>",
        ),
        (
            PARTITION,
            "<partition orders/3: lag 2,300 (read to 1,500, done to 1,200, committed 1,000), paused>",
        ),
        (
            forebay.PartitionStats("orders", 3, None, None, None, None, 0, False, True),
            "<partition orders/3: lag unknown (read to unknown, done to unknown, committed unknown), heavy>",
        ),
        (
            forebay.ReplayReport("orders", "orders", selected=10, sent=9, problem_count=1),
            "<replay of orders: 9 letters of 10 sent to topic orders, 1 could not be sent>",
        ),
        (
            forebay.ReplayReport("orders", "again", dry_run=True, selected=1, sent=1, refused_count=1),
            "<replay of orders: 1 letter of 1 would be sent to topic again, 1 would be refused again>",
        ),
        (
            forebay.RecoveryReport("orders", kept_out=9, recovered=7, gone=2, ranges=["orders/0 [3, 5)"]),
            "<recovery of orders: 7 letters of 9 kept out written, 2 gone: orders/0 [3, 5)>",
        ),
        (
            forebay.BoardReplay("0123456789abcdef", "pricing", 2, 1_340),
            "<replay 01234567 for agent pricing: 2 artifacts of 1,340 read>",
        ),
        (LETTER, "<letter orders/0/7 of orders, 3 bytes: TypeConversion: column 'n': <b> is no number>"),
        (
            Entry(LETTER, OPEN),
            "<open letter orders/0/7 of orders, 3 bytes: TypeConversion: column 'n': <b> is no number>",
        ),
        (count([Entry(LETTER, OPEN)] * 2), "<2 letters of 6 bytes; 2 open; 2 TypeConversion>"),
        (PartitionLag("orders", 0, None, 5, 5), "<lag in orders/0: 5 (committed none, end 5)>"),
        (AGENTS, "<agents: pricing: 10 handled in 1.5 s, 2 failed; 1 records refused>"),
        (
            BoardStats(10, {"flock.artifacts": 1}, None),
            "<blackboard: 10 records in the index, 1 refused in flock.artifacts>",
        ),
        (forebay.DevStack(), "<forebay.DevStack, not started>"),
    ],
)
def test_a_repr_says_what_matters_in_a_line(shown: object, line: str) -> None:
    assert repr(shown) == line


@pytest.mark.parametrize(
    ("shown", "cells"),
    [
        (STATS, ["<th>lag</th>", "<td>2300</td>", "pool billing: running"]),
        (count([Entry(LETTER, OPEN)]), ["<td>TypeConversion</td>", "<td>orders/0</td>"]),
        (
            forebay.ReplayReport("o", "o", problems=[("o/0/1", "<b>")]),
            ["<td>o/0/1</td>", "<td>&lt;b&gt;</td>"],
        ),
        (AGENTS, ["<td>pricing</td>", "<td>10</td>"]),
    ],
)
def test_a_notebook_shows_a_table(shown: Any, cells: list[str]) -> None:
    text = shown._repr_html_()
    assert [cell for cell in cells if cell not in text] == []
    assert "<b>" not in text


def test_letters_and_sessions_name_themselves(tmp_path: Path) -> None:
    with forebay.connect(home=tmp_path) as db:
        assert repr(db).startswith(f"<forebay.Session {tmp_path}: 0 sources, 0 views")
        options = topic_options("t", {"bootstrap.servers": "127.0.0.1:1"})
        letters = DeadLetters(TopicOwner.of("billing", "t", options, "c"), db._outcomes, tmp_path)
        assert repr(letters) == "<dead letters of billing in topic 't'>"
        assert (
            repr(letters.only(["t/0/1"])) == "<dead letters of billing in topic 't', selected by a condition>"
        )


def test_numbers_agree_with_their_nouns_and_html_is_escaped() -> None:
    assert (counted(1, "letter"), counted(2_000, "letter")) == ("1 letter", "2,000 letters")
    assert html_table(["<x>"], [[None, "a&b"]]) == (
        "<table><thead><tr><th>&lt;x&gt;</th></tr></thead><tbody><tr><td>NULL</td><td>a&amp;b</td></tr></tbody></table>"
    )
