"""Names and strings, written so that the parser reads them back as they were."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from forebay.sql.dialect import Forebay

WEIGHT = "_weight"
"""The column that says how often a row of a change log is there."""

# Bare words that our own grammar gives a meaning in the place of a name.
_OURS = frozenset(
    {"as", "changes", "create", "emit", "error", "exists", "extended", "format", "from", "if", "materialized"}
    | {"not", "on", "source", "sources", "sink", "table", "to", "using", "view", "views", "watermark", "with"}
)


def identifier(name: str) -> str:
    """The name, in backticks unless it is a plain word that means nothing else."""
    if name.isascii() and name.isidentifier() and name.lower() not in _OURS:
        tokens = Forebay().tokenize(name)
        if len(tokens) == 1 and tokens[0].token_type == TokenType.VAR:
            return name
    return "`" + name.replace("`", "``") + "`"


def string(text: str) -> str:
    """The text as a string literal of Spark's dialect, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
