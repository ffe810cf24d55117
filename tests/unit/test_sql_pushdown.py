"""What a WHERE says about one column, and what it does not."""

from __future__ import annotations

import pytest

from forebay.sql import Select, parse_one
from forebay.sql.pushdown import wanted

TABLE = "forebay_catalog.dead_letters"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT * FROM {TABLE}", None),
        (f"SELECT * FROM {TABLE} WHERE source = 'a'", {"a"}),
        (f"SELECT * FROM {TABLE} WHERE 'a' = source AND offset > 3", {"a"}),
        (
            f"SELECT * FROM {TABLE.upper()} WHERE (offset > 3 AND x = 1) AND (SOURCE IN ('a', 'b'))",
            {"a", "b"},
        ),
        (f"SELECT * FROM {TABLE} WHERE source = 'a' OR offset > 3", None),
        (f"SELECT * FROM {TABLE} WHERE NOT source = 'a'", None),
        (f"SELECT * FROM {TABLE} WHERE source NOT IN ('a')", None),
        (f"SELECT * FROM {TABLE} WHERE source <> 'a'", None),
        (f"SELECT * FROM {TABLE} WHERE source IN ('a', topic)", None),
        (f"SELECT * FROM {TABLE} WHERE source = topic", None),
        (f"SELECT * FROM {TABLE} AS d WHERE d.source = 'a'", {"a"}),
        (f"SELECT * FROM {TABLE} AS d JOIN v ON true WHERE d.source = 'a'", {"a"}),
        (f"SELECT * FROM v LEFT JOIN {TABLE} d ON true WHERE d.source = 'a'", {"a"}),
        (f"SELECT * FROM {TABLE} AS d JOIN v ON true WHERE source = 'a'", None),
        (f"SELECT * FROM {TABLE} AS d JOIN v ON true WHERE v.source = 'a'", None),
        (f"SELECT * FROM {TABLE} WHERE source = 'a' UNION ALL SELECT * FROM {TABLE}", None),
        (f"SELECT * FROM (SELECT * FROM {TABLE}) WHERE source = 'a'", None),
        (f"SELECT * FROM v WHERE k IN (SELECT key FROM {TABLE} WHERE source = 'a')", {"a"}),
        (f"WITH d AS (SELECT * FROM {TABLE} WHERE source = 'a') SELECT * FROM d WHERE source = 'b'", {"a"}),
        ("SELECT * FROM v WHERE source = 'a'", None),
    ],
)
def test_only_what_is_certain_is_taken(query: str, expected: set[str] | None) -> None:
    parsed = parse_one(query)
    assert isinstance(parsed, Select)
    assert wanted(parsed.query, TABLE, "source") == expected
