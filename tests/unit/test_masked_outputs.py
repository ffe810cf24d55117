"""Values of masked columns are followed through a view's query: what is computed of one in any way is masked, too."""

from __future__ import annotations

import pyarrow as pa
import pytest

from forebay import sql
from forebay.hiding import Mask
from forebay.sql.masked_outputs import masked_outputs
from forebay.web.masked_types import holds

MASK = Mask(("email", "customer.phone"))
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "email": pa.string(),
        "name": pa.string(),
        "ts": pa.timestamp("us"),
        "customer": pa.struct({"phone": pa.string(), "city": pa.string()}),
        "orders": pa.list_(pa.struct({"email": pa.string()})),
        "place": pa.struct({"city": pa.string()}),
        "_headers": pa.map_(pa.string(), pa.binary()),
    }
)


def mask_of(query: str, schema: pa.Schema | None = SCHEMA) -> Mask:
    statement = sql.parse_one(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, sql.CreateView)
    return masked_outputs(statement.query, MASK, lambda path: holds(schema, path, MASK))


@pytest.mark.parametrize(
    ("query", "masked", "shown"),
    [
        ("SELECT email AS contact, id FROM s", ["contact"], ["id"]),
        ("SELECT id, upper(email) FROM s", ["upper_email"], ["id"]),
        ("SELECT id, count(email) AS n, count(*) FROM s GROUP BY id", ["n"], ["id", "count_all"]),
        ("SELECT CASE WHEN email = 'a' THEN 1 ELSE 0 END AS flag, id FROM s", ["flag"], ["id"]),
        ("SELECT email AS e, upper(e) AS u, id FROM s", ["e", "u"], ["id"]),
        ("SELECT EMAIL AS contact, id FROM s", ["contact", "CONTACT"], ["id"]),
        ("SELECT `email` AS `a.b`, id FROM s", ["a.b"], ["id"]),
        ("SELECT email AS `c*`, cat FROM s", ["c*"], ["cat"]),
        # through other SELECTs
        ("SELECT * FROM (SELECT email AS contact, id FROM s) t", ["contact"], ["id"]),
        ("SELECT t.c AS d, id FROM (SELECT email AS c, id FROM s) t", ["d"], ["id"]),
        ("WITH t AS (SELECT email AS c, id FROM s) SELECT c || 'x' AS y, id FROM t", ["y"], ["id"]),
        ("WITH t(a, b) AS (SELECT id, email FROM s) SELECT b FROM t", ["b"], []),
        ("SELECT id AS a, name AS n FROM s UNION ALL SELECT email AS b, name AS n FROM s", ["a"], ["n"]),
        ("SELECT a.id, b.email AS e FROM s a JOIN s b ON a.id = b.id", ["e"], ["id"]),
        # rows made of one
        ("SELECT id, e FROM s LATERAL VIEW explode(split(email, '@')) t AS e", ["e"], ["id"]),
        ("SELECT id, posexplode(split(email, '@')) AS (p, i) FROM s", ["p", "i"], ["id"]),
        # structs, lists and maps
        ("SELECT customer AS c, id FROM s", ["c"], ["id"]),
        ("SELECT to_json(customer) AS j, to_json(place) AS k FROM s", ["j"], ["k"]),
        ("SELECT customer.phone AS p, customer.city AS town, s.customer.city AS t FROM s", ["p"], ["town", "t"]),
        ("SELECT to_json(orders) AS j, id FROM s", ["j"], ["id"]),
        ("SELECT `_headers`['x-auth'] AS h, id FROM s", ["h"], ["id"]),
        ("SELECT to_json(struct(*)) AS j, id FROM s", ["j"], ["id"]),
        ("SELECT place.*, id FROM s", [], ["city", "id"]),
        # nothing of it
        ("SELECT id, name AS n, place AS p FROM s WHERE id > 1", [], ["id", "n", "p"]),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS w, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
         [], ["w", "n"]),
    ],
)  # fmt: skip
def test_what_is_computed_of_a_masked_column_is_masked_and_the_rest_is_shown(
    query: str, masked: list[str], shown: list[str]
) -> None:
    found = mask_of(query)
    assert found.names("email")
    assert [name for name in masked if not found.names(name)] == []
    assert [name for name in shown if found.names(name)] == []


def test_a_struct_that_keeps_its_name_is_shown_without_its_masked_field() -> None:
    row = {"customer": {"phone": "1", "city": "x"}, "id": 1}
    assert mask_of("SELECT customer, id FROM s").row(row) == {
        "customer": {"phone": "•••", "city": "x"},
        "id": 1,
    }


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s UNION ALL SELECT * FROM s",
        "SELECT customer.* FROM s",
        "SELECT * FROM (SELECT upper(email), id FROM s) t",
    ],
)
def test_where_names_cannot_be_followed_nothing_is_shown(query: str) -> None:
    assert mask_of(query).names("whatever")


def test_what_is_computed_of_a_column_whose_type_nobody_knows_is_masked() -> None:
    found = mask_of("SELECT id, to_json(name) AS j FROM s", None)
    assert (found.names("id"), found.names("j")) == (False, True)
