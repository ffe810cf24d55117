"""Names in double quotes, which to Spark are text: it is given backticks in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlglot.tokens import TokenType

from forebay.sql.faults import Fault


def is_double_quoted(token: Any, script: str) -> bool:
    return token.token_type == TokenType.IDENTIFIER and script[token.start] == '"'


def backticked(script: str, tokens: Iterable[Any]) -> str:
    """The script with these tokens' "names" in backticks, and every other character where it was.

    So a place in one is a place in the other: what Spark runs is cut from this text, and errors point into what
    the user wrote.
    """
    parts: list[str] = []
    at = 0
    for token in tokens:
        if is_double_quoted(token, script):
            parts += [script[at : token.start], _in_backticks(token)]
            at = token.end + 1
    return "".join([*parts, script[at:]]) if parts else script


def meant_as_text(query: Any, complaint: str) -> str:
    """What to do where Spark does not find a name that stands in double quotes; "" if that is not it."""
    written, script = query.meta.get("written", ""), query.meta.get("script", "")
    for found in re.finditer(r"`([^`]+)`", script):
        if written[found.start()] == '"' and f"name `{found[1]}` cannot be resolved" in complaint:
            return f"\"{found[1]}\" is the name of a column; text stands in single quotes: '{found[1]}'"
    return ""


def _in_backticks(token: Any) -> str:
    if "`" in token.text:
        quoted = token.text.replace("`", "``")
        raise Fault(
            "a name with a backtick in it stands in backticks",
            token.start,
            token.end + 1,
            f"write `{quoted}`, with its own backticks doubled",
        )
    # A doubled quote in the name is one character less.
    return f"`{token.text}`".ljust(token.end + 1 - token.start)


def refuse_prefixed(word: Any, following: Any, script: str) -> None:
    """`r"…"` would be read as a column `r` with a name behind it."""
    if is_double_quoted(following, script):
        remedy = f"write {word.text}'…': text stands in single quotes, a name in double quotes"
        raise Fault(f'{word.text}"…" is no text', word.start, following.end + 1, remedy)
