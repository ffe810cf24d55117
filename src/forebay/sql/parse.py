"""Text to statements. Every complaint is a StatementError with its place in the whole script."""

from __future__ import annotations

from typing import Any, NoReturn

from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokens import TokenType

from forebay.errors import SqlSyntaxError, StatementError, UnsupportedSqlError
from forebay.sql.dialect import Forebay
from forebay.sql.faults import Fault
from forebay.sql.lower import Lowering
from forebay.sql.positions import Script
from forebay.sql.statements import Statement

_UNCLOSED = {
    "'": ("this string is never closed", "add the closing ', and check the quotes of the strings before it"),
    '"': ("this name is never closed", 'add the closing ", or write text in single quotes'),
    "`": ("this name is never closed", "add the closing `"),
    "/*": ("this comment is never closed", "add the closing */"),
}


def parse(text: str) -> list[Statement]:
    """All statements of a script, in order. They are separated by `;`; empty ones are skipped."""
    script = Script(text)
    return [_statement(script, tokens) for tokens in _split(_tokenize(script))]


def parse_one(text: str) -> Statement:
    """The one statement of this text; a trailing `;` is fine."""
    script = Script(text)
    chunks = _split(_tokenize(script))
    if not chunks:
        raise SqlSyntaxError("there is no statement here", statement=text)
    if len(chunks) > 1:
        extra = chunks[1][0]
        raise SqlSyntaxError(
            "there is more than one statement here",
            position=script.position(extra.start, extra.end + 1),
            statement=text,
        )
    return _statement(script, chunks[0])


def parse_condition(text: str) -> Any:
    """The condition of a WHERE that stands alone, as a command line has it."""
    script = Script(text)
    tokens = _tokenize(script)
    if not tokens:
        raise SqlSyntaxError("the condition is empty", remedy="for example: error_kind = 'TypeConversion'")
    try:
        return Forebay().parser()._parse(lambda parser: parser.lone_condition(), tokens, text)[0]
    except Fault as fault:
        raise _error(script, fault) from None


def _statement(script: Script, tokens: list[Any]) -> Statement:
    start, end = tokens[0].start, tokens[-1].end + 1
    try:
        nodes = Forebay().parser().parse(tokens, script.text)
        if len(nodes) != 1 or nodes[0] is None:
            raise Fault("no statement begins like this", start, tokens[0].end + 1)
        return Lowering(script, start, end).statement(nodes[0])
    except Fault as fault:
        raise _error(script, fault) from None
    except StatementError:
        raise
    except RecursionError:
        raise _error(script, Fault("the statement is nested too deeply", start, end)) from None
    except Exception as error:
        # sqlglot is not proof against every text; what it trips over is still a wrong statement. Its own words
        # may quote the statement.
        reason = f"the statement cannot be read ({type(error).__name__})"
        raise _error(script, Fault(reason, start, end)) from None


def _error(script: Script, fault: Fault) -> StatementError:
    cls = UnsupportedSqlError if fault.unsupported else SqlSyntaxError
    place = script.position(fault.start, fault.end)
    return cls(fault.message, remedy=fault.remedy, position=place, statement=script.text)


def _split(tokens: list[Any]) -> list[list[Any]]:
    chunks: list[list[Any]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]


def _tokenize(script: Script) -> list[Any]:
    tokenizer = Forebay().tokenizer()
    try:
        return list(tokenizer.tokenize(script.text))
    except (TokenError, SqlglotError, ValueError, IndexError):
        _unreadable(script, tokenizer.tokens[-1].end + 1 if tokenizer.tokens else 0)


def _unreadable(script: Script, at: int) -> NoReturn:
    """Find what begins after the last good token and does not end.

    sqlglot's own error quotes the text around it, so it is not the cause of ours.
    """
    text = script.text
    while at < len(text):
        if text.startswith("--", at):
            at = text.find("\n", at) + 1 or len(text)
        elif text.startswith("/*", at) and "*/" in text[at + 2 :]:
            at = text.index("*/", at + 2) + 2
        elif text[at].isspace():
            at += 1
        else:
            break
    # The quote may have a prefix, as in r'…' and x'…'.
    if text[at : at + 1] in tuple("xXrRbB") and text[at + 1 : at + 2] in ("'", '"'):
        at += 1
    opening = next((mark for mark in _UNCLOSED if text.startswith(mark, at)), None)
    message, remedy = _UNCLOSED[opening] if opening else ("this cannot be read", "")
    fault = Fault(message, at, at + len(opening or "."), remedy)
    raise _error(script, fault) from None
