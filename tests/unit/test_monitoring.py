"""Alert rules and the dashboard: every name in them is exported, each alert fires when it should and only then."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import prometheus
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from scripts import dashboard
from scripts.rooms import ROOT
from typer.testing import CliRunner

from forebay.blackboard.metrics import AgentCollector, BoardCollector
from forebay.blackboard.stats import BoardStats, OrchestratorStats
from forebay.catalog import Catalog
from forebay.deadletter.outcomes import Outcomes
from forebay.pool import Pool
from forebay.runtime.health import HealthWatch
from forebay.runtime.metrics import SessionCollector
from forebay.runtime.source_flow import SourceFlow

ALERTS = ROOT / "src/forebay/telemetry/monitoring/forebay-alerts.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
GUIDE = (ROOT / "docs/monitoring.md").read_text()
BY_PROMETHEUS = {"job", "instance", "alertname", "alertstate", "__name__"}


class All(Collector):
    """Every family that any collector exports, as a process with all of them would."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for collector in self._collectors:
            for family in collector.collect():
                found.setdefault(family.name, family)
        yield from found.values()


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[All]:
    home = tmp_path_factory.mktemp("home") / "catalog.db"
    catalog, outcomes, watch = Catalog(home), Outcomes(home), HealthWatch(dict)
    session = SessionCollector(
        catalog, outcomes, dict, {}, watch, dict, lambda source: SourceFlow(source, None, ())
    )
    pool = Pool(bootstrap_servers="127.0.0.1:1", topics=["t"], group_id="g")
    board = BoardCollector(lambda: BoardStats(0, {}, None))
    yield All(session, AgentCollector(OrchestratorStats(), [pool], board))
    watch.close()
    outcomes.close()
    catalog.close()


@pytest.fixture(scope="module")
def exported(collected: All) -> dict[str, set[str]]:
    """Names as they are scraped, each with its labels."""
    found: dict[str, set[str]] = {"up": set(), "ALERTS": {"source", "view", "pool", "agent"}}
    for family in collected.collect():
        labels = set(getattr(family, "_labelnames", ()))
        if family.type == "histogram":
            found |= {family.name + end: labels | {"le"} for end in ("_bucket", "_sum", "_count")}
        else:
            found[family.name + ("_total" if family.type == "counter" else "")] = labels
    return found


# -- names -------------------------------------------------------------------------------------------


def expressions() -> list[tuple[str, str]]:
    """All that is asked of Prometheus, and by whom."""
    found = [(rule["alert"], rule["expr"]) for rule in RULES]
    made = dashboard.dashboard()
    found += [
        (panel["title"], target["expr"]) for panel in made["panels"] for target in panel.get("targets", ())
    ]
    return found + [
        (each["name"], each["query"]) for each in made["templating"]["list"] if each["type"] == "query"
    ]


def test_every_metric_and_label_in_the_rules_and_in_the_dashboard_is_exported(
    exported: dict[str, set[str]],
) -> None:
    asked = expressions()
    assert len(asked) > 60
    for who, text in asked:
        names = re.findall(r"\b(?:forebay|kafka)_[a-z0-9_]+\b|\bup\b", text)
        assert names or "ALERTS" in text or "__name__" in text, who
        assert set(names) <= exported.keys(), f"{who}: {set(names) - exported.keys()}"
        of_these = set().union(*(exported[name] for name in names), BY_PROMETHEUS, {"le"})
        if "ALERTS" in text:
            continue
        used = set(re.findall(r"([a-z_]+)\s*=~?\s*\"", text))
        for listed in re.findall(r"\b(?:by|on|ignoring|group_left)\s*\(([^)]*)\)", text):
            used |= {label.strip() for label in listed.split(",") if label.strip()}
        assert used <= of_these, f"{who}: no label {used - of_these}"


def test_legends_of_the_dashboard_name_labels_that_their_query_has(exported: dict[str, set[str]]) -> None:
    for row in dashboard.ROWS:
        for panel in row.panels:
            for legend, query in panel.queries.items():
                names = re.findall(r"\b(?:forebay|kafka)_[a-z0-9_]+\b|\bALERTS\b", query)
                known = set().union(*(exported[name] for name in names), BY_PROMETHEUS)
                assert set(re.findall(r"{{(\w+)}}", legend)) <= known, panel.title


def test_the_dashboard_is_what_its_panels_say() -> None:
    assert dashboard.PATH.read_text() == dashboard.text()
    panels = json.loads(dashboard.text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y) for panel in panels for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]  # fmt: skip
    assert len(set(taken)) == len(taken)  # no panel covers another
    assert max(x for x, _ in taken) < dashboard.WIDTH


def test_metrics_md_names_every_metric_of_sources_and_views(exported: dict[str, set[str]]) -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    own = {name for name in exported if name.startswith(("forebay_source_", "forebay_partition_"))}
    assert [name for name in sorted(own) if f"`{name}`" not in page] == []


