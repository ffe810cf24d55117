"""The benchmarks' arithmetic: ratios within rounds, spreads, and failures that stay failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from json import dumps
from pathlib import Path

from benchmarks import contest, letters, memory, report
from benchmarks.peers.contract import Outcome, Sample
from benchmarks.peers.session import Timing
from benchmarks.runner import ROOT, Round, without_paths
from benchmarks.topics import trades

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
