"""Forebay's SQL: text to statements, statements to text, queries to Spark SQL."""

from forebay.sql.dialect import Forebay
from forebay.sql.parse import parse, parse_condition, parse_one
from forebay.sql.planning import ViewPlan, plan, plan_select
from forebay.sql.pushdown import wanted
from forebay.sql.quotes import meant_as_text
from forebay.sql.render import to_sql
from forebay.sql.statements import (
    AlterSource,
    Column,
    CreateSource,
    CreateView,
    Describe,
    DiscardDeadLetters,
    Drop,
    Explain,
    OnError,
    OptionValue,
    RecoverDeadLetters,
    ReopenDeadLetters,
    ReplayDeadLetters,
    Select,
    Show,
    ShowCreate,
    StartView,
    Statement,
    StopView,
    Subscribe,
    Watermark,
    query_text,
)
from forebay.sql.tables import tables
from forebay.sql.types import spark_type, type_name
from forebay.sql.zsets import WEIGHT, ChangeLog

__all__ = [
    "WEIGHT",
    "AlterSource",
    "ChangeLog",
    "Column",
    "CreateSource",
    "CreateView",
    "Describe",
    "DiscardDeadLetters",
    "Drop",
    "Explain",
    "Forebay",
    "OnError",
    "OptionValue",
    "RecoverDeadLetters",
    "ReopenDeadLetters",
    "ReplayDeadLetters",
    "Select",
    "Show",
    "ShowCreate",
    "StartView",
    "Statement",
    "StopView",
    "Subscribe",
    "ViewPlan",
    "Watermark",
    "meant_as_text",
    "parse",
    "parse_condition",
    "parse_one",
    "plan",
    "plan_select",
    "query_text",
    "spark_type",
    "tables",
    "to_sql",
    "type_name",
    "wanted",
]
