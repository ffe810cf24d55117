"""What the pages make of what they are given: words, places of boxes, marked bytes. Data stays a value, and never a key or markup."""

from __future__ import annotations

from jinja2 import DictLoader, Environment

from forebay.deadletter.desk_views import HexLine
from forebay.web.model import Edge, HistoryPoint, Node, Overview, ShownColumn, ShownTable
from forebay.web.pages import payloads, policy, tables, words
from forebay.web.pages.charts import in_bytes
from forebay.web.pages.layout import SHOWN, columns
from forebay.web.pages.source_charts import LINES, by_partition

HOSTILE = ":onclick=alert(1) <img src=x>"


def _overview(sources: int) -> Overview:
    nodes = [Node(f"source:s{n:03}", "source", f"s{n:03}", "failed" if n == sources - 1 else "running", rate=float(n)) for n in range(sources)]  # fmt: skip
    nodes += [Node(f"view:v{n:03}", "view", f"v{n:03}", "running") for n in range(sources)]
    edges = [Edge(f"source:s{n:03}", f"view:v{n:03}") for n in range(sources)]
    return Overview(nodes, edges, [], 0, "home")


def test_of_many_sources_the_graph_shows_what_failed_then_what_is_busy_and_the_views_that_belong_to_them() -> (
    None
):
    made, edges = columns(_overview(200))
    sources, views = ([node["name"] for node in made[at]["nodes"]] for at in (1, 2))
    assert sources[:3] == ["s199", "s198", "s197"]
    assert len(sources) == SHOWN
    assert views == [name.replace("s", "v") for name in sources]
    assert made[1]["more"] == "and 190 more"
    assert len(edges) == SHOWN


def test_the_characters_at_fault_are_marked_and_a_missing_one_has_a_place() -> None:
    assert payloads.text_parts("abcdef", (2, 4)) == [
        {"text": "ab"},
        {"text": "cd", "bad": True, "why": "decoding fails here"},
        {"text": "ef"},
    ]
    assert payloads.text_parts("abc", (3, 3))[1]["text"] == "▮"


def test_a_dump_has_its_lines_in_step_whether_or_not_they_are_full() -> None:
    full = HexLine(0, "41" * 16, "A" * 16, (0,))
    rest = HexLine(16, "42 43", "BC", ())
    lines = "".join(part["text"] for part in payloads.hex_parts((full, rest))).splitlines()
    assert lines[0].index("A" * 16) == lines[1].index("BC")
    assert [part["text"] for part in payloads.hex_parts((full,)) if part.get("bad")] == ["41", "A"]


def test_a_column_s_name_is_a_label_and_never_a_key() -> None:
    table = ShownTable([ShownColumn(HOSTILE, "string")], [[HOSTILE]])
    assert tables.columns(table) == [{"label": HOSTILE, "align": "start", "mono": True}]
    assert tables.rows(table) == [{"id": "0", "cells": [{"text": HOSTILE}]}]


def test_a_name_in_an_address_is_quoted_whatever_is_in_it() -> None:
    assert words.link("/source", name="a/b?c=d&e#f") == "/source?name=a%2Fb%3Fc%3Dd%26e%23f"


def test_scripts_of_the_template_have_a_nonce_and_those_of_data_have_none() -> None:
    template = "<script>1</script><script type='module'>2</script>{{ data | safe }}"
    loader = policy._Nonces(DictLoader({"index.html": template}))
    page = Environment(loader=loader, autoescape=True).get_template("index.html")
    made = page.render(request={"state": {"nonce": "n"}}, data="<script>3</script>")
    assert made.count('nonce="n"') == 2
    assert "<script>3</script>" in made


def test_the_partitions_that_were_furthest_behind_have_a_line_each() -> None:
    points = [HistoryPoint(at, None, None, 1, None, None, partitions={"t-0": 5, f"t-{at}": at}) for at in range(1, 20)]  # fmt: skip
    found = by_partition([*points, HistoryPoint(99, None, None, 1, None, None)])
    assert list(found) == [f"t-{at}" for at in range(19, 19 - LINES, -1)]
    assert found["t-19"][-2:] == [(18, None), (19, 19)]


def test_sizes_are_drawn_in_a_unit_that_makes_them_short() -> None:
    assert in_bytes([(0, None), (1, 999.0)]) == ("B", [(0, None), (1, 999.0)])
    assert in_bytes([(0, None), (1, 2_500_000.0)]) == ("MB", [(0, None), (1, 2.5)])
