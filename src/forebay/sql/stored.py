"""Queries as versions before this one kept them: to those, text in double quotes was text."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from forebay.sql.dialect import Forebay


class ForebayBefore(Forebay):
    """The dialect with Spark's quotes."""

    class Tokenizer(Forebay.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'", '"']
        IDENTIFIERS: ClassVar[list[Any]] = ["`"]
        RAW_STRINGS: ClassVar[list[Any]] = [(f"{r}{quote}", quote) for r in "rR" for quote in ("'", '"')]
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


def in_standard_quotes(text: str) -> str:
    """A kept statement as it is written now: 'text' in single quotes, `names` in backticks.

    No statement that this version keeps has double quotes, so that one which has them was kept before.
    """
    try:
        tokens = ForebayBefore().tokenize(text)
        double = [token for token in tokens if _in_double_quotes(token, text)]
        node = ForebayBefore().parser().parse(tokens, text)[0] if double else None
    except SqlglotError:
        return text  # whoever uses it will say what is wrong with it
    if node is None:
        return text
    # Only as the name of a table did double quotes do for a name.
    names = {found.meta.get("start") for found in node.find_all(exp.Identifier)}
    parts: list[str] = []
    at = 0
    for token in double:
        parts.append(text[at : token.start])
        written = text[token.start : token.end + 1]
        parts.append(f"`{token.text}`" if token.start in names else _in_single_quotes(written))
        at = token.end + 1
    return "".join([*parts, text[at:]])


def _in_double_quotes(token: Any, text: str) -> bool:
    quoted = token.token_type in (TokenType.STRING, TokenType.RAW_STRING)
    return quoted and text[token.end] == '"'


def _in_single_quotes(written: str) -> str:
    """The same text. Escapes stay as they are: what they mean is for Spark to say."""
    prefix, inside = written[: written.index('"')], written[written.index('"') + 1 : -1]
    if prefix:  # a raw text, in which nothing escapes a quote
        return f"{prefix}'{inside}'" if "'" not in inside else _escaped(inside.replace("\\", "\\\\"))
    return _escaped(inside)


def _escaped(inside: str) -> str:
    found: list[str] = []
    at = 0
    while at < len(inside):
        if inside[at] == "\\":
            found.append(inside[at : at + 2])
            at += 2
        elif inside.startswith('""', at):
            found.append('"')
            at += 2
        else:
            found.append("\\'" if inside[at] == "'" else inside[at])
            at += 1
    return "'" + "".join(found) + "'"
