"""What those who come from elsewhere write, and how it is written here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokens import TokenType

SUPPORTED = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, VARCHAR, BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, ARRAY<T>, MAP<K, V>, STRUCT<name: T, …>"
)

# What to declare instead of a type that there is not, by its first word.
_INSTEAD = {
    **dict.fromkeys(
        (
            "UUID",
            "JSON",
            "JSONB",
            "XML",
            "INET",
            "CIDR",
            "ENUM",
            "TIME",
            "TIMETZ",
            "INTERVAL",
            "VARIANT",
            "OBJECT",
        ),
        "STRING",
    ),
    **dict.fromkeys(
        ("CLOB", "CITEXT", "NCHAR", "NVARCHAR", "NVARCHAR2", "VARCHAR2", "BPCHAR", "REGCLASS"), "STRING"
    ),
    **dict.fromkeys(
        ("DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "SMALLDATETIME"), "TIMESTAMP"
    ),
    **dict.fromkeys(("ROW", "RECORD"), "STRUCT<name: TYPE, …>"),
    **dict.fromkeys(("LIST", "MULTISET", "VECTOR"), "ARRAY<TYPE>"),
    **dict.fromkeys(("UINT64", "UBIGINT"), "DECIMAL(20, 0)"),
    **dict.fromkeys(("HUGEINT", "INT128", "BIGDECIMAL", "BIGNUMERIC"), "DECIMAL(38, 0)"),
    **dict.fromkeys(("SERIAL", "BIGSERIAL", "UINT32"), "BIGINT"),
    "INT8": "BIGINT (eight bytes) or TINYINT (eight bits)",
    "UINT8": "SMALLINT (eight bits) or DECIMAL(20, 0) (eight bytes)",
    "UINT16": "INT",
    "MONEY": "DECIMAL(18, 2)",
    "HSTORE": "MAP<STRING, STRING>",
    "BIT": "BOOLEAN",
    "VARBYTE": "BINARY",
}


def instead_of(written: str) -> str:
    """What to declare in the place of a type that there is not; "" if nothing comes near."""
    first, *more = re.findall(r"\w+", written.upper()) or [""]
    if "LIST" in more:  # TEXT LIST
        first = "LIST"
    if "UNSIGNED" in more:
        return "a wider type with a sign, such as DECIMAL(20, 0) for BIGINT UNSIGNED"
    return _INSTEAD.get(first, "")


def type_remedy(instead: str = "") -> str:
    return f"declare it as {instead}" if instead else f"supported are {SUPPORTED}"


_SOURCE = "CREATE SOURCE name (…) WITH ('connector' = 'kafka', 'topic' = '…', 'bootstrap.servers' = '…', 'format' = 'json')"


def create_remedy(kind: str, tokens: Sequence[Any]) -> str:
    """How what CREATE TABLE, CREATE STREAM and the like make elsewhere is made here; "" if there is no way."""
    words = [str(token.text).upper() for token in tokens]
    if kind in ("CONNECTION", "SECRET"):
        return "there are none: FROM KAFKA (…) has the brokers and their settings, a password is written '${NAME}'"
    if kind not in ("TABLE", "STREAM", "EXTERNAL", "TEMPORARY", "TEMP", "VIEW"):
        return ""
    if "SELECT" in words or kind == "VIEW":
        return "write CREATE MATERIALIZED VIEW name AS SELECT …"
    return f"write {_SOURCE}"


def format_remedy(envelope: str, encoding: str) -> str:
    """`FORMAT PLAIN ENCODE JSON` as we write it."""
    name = {"TEXT": "RAW", "BYTES": "RAW"}.get(encoding.upper(), encoding.upper())
    if envelope.upper() == "DEBEZIUM":
        name = "DEBEZIUM_JSON"
    more = ", and keep the newest of each key in a view" if envelope.upper() == "UPSERT" else ""
    return (
        f"write FORMAT {name} behind FROM KAFKA (…), or 'format' = '{name.lower().replace('_', '-')}'{more}"
    )


def metadata_remedy(column: str, part: str) -> str:
    """`ts TIMESTAMP METADATA FROM 'timestamp'` as we write it."""
    known = {"timestamp": "TIMESTAMP", "partition": "PARTITION", "offset": "OFFSET", "headers": "HEADERS"}
    if part not in known:
        return "write INCLUDE KEY | PARTITION | OFFSET | TIMESTAMP | HEADERS AS name behind FORMAT …"
    return f"leave the column out here, and write INCLUDE {known[part]} AS {column} behind FORMAT …"


@dataclass(frozen=True)
class Foreign:
    """Words in a query that mean something elsewhere: from which token through which, what to say, what to do."""

    first: Any
    last: Any
    message: str
    remedy: str


_PHRASES = (
    (
        ("FOR", "SYSTEM_TIME"),
        "FOR SYSTEM_TIME is not supported",
        "a join with another source sees its rows as they come: leave it out, and bound the join by time: AND b.ts "
        "BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts",
    ),
    (
        ("MZ_NOW", "("),
        "mz_now() is not supported: a row does not leave a view because time passes",
        "group by TUMBLE(ts, …) with EMIT ON WINDOW CLOSE, or filter when you SELECT from the view: WHERE ts > now() - "
        "INTERVAL '5' MINUTE",
    ),
    (
        ("WINDOW", "TUMBLING"),
        "WINDOW TUMBLING is not supported",
        "write GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), and the other keys",
    ),
    (
        ("WINDOW", "HOPPING"),
        "WINDOW HOPPING is not supported",
        "write GROUP BY HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), slide before size, and the other keys",
    ),
    (
        ("WINDOW", "SESSION", "("),
        "WINDOW SESSION is not supported",
        "write GROUP BY SESSION(ts, INTERVAL '5' MINUTE), and the other keys",
    ),
)
_WITHIN = "write it as a condition: ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts + INTERVAL '1' HOUR"


def foreign_words(tokens: Sequence[Any]) -> Foreign | None:
    """The first such words in a query, if any: sqlglot would read some as a name, and Spark refuse the rest."""
    quoted = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
    words = ["" if token.token_type in quoted else str(token.text).upper() for token in tokens]
    for at, token in enumerate(tokens):
        for phrase, message, remedy in _PHRASES:
            if tuple(words[at : at + len(phrase)]) == phrase:
                return Foreign(token, tokens[at + len(phrase) - 1], message, remedy)
        after = [following.token_type for following in tokens[at + 1 : at + 3]]
        within = after[:1] == [TokenType.NUMBER] or after == [TokenType.L_PAREN, TokenType.NUMBER]
        if words[at] == "WITHIN" and within and "JOIN" in words[:at]:
            return Foreign(token, tokens[at + len(after) - 1], "JOIN … WITHIN is not supported", _WITHIN)
    return None
