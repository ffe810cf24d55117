"""What may be shown of a script: its words, and no value that could be a secret.

A wrong statement is shown to its user, and often in a log. Which of its texts is a password cannot be known while it
is wrong: a key may be misspelt, an `=` or a quote missing. So the rule is turned around: what an option list holds is
starred unless it is known to be harmless. Stars have the length of what they hide, so that a caret stays in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["comment", "text", "tick", "word", "number", "open", "other"]

# As the tokenizer of our dialect reads them; "open" is a quote or a comment that never ends.
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n\r]*|\{\#.*?\#\})
      | (?P<text>[rR]'[^']*'|'(?:[^'\\]|\\.|'')*'|"(?:[^"]|"")*")
      | (?P<tick>`(?:[^`]|``)*`)
      | (?P<open>['"`])
      | (?P<number>\d\w*)
      | (?P<word>\w+)
      | (?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)
_REFERENCE = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?)([^}]*)(\})")
_SECRET = re.compile(
    r"passw|pwd|secret|token|passphrase|credential|pem\b|jaas|(?:access|api).?key", re.IGNORECASE
)
_IN_ADDRESS = re.compile(r"(://[^\s'/@:]*:)([^\s'/@]*)(@)")

# A statement that begins like these has no options, unless another one has run into it.
_QUERY = re.compile(
    r"""(?:EXPLAIN\s+)?
        (?:\(\s*)*
        (?:SELECT|VALUES|WITH\s+[\w`"]+\s+AS
          |CREATE\s+(?:OR\s+REPLACE\s+)?MATERIALIZED\s+VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:\w+|"[^"]*"|`[^`]*`)\s+AS
          |SHOW|DESC|DESCRIBE|DROP|SUBSCRIBE|REPLAY|DISCARD|REOPEN|RECOVER)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_OPTIONS = re.compile(rf"source\b|kafka|connector|registry|sasl|ssl|{_SECRET.pattern}", re.IGNORECASE)

# Keys whose values are no secrets, spelt with dots.
_HARMLESS_KEYS = (
    "connector topic topics topics.pattern brokers bootstrap.servers properties.bootstrap.servers group.id format "
    "key.format value.format key.columns auto.offset.reset startup.mode scan.startup.mode include.metadata "
    "max.records.per.batch max.poll.records poll.timeout.ms dead.letter.topic security.protocol "
    "kafka.security.protocol sasl.mechanism kafka.sasl.mechanism rows.per.second"
)
_STRATEGIES = frozenset({"SKIP", "FAIL", "DEAD_LETTER", "TRUE", "FALSE"})
# What is shown where quotes do not pair up, and any word may be part of a text.
_LANGUAGE = """ALTER AND ARRAY AS BIGINT BINARY BOOLEAN BY BYTES CHANGES CLOSE CREATE CSV DATE DECIMAL DESCRIBE DOUBLE DROP EMIT
    ERROR EXISTS EXPLAIN FAIL FLOAT FOR FORMAT FROM GROUP HEADERS HOP IF INCLUDE INT INTERVAL JOIN JSON KAFKA KEY MAP
    MATERIALIZED MINUTE NOT NULL OFFSET ON OR ORDER PARTITION RAW REGISTRY REPLACE SCHEMA SECOND SELECT SESSION SHOW
    SKIP SOURCE STRING STRUCT ALLOW LATENESS LATE DATA PER TABLE TIMESTAMP TUMBLE USING VALUES VARCHAR VIEW WATERMARK WHERE WINDOW WITH AVRO
    CONNECTOR TOPIC TOPICS BROKERS BOOTSTRAP SERVERS GROUP_ID ID SSL SASL PASSWORD USERNAME MECHANISM URL"""
_HARMLESS = frozenset(_HARMLESS_KEYS.split())
_KNOWN = frozenset(_LANGUAGE.split())
_LINE_BREAKS = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")


@dataclass(frozen=True)
class _Token:
    kind: TokenKind
    start: int
    end: int
    text: str


def masked(script: str) -> str:
    """The script with stars in place of what may be a secret: as long, and with the same lines."""
    tokens = list(_tokens(script))
    if any(token.kind == "open" for token in tokens):
        return script if _is_query(script, tokens) else _known_words(script)
    parts: list[str] = []
    at = 0
    for statement in _statements(tokens):
        hide = _addresses if _is_query(script, statement) else _values
        for token, text in hide(statement):
            parts += [script[at : token.start], text]
            at = token.end
    return "".join([*parts, script[at:]])


def _tokens(script: str) -> Iterator[_Token]:
    at = 0
    while at < len(script):
        if script.startswith("/*", at):
            end = _comment_end(script, at)
            yield _Token("comment" if end else "open", at, end or len(script), script[at : end or None])
            at = end or len(script)
            continue
        found = _TOKEN.match(script, at)
        if found is None:
            at += 1
            continue
        kind: TokenKind = found.lastgroup  # type: ignore[assignment]
        yield _Token(kind, at, found.end(), found[0])
        at = found.end()


def _comment_end(script: str, at: int) -> int | None:
    """Behind the comment that begins here; comments may hold others."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(script, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def _statements(tokens: list[_Token]) -> Iterator[list[_Token]]:
    statement: list[_Token] = []
    for token in tokens:
        statement.append(token)
        if token.text == ";":
            yield statement
            statement = []
    if statement:
        yield statement


def _is_query(script: str, tokens: list[_Token]) -> bool:
    start = next((token.start for token in tokens if token.kind != "comment"), tokens[-1].end)
    return bool(_QUERY.match(script, start)) and not _OPTIONS.search(script, start, tokens[-1].end)


def _addresses(statement: list[_Token]) -> Iterator[tuple[_Token, str]]:
    for token in statement:
        if token.kind in ("text", "comment"):
            yield token, _without_passwords(token.text)


def _without_passwords(text: str) -> str:
    """Of addresses: `http://user:password@host`."""
    return _IN_ADDRESS.sub(lambda found: found[1] + _stars(found[2]) + found[3], text)


def _values(statement: list[_Token]) -> Iterator[tuple[_Token, str]]:
    """Each token of a statement that may have options, as it may be shown."""
    tokens = [token for token in statement if token.kind != "comment"]
    at = -1
    secret = False  # behind a key that names one, to the end of the option
    for token in statement:
        if token.kind == "comment":
            yield token, token.text[:2] + _stars(token.text[2:])
            continue
        at += 1
        if token.text in (",", ")", ";") or (secret and _begins_next(tokens, at)):
            secret = False
        if token.kind == "other":
            yield token, token.text if not secret or token.text in "=.,();" else "*"
            continue
        shown = not secret and _is_harmless(tokens, at)
        yield token, _without_passwords(token.text) if shown else _starred(token)
        secret = secret or (not _is_value(tokens, at) and bool(_SECRET.search(token.text)))


def _text_at(tokens: list[_Token], at: int) -> str:
    return tokens[at].text if 0 <= at < len(tokens) else ""


def _is_value(tokens: list[_Token], at: int) -> bool:
    return _text_at(tokens, at - 1) == "="


def _begins_next(tokens: list[_Token], at: int) -> bool:
    """Whether a bare key follows a value, with no comma between them."""
    bare = tokens[at].kind == "word" and _text_at(tokens, at + 1) == "=" and _text_at(tokens, at - 2) == "="
    return bare and tokens[at - 1].kind == "text" and not _glued(tokens, at)


def _is_harmless(tokens: list[_Token], at: int) -> bool:
    token, before, after = tokens[at], _text_at(tokens, at - 1), _text_at(tokens, at + 1)
    if _glued(tokens, at) or _glued(tokens, at + 1):
        return False
    if token.kind == "text":
        begins = before in ("", "(", ",")
        is_key = begins and after == "="
        is_column = (
            begins and token.text[0] == '"' and tokens[at + 1 : at + 2] and tokens[at + 1].kind == "word"
        )
        is_known = before == "=" and after in ("", ",", ")", ";") and _key_before(tokens, at) in _HARMLESS
        is_interval = before.upper() == "INTERVAL" and re.fullmatch(r"'[-\d. ]+\w*'", token.text)
        return bool(is_key or is_column or is_known or is_interval)
    return before != "=" or token.kind == "number" or token.text.upper() in _STRATEGIES


def _glued(tokens: list[_Token], at: int) -> bool:
    """A text and a word with no space between them, at `at` and before it: a quote within a text has ended it."""
    if not 0 < at < len(tokens) or tokens[at - 1].end != tokens[at].start:
        return False
    kinds = {tokens[at - 1].kind, tokens[at].kind}
    return "text" in kinds and not kinds & {"other", "tick"}


def _key_before(tokens: list[_Token], at: int) -> str:
    """The key of the value at `at`, spelt with dots; "" if no option list's key stands there."""
    parts: list[str] = []
    for token in reversed(tokens[: at - 1]):
        if token.text in ("(", ","):
            break
        parts.append(token.text.strip("'\"`"))
    return "".join(reversed(parts)).lower().replace("_", ".")


def _starred(token: _Token) -> str:
    """References to the environment stay, and so do the quotes."""
    if token.kind not in ("text", "tick"):
        return _stars(token.text)
    opening = 2 if token.text[0] in "rR" else 1
    inside = token.text[opening:-1]
    parts: list[str] = []
    at = 0
    for found in _REFERENCE.finditer(inside):
        parts += [_stars(inside[at : found.start()]), found[1], _stars(found[2]), found[3]]
        at = found.end()
    return token.text[:opening] + "".join([*parts, _stars(inside[at:])]) + token.text[-1]


def _known_words(script: str) -> str:
    """Where a quote is missing nobody knows what is a text: only words of the language are shown."""
    parts: list[str] = []
    at = 0
    for found in re.finditer(rf"{_REFERENCE.pattern}|\w+|[^\w\s]", script):
        parts.append(script[at : found.start()])
        if found[1] is not None:
            parts += [found[1], _stars(found[2]), found[3]]
        else:
            shown = found[0].upper() in _KNOWN or found[0] in "'\"`(),;=."
            parts.append(found[0] if shown else _stars(found[0]))
        at = found.end()
    return "".join([*parts, script[at:]])


def _stars(text: str) -> str:
    return "".join(char if char in _LINE_BREAKS or char == "\t" else "*" for char in text)
