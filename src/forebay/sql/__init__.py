"""Forebay's SQL: text to statements, statements to text, queries to Spark SQL.

What needs Spark's types is imported when it is first asked for: reading a SELECT, SHOW or DESCRIBE needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forebay.sql.dialect import Forebay
from forebay.sql.names import misspelled_function, unresolved
from forebay.sql.parse import parse, parse_condition, parse_one
from forebay.sql.pushdown import wanted
from forebay.sql.quotes import meant_as_text
from forebay.sql.render import to_sql
from forebay.sql.rewrite import located
from forebay.sql.statements import (
    AlterSource,
    Column,
    CreateSource,
    CreateView,
    Describe,
    DetachView,
    DiscardDeadLetters,
    Drop,
    Explain,
    LateClause,
    OnError,
    OptionValue,
    PauseSource,
    RecoverDeadLetters,
    ReopenDeadLetters,
    ReplayDeadLetters,
    ResumeSource,
    Select,
    SetSource,
    Show,
    ShowCreate,
    StartView,
    Statement,
    StopView,
    Subscribe,
    Watermark,
    query_text,
)
from forebay.sql.table_names import tables
from forebay.sql.text import WEIGHT

if TYPE_CHECKING:
    from forebay.sql.planning import ViewPlan, plan, plan_select
    from forebay.sql.remedies import on_a_stream
    from forebay.sql.types import arrow_type, type_name
    from forebay.sql.view_program import program_for
    from forebay.sql.zsets import ChangeLog

__all__ = [
    "WEIGHT",
    "AlterSource",
    "ChangeLog",
    "Column",
    "CreateSource",
    "CreateView",
    "Describe",
    "DetachView",
    "DiscardDeadLetters",
    "Drop",
    "Explain",
    "Forebay",
    "LateClause",
    "OnError",
    "OptionValue",
    "PauseSource",
    "RecoverDeadLetters",
    "ReopenDeadLetters",
    "ReplayDeadLetters",
    "ResumeSource",
    "Select",
    "SetSource",
    "Show",
    "ShowCreate",
    "StartView",
    "Statement",
    "StopView",
    "Subscribe",
    "ViewPlan",
    "Watermark",
    "arrow_type",
    "located",
    "meant_as_text",
    "misspelled_function",
    "on_a_stream",
    "parse",
    "parse_condition",
    "parse_one",
    "plan",
    "plan_select",
    "program_for",
    "query_text",
    "tables",
    "to_sql",
    "type_name",
    "unresolved",
    "wanted",
]

_LATER = {
    "ChangeLog": "forebay.sql.zsets",
    "ViewPlan": "forebay.sql.planning",
    "on_a_stream": "forebay.sql.remedies",
    "plan": "forebay.sql.planning",
    "plan_select": "forebay.sql.planning",
    "program_for": "forebay.sql.view_program",
    "arrow_type": "forebay.sql.types",
    "type_name": "forebay.sql.types",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'forebay.sql' has no attribute {name!r}")
