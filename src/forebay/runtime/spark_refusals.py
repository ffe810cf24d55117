"""What Spark says of a view's query, in our words: with the names that the user wrote, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay import sql
from forebay.errors import StatementError, UnsupportedSqlError, from_text


def temporary_names(statement: sql.CreateView) -> dict[str, str]:
    """The temporary view that stands for each table of the query while Spark reads it.

    The length says where the view's name ends: `a_b` over `c` is not `a` over `b_c`.
    """
    prefix = f"forebay_{len(statement.name)}_{statement.name}"
    return {name: f"{prefix}_{name}" for name in sql.tables(statement.query)}


def refused(
    error: PySparkException,
    temporary: dict[str, str] | None = None,
    query: Any = None,
    functions: Callable[[], Iterable[str]] = tuple,
) -> StatementError:
    """Spark's word on a query, without its plan and with our names in it.

    A name that it does not know is shown where it stands; `functions` are those that were registered.
    """

    def with_our_names(text: str) -> str:
        for name, view in (temporary or {}).items():
            text = text.replace(view, name)
        return text

    text = with_our_names(str(error))
    ours = from_text(text)
    if isinstance(ours, StatementError):
        return ours
    message = text.split("\n")[0].split(" SQLSTATE:")[0].rstrip(";. ")
    remedy = sql.meant_as_text(query, message) if query is not None else ""
    if query is not None:
        parameters = {key: with_our_names(text) for key, text in (error.getMessageParameters() or {}).items()}
        found = sql.unresolved(sql.located(query), error.getCondition() or "", parameters, functions)
        if found is not None:
            found.remedy = f"{found.remedy} {remedy}".strip() if remedy else found.remedy
            return found
        remedy = remedy or sql.on_a_stream(query, message)
    return UnsupportedSqlError(f"Spark refuses this query: {message}", remedy=remedy)


def registered(spark: SparkSession) -> list[str]:
    """The functions that a user has added to a session."""
    return [str(row[0]).rpartition(".")[2] for row in spark.sql("SHOW USER FUNCTIONS").collect()]
