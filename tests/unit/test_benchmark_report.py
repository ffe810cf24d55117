"""The benchmarks' arithmetic: ratios within rounds, spreads, and failures that stay failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from json import dumps
from pathlib import Path

import pyarrow as pa
from benchmarks import contest, letters, memory, readable, report, rows, views
from benchmarks.peers.contract import Outcome, Sample
from benchmarks.peers.session import Timing
from benchmarks.runner import ROOT, Round, without_paths
from benchmarks.topics import numbers_between, trades
from pyarrow import parquet

OURS, THEIRS = "ours", "theirs"


def outcome(wall_s: float, cpu_s: float = 1.0, checksum: str = "a") -> Outcome:
    cpu = {"java": cpu_s / 2, "python": cpu_s / 2}
    return Outcome("1", 1_000_000, checksum, 4, wall_s, wall_s / 2, cpu)


def rounds(*pairs: tuple[Outcome | str, Outcome | str]) -> list[Round]:
    return [Round({OURS: ours, THEIRS: theirs}) for ours, theirs in pairs]


def test_a_ratio_is_taken_within_a_round_and_shown_with_its_spread() -> None:
    done = rounds((outcome(1), outcome(2)), (outcome(10), outcome(5)), (outcome(2), outcome(3)))
    assert [ratio.speed for ratio in report.ratios(done, OURS, THEIRS)] == [2.0, 0.5, 1.5]
    assert (
        "**1.50 (0.50–2.00)**, median and range of 3 of 3 rounds" in report.ratio_notes(done, OURS, THEIRS)[0]
    )


def test_the_cpu_ratio_is_seconds_to_seconds() -> None:
    done = rounds((outcome(1, cpu_s=3), outcome(1, cpu_s=2)))
    assert report.ratios(done, OURS, THEIRS)[0].cpu == 1.5


def test_a_failed_peer_is_reported_with_its_error_and_gives_no_ratio() -> None:
    done = rounds((outcome(1), "no such jar"), (outcome(1), outcome(2)))
    assert len(report.ratios(done, OURS, THEIRS)) == 1
    assert "failed: no such jar" in report.round_grid(done, OURS, THEIRS).markdown()
    assert "1 of 2" in report.summary_grid(done).markdown()


def test_without_a_common_round_nothing_is_estimated() -> None:
    done = rounds((outcome(1), "down"), ("down", outcome(1)), ("down", "down"))
    assert report.ratio_notes(done, OURS, THEIRS) == (
        "No round in which both ours and theirs succeeded: no ratio.",
    )
    assert "not measured" in report.summary_grid(rounds((outcome(1), "down"))).markdown()


def test_peers_that_read_different_values_are_exposed() -> None:
    done = rounds((outcome(1, checksum="a"), outcome(1, checksum="b")))
    assert "DIFFERENT ROWS" in report.ratio_notes(done, OURS, THEIRS)[-1]
    same = rounds((outcome(1), outcome(1)))
    assert "the same rows" in report.ratio_notes(same, OURS, THEIRS)[-1]


def test_an_outcome_survives_its_way_between_processes() -> None:
    sample = Sample(1.0, 10, {"42": 1}, 2, 3)
    sent = Outcome("1", 10, "a", 1, 1.0, 0.5, {"java": 1.0}, (sample,))
    assert Outcome.from_json(dumps(asdict(sent))) == sent


def test_the_document_names_no_folder_of_this_machine() -> None:
    assert without_paths(f"no file {ROOT}/benchmarks/x") == "no file ./benchmarks/x"
    assert without_paths(f"{Path.home()}/elsewhere") == "~/elsewhere"


def test_claims_that_are_measured_again_replace_themselves_and_leave_the_others() -> None:
    def section(title: str, figure: str) -> report.Section:
        return report.Section(title, "How.", (report.Grid(("a",), ((figure,),), title="by a"),), ("so",))

    old = report.document("monday", [section("One", "1"), section("Two", "2"), section("Three", "3")])
    new = report.document("friday", [section("Two", "22"), section("Four", "4")], old)
    one, two, three, four = (report.document("", [section(t, f)]) for t, f in (("One", "1"), ("Two", "22"), ("Three", "3"), ("Four", "4")))  # fmt: skip
    for whole, day in ((one, "monday"), (two, "friday"), (three, "monday"), (four, "friday")):
        assert whole.removeprefix(report.HEAD).strip().replace("**\n", f"*{day}*\n") in new
    assert [line for line in new.splitlines() if line.startswith("## ")] == [
        "## One",
        "## Two",
        "## Three",
        "## Four",
    ]
    assert report.document("x", [], new) == new


def samples(*rss: int) -> list[Sample]:
    return [Sample(float(at), 0, {"1": size, "2": size}, 0, 0) for at, size in enumerate(rss)]


def test_quarters_leave_the_warm_up_out_and_share_the_rest() -> None:
    parts = memory.quarters(samples(*[1] * 101))
    assert [len(part) for part in parts] == [23, 22, 23, 23]
    assert parts[0][0].at_s == 10


def test_growth_is_the_last_quarter_to_the_first() -> None:
    assert memory.growth(samples(*[100] * 60)) == 1.0
    assert memory.growth(samples(*[100] * 30, *[150] * 30)) == 1.5
    assert memory.growth([]) is None


def test_trades_are_distinct_and_about_120_bytes() -> None:
    made = list(trades(5_000, first=1_000_000))
    assert len(set(made)) == 5_000
    assert all(110 <= len(trade) <= 130 for trade in made)


def test_our_cases_have_several_turns_a_round_and_none_always_comes_first() -> None:
    ours = [case for case in letters.CASES if case.peer is letters.forebay_sql.PEER]
    enough = -(-len(ours) // letters.TURNS)
    rounds = [list(letters.turns(number)) for number in range(enough)]
    for turns in rounds:
        counts = Counter(turns)
        assert {counts[case] for case in ours} == {letters.TURNS}
        assert {counts[case] for case in letters.CASES if case not in ours} == {1}
    turns = [case for found in rounds for case in found if case in ours]
    assert set(turns[:: len(ours)]) == set(ours)


def test_starting_a_query_is_taken_off_by_its_median() -> None:
    found = [
        Timing({}, 1, wall_s, wall_s, start, start) for wall_s, start in ((5.0, 1.0), (6.0, 9.0), (7.0, 2.0))
    ]
    net = contest.settled(found)
    assert [each.wall_s - each.start_wall_s for each in net] == [3.0, 4.0, 5.0]
    assert [each.cpu_s - each.start_cpu_s for each in net] == [3.0, 4.0, 5.0]


def looks(one: float, ten: float, rate: int = 1_000, peer: str = views.OURS) -> list[views.Look]:
    return [
        views.Look(peer, 1, rate, one, one, 3, one, one),
        views.Look(peer, views.VIEWS, rate, ten, ten, 3, ten, ten),
    ]


def found_views(
    *rounds: list[views.Look], starts: list[list[views.Start]] | None = None
) -> views.ViewResults:
    return views.ViewResults(rounds, starts or [], (), {})


def test_what_ten_views_cost_is_taken_by_one_view_of_the_same_round() -> None:
    found = found_views(looks(1, 2), looks(10, 10), looks(2, 6))
    assert views.ten_by_one(found, views.OURS, 1_000, "CPU") == report.Spread(2.0, 1.0, 3.0)


def test_a_round_in_which_one_of_the_two_failed_gives_no_ratio() -> None:
    found = found_views(looks(1, 2)[:1], looks(1, 3))
    assert views.ten_by_one(found, views.OURS, 1_000, "p50") == report.Spread(3.0, 3.0, 3.0)
    assert "–" not in views.rate_grid(found, [views.OURS], 1_000).rows[0][:4]


def test_aims_that_are_missed_are_said_to_be() -> None:
    held = list(views.verdicts(found_views(looks(10, 12)), [1_000]))
    missed = list(views.verdicts(found_views(looks(10, 16)), [1_000]))
    assert len(held) == len(missed) == len(views.AIMS)
    assert not any("does not hold" in line for line in held)
    assert all("does not hold" in line for line in missed)


def test_ten_of_our_views_are_shown_by_ten_of_each_peers() -> None:
    found = found_views([*looks(1, 2), *looks(3, 8, peer="other")])
    (line,) = views.beside(found, [views.OURS, "other"], [1_000])
    assert f"10 views, {views.OURS} / other: CPU 0.25 (0.25–0.25), p50 0.25" in line


def test_an_idle_view_more_is_the_ninth_part_of_what_nine_more_cost() -> None:
    lines = list(views.verdicts(found_views(looks(0.5, 1.4, views.IDLE)), []))
    assert "**0.50 (0.50–0.50)** % of a core; at most 1.0 holds" in lines[0]
    assert "**0.10 (0.10–0.10)** % of a core; at most 0.1 holds" in lines[1]


def test_the_start_of_many_views_is_taken_by_that_of_one() -> None:
    starts = [[views.Start(1, 2.0, 4.0), views.Start(50, 3.0, 20.0)]]
    running, caught_up = views.verdicts(found_views(starts=starts), [])
    assert "50 views / one: **1.50 (1.50–1.50)**; at most 1.5 holds" in running
    assert "**5.00 (5.00–5.00)**; at most 1.5 **does not hold**" in caught_up


def test_rows_are_claimed_four_times_as_fast_as_stock_spark_and_faster_than_the_others() -> None:
    results = contest.Results(1)
    for peer, wall_s in ((contest.OURS, 1.0), ("stock Spark", 3.0), ("Flink SQL", 2.0)):
        for case in rows.CASES:
            results.add(case, peer, Timing({}, 1_000_000, wall_s, wall_s, 0.0, 0.0))
    lines = list(rows.verdicts(results, [contest.OURS, "stock Spark", "Flink SQL"]))
    assert [("does not hold" in line) for line in lines] == [True, False] * len(rows.CASES)


def test_the_records_of_a_look_are_those_made_in_it() -> None:
    stamps = [(0, 5), (100, 7), (102, 7), (104, 20), (110, 30)]
    assert numbers_between(stamps, 100, 110) == range(5, 20)
    assert numbers_between(stamps, 101, 111) == range(7, 30)
    assert len(numbers_between(stamps, 200, 300)) == 0


def written(folder: Path, name: str, numbers: range, stamp_ms: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"k": list(numbers), "x": [stamp_ms] * len(numbers)}), folder / name)


def test_a_row_can_be_read_when_the_commit_of_its_file_is_there(tmp_path: Path) -> None:
    written(tmp_path, "a b.parquet", range(3), 1_000)
    written(tmp_path, "not committed.parquet", range(9), 1_000)
    log = tmp_path / "_delta_log"
    log.mkdir()
    add = {"path": "a%20b.parquet", "dataChange": True}
    compacted = {"path": "not%20committed.parquet", "dataChange": False}
    (log / "00000000000000000000.json").write_text(dumps({"commitInfo": {}}) + "\n" + dumps({"add": add}))
    (log / "00000000000000000001.json").write_text(dumps({"add": compacted}))
    arrivals = readable.Arrivals(tmp_path, readable.delta, 0, 2_000)
    assert [arrivals.look(), arrivals.look()] == [3, 3]
    assert all(arrivals.ages_ms[0] > 1_000)


def test_a_compacted_log_of_sparks_sink_brings_only_files_that_are_new(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, files in (("8", "a"), ("9.compact", "ab"), ("10", "c")):
        entries = [dumps({"path": (tmp_path / f"{file} x").as_uri()}) for file in files]
        (log / name).write_text("\n".join(["v1", *entries]))
    found = [[file.name for file in commit.files] for commit in readable.spark_sink(tmp_path)]
    assert found == [["a x"], ["b x"], ["c x"]]
