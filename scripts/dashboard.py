"""The Grafana dashboard, made from the list of panels below: `python -m scripts.docs` writes it.

What is said once is said here: the variables, the data source, the unit of a panel. `tests/unit/test_monitoring.py` holds
every metric and label in it to what the collectors export.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from scripts.rooms import SOURCES

PATH = SOURCES / "telemetry" / "monitoring" / "forebay-dashboard.json"

Kind = Literal["timeseries", "stat", "table", "state-timeline"]
WIDTH = 24  # of Grafana's grid
HEIGHT = {"timeseries": 8, "stat": 4, "table": 8, "state-timeline": 6}

# Of a source, a view, a pool: what is chosen at the top of the page.
S = 'job=~"$job",source=~"$source"'
V = 'job=~"$job",view=~"$view"'
P = 'job=~"$job",pool=~"$pool"'
J = 'job=~"$job"'


@dataclass(frozen=True)
class Panel:
    """`queries` are expressions by their legend, in which `{{label}}` stands for a label's value."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    about: str = ""
    alarm: float | None = None  # from here on it is red


@dataclass(frozen=True)
class Row:
    title: str
    panels: list[Panel] = field(default_factory=list)


def _share(bad: str) -> str:
    return (
        f"sum by (source) (rate({bad}{{{S}}}[$__rate_interval])) "
        f"/ sum by (source) (rate(forebay_source_records_total{{{S}}}[$__rate_interval]))"
    )


def _quantile(of: str, metric: str, match: str, by: str) -> str:
    return f"histogram_quantile({of}, sum by (le, {by}) (rate({metric}_bucket{{{match}}}[$__rate_interval])))"


