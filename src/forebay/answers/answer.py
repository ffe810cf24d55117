"""An answer that has been found possible and is worked out when its rows are asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from forebay.answers.evaluate import run
from forebay.answers.question import NeedsSpark, Question
from forebay.answers.reading import read
from forebay.answers.spark_returns import check_known, schema_as_spark_returns
from forebay.answers.view_tables import Table


@dataclass(frozen=True)
class Answer:
    question: Question
    table: Table

    def rows(self, at_most: int | None = None) -> pa.Table:
        """All rows, or the first. NeedsSpark where the values turn out to be such that only Spark can tell."""
        batches = self.table.batches(self.question.columns)
        question = self.question
        if at_most is not None:
            limit = at_most if question.limit is None else min(at_most, question.limit)
            question = replace(question, limit=limit)
        try:
            return run(question, batches, schema_as_spark_returns(self.table.schema))
        except (pa.ArrowException, OSError) as error:
            # A file that is gone or damaged, a column too large for Arrow: what there is to say, Spark says.
            raise NeedsSpark(f"what Arrow says: {error}") from error


def answer(query: Any, table: Table) -> Answer:
    """NeedsSpark if the query is not one that is answered here."""
    schema = schema_as_spark_returns(table.schema)
    for field in schema:
        check_known(field.type)
    return Answer(read(query, schema), table)
