"""What those who come from elsewhere write, and how it is written here."""

from __future__ import annotations

import re

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