ROWS = [
    Row("What is wrong", [
        Panel("Failed views", {"": f'sum(forebay_query_state{{{V},state="failed"}}) or vector(0)'}, kind="stat", width=4, alarm=1),
        Panel("Stalled views", {"": f'sum(forebay_query_state{{{V},state="stalled"}}) or vector(0)'}, kind="stat", width=4, alarm=1),
        Panel("Unhealthy sources", {"": f"count(forebay_source_healthy{{{S}}} == 0) or vector(0)"}, kind="stat", width=4, alarm=1),
        Panel("Commits that fail", {"": f"sum(forebay_source_commit_failing{{{S}}}) or vector(0)"}, kind="stat", width=4, alarm=1),
        Panel("Oldest unread record", {"": f"max(forebay_source_lag_seconds{{{S}}})"}, "s", "stat", 4, alarm=300),
        Panel("Letters in the last hour", {"": f"sum(increase(forebay_source_dead_letters_total{{{S}}}[1h]))"}, kind="stat", width=4, alarm=1),
        Panel("Alerts that fire", {"{{alertname}} {{source}}{{view}}{{pool}}{{agent}}": 'ALERTS{alertname=~"Forebay.*",alertstate="firing"}'}, kind="table", width=12),
        Panel("State of views", {"{{view}}: {{state}}": f"forebay_query_state{{{V}}} == 1"}, kind="state-timeline", width=12),
    ]),
    Row("Sources", [
        Panel("Records read", {"{{source}}": f"sum by (source) (rate(forebay_source_records_total{{{S}}}[$__rate_interval]))"}, "cps"),
        Panel("Bytes read", {"{{source}}": f"sum by (source) (rate(forebay_source_bytes_total{{{S}}}[$__rate_interval]))"}, "Bps",
              about="Keys and values, as they were fetched."),
        Panel("Batches, p99", {"{{source}}": f"forebay_source_batch_p99_seconds{{{S}}}", "{{source}}, mean": f"forebay_source_batch_mean_seconds{{{S}}}"}, "s",
              about="Of the last 1,000 batches."),
        Panel("Lag in seconds", {"{{source}} {{topic}}-{{partition}}": f"forebay_source_lag_seconds{{{S}}}"}, "s",
              about="How old the oldest unread record is.", alarm=300),
        Panel("Lag in records", {"{{consumergroup}} {{topic}}": f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{J}}})"}),
        Panel("Until caught up", {"{{view}}": f"forebay_query_catch_up_seconds{{{V}}}"}, "s"),
        Panel("Commits", {"{{source}}": f"rate(forebay_source_commits_total{{{S}}}[$__rate_interval])",
                          "{{source}} failed": f"rate(forebay_source_commit_failures_total{{{S}}}[$__rate_interval])"}, "ops"),
        Panel("Rebalances", {"{{source}}": f"increase(forebay_source_rebalances_total{{{S}}}[10m])"}, about="In ten minutes."),
        Panel("Brokers", {"{{source}}": f"forebay_source_brokers{{{S}}}"}),
    ]),
    Row("Event time and backpressure", [
        Panel("Watermark behind the clock", {"{{source}}": f"time() - forebay_source_watermark_timestamp_seconds{{{S}}}"}, "s"),
        Panel("Partitions ahead of their source", {"{{source}} {{topic}}-{{partition}}":
              f"forebay_partition_watermark_timestamp_seconds{{{S}}} - on (job, instance, source) group_left forebay_source_watermark_timestamp_seconds{{{S}}}"}, "s",
              about="The one at 0 holds the watermark back.", alarm=600),
        Panel("Who holds it back", {"{{source}} {{topic}}-{{partition}}": f"forebay_partition_holds_watermark{{{S}}} == 1"}, kind="table"),
        Panel("In flight", {"{{source}}": f"forebay_source_in_flight_bytes{{{S}}}"}, "bytes"),
        Panel("Most records of a batch", {"{{source}} {{read}}": f"forebay_source_batch_limit_records{{{S}}}"}),
        Panel("Why it is so many", {"{{source}} {{read}}: {{cause}}": f"forebay_source_batch_decision{{{S}}} == 1"}, kind="state-timeline"),
    ]),
    Row("Bad records and dead letters", [
        Panel("Share that does not decode", {"{{source}}": _share("forebay_source_errors_total")}, "percentunit", alarm=0.1),
        Panel("By kind", {"{{source}} {{kind}}": f"sum by (source, kind) (rate(forebay_source_errors_total{{{S}}}[$__rate_interval]))"}, "cps"),
        Panel("Where they go", {
            "{{source}} letters": f"rate(forebay_source_dead_letters_total{{{S}}}[$__rate_interval])",
            "{{source}} skipped": f"rate(forebay_source_skipped_total{{{S}}}[$__rate_interval])",
            "{{source}} kept out": f"rate(forebay_source_rate_limited_total{{{S}}}[$__rate_interval])"}, "cps"),
        Panel("In the ledger", {"{{source}}": f"forebay_source_ledger_records{{{S}}}"}, alarm=1,
              about="Kept out by the rate limit, to be recovered: forebay dlq recover."),
        Panel("Letters dealt with", {"{{source}} {{state}}": f"forebay_source_settled_letters{{{S}}}"}),
        Panel("Since the last bad record", {"{{source}}": f"time() - forebay_source_last_error_timestamp_seconds{{{S}}}"}, "s"),
    ]),
    Row("Views", [
        Panel("Records", {"{{view}}": f"rate(forebay_query_records_total{{{V}}}[$__rate_interval])"}, "cps"),
        Panel("How long batches take", {
            "{{view}} p50": _quantile("0.5", "forebay_query_batch_seconds", V, "view"),
            "{{view}} p99": _quantile("0.99", "forebay_query_batch_seconds", V, "view")}, "s"),
        Panel("Late rows", {"{{view}}": f"rate(forebay_query_late_total{{{V}}}[$__rate_interval])"}, "cps"),
    ]),
    Row("Pools", [
        Panel("Records done", {"{{pool}}": f"rate(forebay_pool_records_total{{{P}}}[$__rate_interval])"}, "cps"),
        Panel("Retries, letters, skipped", {
            "{{pool}} retries": f"rate(forebay_pool_retries_total{{{P}}}[$__rate_interval])",
            "{{pool}} letters": f"rate(forebay_pool_dead_letters_total{{{P}}}[$__rate_interval])",
            "{{pool}} skipped": f"rate(forebay_pool_skipped_total{{{P}}}[$__rate_interval])"}, "cps"),
        Panel("How long handlers take", {
            "{{pool}} p50": _quantile("0.5", "forebay_pool_handler_seconds", P, "pool"),
            "{{pool}} p99": _quantile("0.99", "forebay_pool_handler_seconds", P, "pool")}, "s"),
        Panel("Workers", {"{{pool}}": f"forebay_pool_workers{{{P}}}", "{{pool}} at most": f"forebay_pool_worker_limit{{{P}}}"}),
        Panel("Not committed", {"{{pool}} {{topic}}-{{partition}}": f"forebay_pool_uncommitted_records{{{P}}}",
                                "{{pool}} queued": f"forebay_pool_queued_records{{{P}}}"}),
        Panel("Halted records", {"{{pool}}": f"forebay_pool_halted_records{{{P}}}"}, alarm=1),
    ]),
    Row("Agents", [
        Panel("Artifacts", {"{{agent}}": f"sum by (agent) (rate(forebay_agent_artifacts_total{{{J}}}[$__rate_interval]))"}, "cps"),
        Panel("Errors, retries, letters", {
            "{{agent}} errors": f"sum by (agent) (rate(forebay_agent_errors_total{{{J}}}[$__rate_interval]))",
            "{{agent}} retries": f"sum by (agent) (rate(forebay_agent_retries_total{{{J}}}[$__rate_interval]))",
            "{{agent}} letters": f"sum by (agent) (rate(forebay_agent_dead_letters_total{{{J}}}[$__rate_interval]))"}, "cps"),
        Panel("Seconds an artifact", {"{{agent}}":
              f"sum by (agent) (rate(forebay_agent_seconds_total{{{J}}}[$__rate_interval])) "
              f"/ sum by (agent) (rate(forebay_agent_artifacts_total{{{J}}}[$__rate_interval]))"}, "s"),
    ]),
]  # fmt: skip

