"""A table of rows as the data has them: columns are named by their place, so that no name of a column is ever a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from forebay.web.model import ShownTable
from forebay.web.pages import words

LONGEST: Final = 200  # characters of a cell: the rest is in its title
_NUMBERS: Final = (
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "short",
    "byte",
    "bigint",
    "smallint",
    "tinyint",
)


def columns(table: ShownTable) -> list[dict[str, Any]]:
    return [
        {"label": column.name, "align": "end" if is_number(column.type) else "start", "mono": not is_number(column.type)}
        for column in table.columns
    ]  # fmt: skip


def rows(table: ShownTable, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": str(first + place), "cells": [_cell(value) for value in row]}
        for place, row in enumerate(table.rows)
    ]


def is_number(type: str) -> bool:
    return type.lower().startswith(_NUMBERS)


def _cell(value: Any) -> Any:
    if value is None:
        return None
    said = words.plain(value)
    return {"text": said[:LONGEST] + "…", "title": said[:4000]} if len(said) > LONGEST else {"text": said}


def numbers(table: ShownTable) -> Sequence[int]:
    """The places of columns that can be drawn."""
    return [place for place, column in enumerate(table.columns) if is_number(column.type)]