def test_promtool_finds_nothing_wrong_with_the_metrics(collected: All) -> None:
    registry = CollectorRegistry()
    registry.register(collected)
    done = subprocess.run(
        [prometheus.program("promtool"), "check", "metrics"],
        input=generate_latest(registry), capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_command_writes_the_files_that_come_with_the_package_and_nothing_over_yours(
    tmp_path: Path,
) -> None:
    from forebay.cli.main import app

    command = CliRunner()
    done = command.invoke(app, ["monitoring", str(tmp_path / "m")])
    assert done.exit_code == 0, done.output
    wrote = {path.name: path for path in (tmp_path / "m").iterdir()}
    assert wrote.keys() == {"forebay-alerts.yml", "forebay-dashboard.json", "prometheus.yml"}
    assert wrote["forebay-alerts.yml"].read_bytes() == ALERTS.read_bytes()
    config = yaml.safe_load(wrote["prometheus.yml"].read_text())
    assert config["rule_files"] == ["forebay-alerts.yml"]
    wrote["prometheus.yml"].write_text("mine")
    command.invoke(app, ["monitoring", str(tmp_path / "m")])
    assert wrote["prometheus.yml"].read_text() == "mine"
    command.invoke(app, ["monitoring", str(tmp_path / "m"), "--force"])
    assert wrote["prometheus.yml"].read_text() != "mine"
    checked = subprocess.run(
        [prometheus.program("promtool"), "check", "config", wrote["prometheus.yml"]], capture_output=True
    )
    assert checked.returncode == 0, checked.stderr


# -- rules -------------------------------------------------------------------------------------------


def test_promtool_takes_the_rules() -> None:
    promtool = prometheus.program("promtool")
    done = subprocess.run([promtool, "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_how_bad_it_is_what_to_do_and_where_more_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    notes = rule["annotations"]
    assert "{{ $labels." in notes["summary"]
    assert re.search(r"forebay [a-z]|SOURCE|VIEW|log", notes["description"])
    assert notes["runbook_url"] == f"docs/monitoring.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in GUIDE


def test_commands_that_the_rules_name_are_there() -> None:
    from forebay.cli.main import COMMANDS

    named = re.findall(r"\bforebay ([a-z]+)", " ".join(rule["annotations"]["description"] for rule in RULES))
    assert set(named) <= COMMANDS.keys()


# -- what fires, and what does not -------------------------------------------------------------------


class Case(NamedTuple):
    """Series in promtool's notation, a sample a minute; and whether the alert fires at `at`."""

    alert: str
    fires: bool
    series: dict[str, str]
    at: str = "20m"


def state(name: str, values: str) -> dict[str, str]:
    return {f'forebay_query_state{{view="v",state="{name}"}}': values}


def counts(**values: str) -> dict[str, str]:
    return {f'forebay_source_{name}_total{{source="s"}}': each for name, each in values.items()}


def of(metric: str, values: str, labels: str = 'source="s"') -> dict[str, str]:
    return {f"{metric}{{{labels}}}": values}


def watermark(ahead: int) -> dict[str, str]:
    marks = "forebay_partition_watermark_timestamp_seconds"
    return {
        f'{marks}{{source="s",topic="t",partition="0"}}': "1000+60x60",
        f'{marks}{{source="s",topic="t",partition="1"}}': f"{1000 + ahead}+60x60",
        'forebay_source_watermark_timestamp_seconds{source="s"}': "1000+60x60",
    }


def errors(*rates: int) -> dict[str, str]:
    """By kind, so many a minute."""
    return {
        f'forebay_source_errors_total{{source="s",kind="{index}"}}': f"0+{rate}x60"
        for index, rate in enumerate(rates)
    }


LAG = ("forebay_source_lag_seconds", 'source="s",topic="t",partition="0"')
GROUP = 'consumergroup="g",topic="t",partition="0"'
WORKERS = of("forebay_pool_workers", "8x60", 'pool="p"')
LETTERS = ("forebay_agent_dead_letters_total", 'agent="a",partition="0"')
RECORDS = "forebay_source_records_total"

CASES = [
    Case("ForebayDown", True, of("up", "1x5 0x60", 'job="forebay"')),
    Case("ForebayDown", False, of("up", "1x18 0 1x60", 'job="forebay"')),  # it was restarted
    Case("ForebayDown", False, of("up", "0x60", 'job="node"')),
    Case("ForebayViewFailed", True, state("failed", "0x18 1x60"), "19m"),
    Case("ForebayViewFailed", False, state("stopped", "1x60")),
    Case("ForebayViewStalled", True, state("stalled", "0x18 1x60")),
    Case("ForebayViewStalled", False, state("stalled", "0x10 1 0x60")),
    Case("ForebayViewRetrying", True, state("retrying", "0x9 1x60")),
    Case("ForebayViewRetrying", False, state("retrying", "0x15 1x2 0x60")),
    Case("ForebayBackpressured", True, state("backpressured", "1x60")),
    Case("ForebayBackpressured", False, state("backpressured", "0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1")),
    Case("ForebaySourceUnhealthy", True, of("forebay_source_healthy", "1x10 0x60")),
    Case("ForebaySourceUnhealthy", False, of("forebay_source_healthy", "1x18 0 1x60")),
    Case("ForebayCommitsFailing", True, of("forebay_source_commit_failing", "0x9 1x60")),
    Case("ForebayCommitsFailing", False, of("forebay_source_commit_failing", "0x16 1x60")),  # since 3 minutes
    Case("ForebayLagHigh", True, of(LAG[0], "301x60", LAG[1])),
    Case("ForebayLagHigh", False, of(LAG[0], "299x60", LAG[1])),
    Case("ForebayLagGrowing", True, of(LAG[0], "0+60x60", LAG[1])),
    Case("ForebayLagGrowing", False, of(LAG[0], "3000-60x60", LAG[1])),  # it catches up
    Case("ForebayLagGrowing", False, of(LAG[0], "0 5 0 7 1 9 0 4 2 8 0 5 1 7 3 9 0 4 2 9 1", LAG[1])),
    Case("ForebayDeadLetters", True, counts(dead_letters="0+2x60", records="0+100x60")),
    Case("ForebayDeadLetters", False, counts(dead_letters="0+1x60", records="0+200x60")),
    Case("ForebayDeadLetters", False, counts(dead_letters="0x60", records="0x60")),
    Case("ForebayBadRecords", True, {**errors(6, 6), **counts(records="0+100x60")}),
    Case("ForebayBadRecords", False, {**errors(4, 4), **counts(records="0+100x60")}),
    Case("ForebayLedgerGrowing", True, of("forebay_source_ledger_records", "0x10 40x60")),
    Case("ForebayLedgerGrowing", False, of("forebay_source_ledger_records", "90x10 40x60")),  # recovered
    Case("ForebayNoRecords", True, of(RECORDS, "0+100x60 6000x60"), "80m"),
    Case("ForebayNoRecords", False, of(RECORDS, "0+100x120"), "80m"),
    Case("ForebayNoRecords", False, of(RECORDS, "0x120"), "80m"),  # there never were any
    Case("ForebayNoRecords", False,
         {**of(RECORDS, "0+100x60 6000x60"), **of("forebay_source_paused", "0x60 1x60")}, "80m"),
    Case("ForebayWatermarkHeldBack", True, watermark(ahead=601)),
    Case("ForebayWatermarkHeldBack", False, watermark(ahead=599)),
    Case("ForebayRebalances", True, of("forebay_source_rebalances_total", "0+1x60")),
    Case("ForebayRebalances", False, of("forebay_source_rebalances_total", "0x15 4x60")),
    Case("ForebayPoolDeadLetters", True, {**of("forebay_pool_dead_letters_total", "0+2x60", 'pool="p"'),
                                          **of("forebay_pool_records_total", "0+100x60", 'pool="p"')}),
    Case("ForebayPoolDeadLetters", False, {**of("forebay_pool_dead_letters_total", "0+1x60", 'pool="p"'),
                                           **of("forebay_pool_records_total", "0+200x60", 'pool="p"')}),
    Case("ForebayPoolHalted", True, of("forebay_pool_halted_records", "0x15 1x60", 'pool="p"')),
    Case("ForebayPoolHalted", False, of("forebay_pool_halted_records", "0x60", 'pool="p"')),
    Case("ForebayPoolLag", True, {**of("kafka_consumergroup_lag", "100001x60", GROUP), **WORKERS}),
    Case("ForebayPoolLag", False, {**of("kafka_consumergroup_lag", "99999x60", GROUP), **WORKERS}),
    Case("ForebayPoolLag", False, of("kafka_consumergroup_lag", "900000x60", GROUP)),  # of somebody else's exporter
    Case("ForebayPoolRebalances", True, of("forebay_pool_rebalances_total", "0+1x60", 'pool="p"')),
    Case("ForebayPoolRebalances", False, of("forebay_pool_rebalances_total", "0x15 4x60", 'pool="p"')),
    Case("ForebayAgentDeadLetters", True, of(LETTERS[0], "0x15 1x60", LETTERS[1])),
    Case("ForebayAgentDeadLetters", True, of(LETTERS[0], "_x15 1x60", LETTERS[1])),  # the first there is
    Case("ForebayAgentDeadLetters", False, of(LETTERS[0], "1x60", LETTERS[1])),  # of half an hour ago
    Case("ForebayBoardIndexStuck", True, of("forebay_board_index_following", "1x9 0x60", 'job="j"')),
    Case("ForebayBoardIndexStuck", False, of("forebay_board_index_following", "1x16 0x60", 'job="j"')),
]  # fmt: skip


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    for rule in RULES:
        assert {case.fires for case in CASES if case.alert == rule["alert"]} == {True, False}, rule["alert"]
    assert {case.alert for case in CASES} == {rule["alert"] for rule in RULES}


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool = prometheus.program("promtool")
    tests = [
        {
            "name": f"{number} {case.alert} {'fires' if case.fires else 'is silent'}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "promql_expr_test": [{
                "expr": f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": case.at,
                "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
            }],
        }
        for number, case in enumerate(CASES)
    ]  # fmt: skip
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "30s", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