_VARIABLES = {
    "job": "label_values({__name__=~\"forebay_.*\"}, job)",
    "source": 'label_values(forebay_source_records_total{job=~"$job"}, source)',
    "view": 'label_values(forebay_query_records_total{job=~"$job"}, view)',
    "pool": 'label_values(forebay_pool_records_total{job=~"$job"}, pool)',
}  # fmt: skip
_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """As Grafana imports it: it asks for the data source at the top of the page."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False,
                       "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}, "panels": []})  # fmt: skip
        y += 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            height = HEIGHT[panel.kind]
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            panels.append(_panel(len(panels) + 1, panel, place))
            x, tallest = x + panel.width, max(tallest, height)
        y += tallest
    variables = [_source_variable(), *(_variable(name, query) for name, query in _VARIABLES.items())]
    return {
        "uid": "forebay", "title": "Forebay", "tags": ["forebay", "kafka", "spark"], "schemaVersion": 39, "version": 1,
        "editable": True, "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "description": "Sources, views, dead letters, pools and agents of Forebay.", "graphTooltip": 1,
        "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    now = panel.kind in ("stat", "table")
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _DATA_SOURCE, "expr": query, "legendFormat": legend or "__auto",
         "instant": now, "range": not now, **({"format": "table"} if panel.kind == "table" else {})}
        for index, (legend, query) in enumerate(panel.queries.items())
    ]  # fmt: skip
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.about, "gridPos": place,
        "datasource": _DATA_SOURCE, "targets": targets, "options": _OPTIONS[panel.kind],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}, "overrides": []},
    }  # fmt: skip


_OPTIONS: dict[Kind, dict[str, Any]] = {
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "table": {"showHeader": True},
    "state-timeline": {"mergeValues": True, "showValue": "never"},
}  # fmt: skip


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "label": name, "datasource": _DATA_SOURCE, "query": query, "definition": query,
        "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1,
    }  # fmt: skip
