"""The options of a view, each declared once: what `CREATE MATERIALIZED VIEW … WITH (…)` takes."""

from __future__ import annotations

from datetime import UTC, datetime

from forebay.options import DURATION, TEXT, Option, OptionKind, OptionTable

BEGINNING, NOW = "beginning", "now"
RETENTION_S = 7 * 86_400


def _start(text: str) -> str | int:
    """`beginning`, `now`, or milliseconds since 1970."""
    word = text.strip().lower()
    if word in (BEGINNING, NOW):
        return word
    if word.isdigit():
        return int(word)
    when = datetime.fromisoformat(text.strip())
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


VIEW = OptionTable(
    title="a view",
    options=(
        Option(
            "start",
            OptionKind("start", _start, "'beginning', 'now', or a time such as '2026-01-31 12:00:00' (UTC)"),
            "where the view begins in its sources: at their beginning, at what comes from now on, or at the first record "
            "of that time; it is settled when the view is created",
            BEGINNING,
            "now",
        ),
        Option(
            "view.freshness",
            DURATION,
            "of a view that groups: how old its table may be at most for whoever reads it as a Delta table; SELECT and "
            "SUBSCRIBE always see all of it",
            "10 seconds",
            "1 second",
        ),
        Option(
            "location",
            TEXT,
            "where the view's table is: a folder, or a URL of an object store (`s3://bucket/prefix`, `gs://…`, `az://…`) with "
            "its credentials in the environment; unless given, below the session's storage, or else in the home",
            None,
            "s3://lake/trades",
        ),
        Option(
            "retention",
            DURATION,
            "how long the view's table keeps what it has replaced or merged: a subscriber can go on behind a version of that "
            "time, and a SELECT that takes as long still finds its files",
            "7 days",
            "1 day",
        ),
    ),
)
