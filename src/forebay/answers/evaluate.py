"""The steps of a question, done with Arrow on the batches of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from forebay.answers.ordering import places
from forebay.answers.question import Question
from forebay.answers.totals import distinct, group
from forebay.source.expressions import matching


def run(question: Question, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The answer. `batches` have the question's columns, as `schema` has them or as they are in files."""
    schema = pa.schema([schema.field(name) for name in question.columns])
    rows = pa.Table.from_batches(_wanted(question, batches, schema), schema)
    if question.grouping is not None:
        rows = group(rows, question.grouping)
        if question.grouping.having is not None:
            rows = matching(rows, question.grouping.having)
    elif question.distinct:
        rows = distinct(rows, [output.column for output in question.outputs])
    if question.order:
        last = None if question.limit is None else question.offset + question.limit
        rows = rows.take(places(rows, question.order, last).slice(question.offset))
    else:
        rows = rows.slice(question.offset, question.limit)
    columns = [rows.column(output.column) for output in question.outputs]
    return pa.Table.from_arrays(columns, schema=question.schema)


def _wanted(
    question: Question, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of the WHERE. Where any will do, there are no more than are asked for."""
    left: int | None = None
    if question.limit is not None and not (question.grouping or question.distinct or question.order):
        left = question.offset + question.limit
    for batch in batches:
        if left is not None and left <= 0:
            return
        found = batch.select(question.columns).cast(schema)
        if question.where is not None:
            found = matching(found, question.where)
        if left is not None:
            found = found.slice(0, left)
            left -= found.num_rows
        yield found
