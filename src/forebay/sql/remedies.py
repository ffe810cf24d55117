"""What to write in place of what Spark refuses on a stream."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from forebay.sql.shape import aggregates

_WHEN_YOU_SELECT = "make a view of each side, and write it when you SELECT from the views"
_RANGE = "AND t.ts BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts"


def on_a_stream(query: Any, complaint: str) -> str:
    """For Spark's complaint about a view's query; "" where we know nothing better than its own words."""
    if "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY" in complaint:
        return _WHEN_YOU_SELECT
    if re.search(r"Stream-stream \w+ join .* without a watermark", complaint):
        return f"bound it in time, with WATERMARK FOR ts in both sources: ON s.k = t.k {_RANGE}; or {_WHEN_YOU_SELECT}"
    if re.search(r"\w+ joins? with a streaming DataFrame/Dataset on the", complaint):
        return _WHEN_YOU_SELECT
    if "Distinct aggregations are not supported" in complaint:
        return "write approx_count_distinct(…); or make a view of SELECT DISTINCT …, and count when you SELECT from that view"
    if "without watermark" in complaint:
        nested = [
            select for select in query.find_all(exp.Select) if select is not query and aggregates(select)
        ]
        if nested:
            return "make a view of the inner SELECT alone, and write the rest when you SELECT from that view"
        return "give the source a watermark: CREATE SOURCE … (…, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
    return ""
