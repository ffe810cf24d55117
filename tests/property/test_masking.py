"""No wrong statement shows a secret, however it is cut or broken."""

from __future__ import annotations

import os
import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from forebay.errors import Position, SqlSyntaxError, StatementError
from forebay.masking import _tokens, masked
from forebay.sql import Forebay, parse

FIXTURES = Path(__file__).parent.parent / "sql"
IDENTITY = (FIXTURES / "identity.sql").read_text(encoding="utf-8").splitlines()
WRONG = [
    line.split("⇒")[0].strip().replace("\\n", "\n")
    for line in (FIXTURES / "errors.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
WITH_OPTIONS = [text for text in (*IDENTITY, *WRONG) if re.search(r"(WITH|KAFKA|REGISTRY|CSV) \(\S", text)]

CANARY = "Qx7Zk9WvJ3"
# A secret as people write it, rightly and wrongly.
SECRETS = [
    "'kafka.sasl.password' = 'Qx7Zk9WvJ3'",
    'kafka.sasl.password = "Qx7Zk9WvJ3"',
    r"sasl_password = 'it\'s Qx7Zk9WvJ3'",
    "'schema.registry.password' = 'it''s Qx7Zk9WvJ3'",
    r"'kafka.sasl.password' = r'C:\Qx7Zk9WvJ3'",
    "'kafka.sasl.password' = 'Qx7Zk9WvJ3' 'Qx7Zk9WvJ3'",
    "'kafka.sasl.password' 'Qx7Zk9WvJ3'",
    'password "Qx7Zk9WvJ3"',
    "'kafka.sasl.password' = 'Q'Qx7Zk9WvJ3'Q'",
    "'kafka.sasl.pasword' = 'Qx7Zk9WvJ3'",
    "'kafka.sasl.password' = '${PW:-Qx7Zk9WvJ3}'",
    "'schema.registry.url' = 'http://me:Qx7Zk9WvJ3@host:8081'",
]
BREAKS = [
    "cut the rest",
    "cut the start",
    "drop a character",
    "'",
    '"',
    "`",
    "\\",
    ";",
    ")",
    "(",
    ",",
    "=",
    "--",
    "/*",
]


# Ways to break each place: all of them in the long form, else one, another at each place and in each statement.
TURNS = len(BREAKS) if "FOREBAY_EXAMPLES" in os.environ else 1
STEP = 1 if "FOREBAY_LONG" in os.environ else 3  # of the places at which a statement is cut


def with_secret(statement: str, secret: str) -> str:
    """The statement with one option more, in its last option list."""
    *_, found = re.finditer(r"(?:WITH|KAFKA|REGISTRY|CSV) \((?=\S)", statement)
    comma = "" if statement[found.end()] == ")" else ", "
    return statement[: found.end()] + secret + comma + statement[found.end() :]


def broken(text: str, at: int, how: str) -> str:
    if how == "cut the rest":
        return text[:at]
    if how == "cut the start":
        return text[at:]
    if how == "drop a character":
        return text[:at] + text[at + 1 :]
    return text[:at] + how + text[at:]


def without_tokens(text: str, count: int) -> Iterator[str]:
    """The statement without so many of its tokens, for all that stand together."""
    try:
        tokens = Forebay().tokenize(text)
    except SqlglotError:
        return
    for first in range(len(tokens) - count + 1):
        yield text[: tokens[first].start] + text[tokens[first + count - 1].end + 1 :]


def leaks(script: str) -> str | None:
    """Where a part of the secret shows when the script is refused; None if nowhere."""
    try:
        parse(script)
    except StatementError as error:
        shown = [
            str(error),
            repr(error),
            error.remedy,
            error.statement,
            "".join(traceback.format_exception(error)),
        ]
        text = "\n".join([*shown, repr(pickle.dumps(error))])
        parts = (CANARY[at : at + 4] for at in range(len(CANARY) - 3))
        if any(part in text for part in parts):
            return f"{script!r} is refused with {error!s}"
    return None


def test_there_are_statements_with_options_to_break() -> None:
    assert len(WITH_OPTIONS) >= 60


@pytest.mark.parametrize("number", range(len(SECRETS)))
def test_no_statement_of_the_fixtures_shows_a_secret_wherever_it_is_cut_or_broken(number: int) -> None:
    found = []
    for each, statement in enumerate(WITH_OPTIONS):
        text = with_secret(statement, SECRETS[number])
        found.append(leaks(text))
        if each % len(SECRETS) != number:
            continue  # each statement is broken at every place with one of the secrets in it
        found += [leaks(script) for script in without_tokens(text, 1 + each % 3)]
        for at in range(each % STEP, len(text), STEP):
            for turn in range(TURNS):
                found.append(leaks(broken(text, at, BREAKS[(at + each + turn) % len(BREAKS)])))
    assert [leak for leak in found if leak] == []


@pytest.mark.parametrize("secret", SECRETS)
def test_a_statement_of_several_lines_shows_no_secret_either(secret: str) -> None:
    text = (
        "SHOW SOURCES;\n\nCREATE SOURCE t (\n  a INT, -- password = 'Qx7Zk9WvJ3'\n  ts TIMESTAMP\n) FROM KAFKA (\n"
        f"  brokers = 'localhost:9092',\n  {secret},\n  topic = 't'\n)\nFORMAT JSON;\nSELECT 'x' FROM t\n"
    )
    found = [
        leaks(broken(text, at, BREAKS[(at + turn) % len(BREAKS)]))
        for at in range(len(text))
        for turn in range(TURNS)
    ]
    assert [leak for leak in found if leak] == []


@pytest.mark.parametrize(
    "how", ["= {}", "{}", ": {}", "=> {}", "= Q{}Q", "= {} {}", "= -{}", "= 1{}", "= `{}`"]
)
@pytest.mark.parametrize(
    "key", ["password", "'kafka.sasl.password'", '"sasl.password"', "sasl_password", "`password`"]
)
def test_a_secret_that_is_not_in_quotes_is_not_shown_either(key: str, how: str) -> None:
    secret = f"{key} {how}".replace("{}", CANARY)
    assert [leak for text in WITH_OPTIONS if (leak := leaks(with_secret(text, secret)))] == []


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("CREATE SOURCE t WITH (connector = 'kafka', x = 'y')", "CREATE SOURCE t WITH (connector = 'kafka', x = '*')"),
        ("CREATE SOURCE t FROM KAFKA (password = '${PW}')", "CREATE SOURCE t FROM KAFKA (password = '${PW}')"),
        ("ALTER SOURCE t ON ERROR = skip WITH (a = '${A:-b}')", "ALTER SOURCE t ON ERROR = skip WITH (a = '${A:-*}')"),
        ("CREATE SOURCE t WITH (a.password = 'x, y = 'z')", "CREATE SOURCE * WITH (*.password = '*, * = '*')"),
        ("CREATE SOURCE t (\"userId\" BIGINT) WITH ()", "CREATE SOURCE t (\"userId\" BIGINT) WITH ()"),
        ("CREATE SOURCE t -- password = 'x'", "CREATE SOURCE t --***************"),
        ("SELECT a FROM t WHERE b = 'x' AND \"c\" = 'y", "SELECT a FROM t WHERE b = 'x' AND \"c\" = 'y"),
        ("SELECT 'http://me:you@host' FROM t", "SELECT 'http://me:***@host' FROM t"),
        ("SELECT 'x' CREATE SOURCE t WITH (a = 'y')", "SELECT '*' CREATE SOURCE t WITH (a = '*')"),
    ],
)  # fmt: skip
def test_what_is_known_to_be_harmless_is_shown(script: str, shown: str) -> None:
    assert masked(script) == shown


def test_a_wrong_query_is_shown_whole() -> None:
    with pytest.raises(StatementError) as caught:
        parse("CREATE MATERIALIZED VIEW v AS SELECT a, FROM t WHERE b = 'x'")
    assert "SELECT a, FROM t WHERE b = 'x'" in str(caught.value)


def test_a_caret_stays_in_place_beside_stars() -> None:
    line = "CREATE SOURCE t WITH (password = 'hunter2' topic = 't')"
    drawn = str(
        SqlSyntaxError("no", position=Position(1, line.index("topic") + 1, 5), statement=line)
    ).splitlines()
    assert drawn[1][drawn[2].index("^") : drawn[2].rindex("^") + 1] == "topic"


_SCRIPTS = some.text(some.sampled_from("ab1 '\"`\\\n,;=().-/*rR${}:"), max_size=40)


@given(_SCRIPTS | some.text(max_size=40))
def test_masking_keeps_length_and_lines(script: str) -> None:
    shown = masked(script)
    assert len(shown) == len(script)
    assert [len(line) for line in shown.splitlines()] == [len(line) for line in script.splitlines()]


@given(_SCRIPTS)
def test_masking_reads_quotes_as_the_tokenizer_does(script: str) -> None:
    quoted = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER}
    try:
        theirs = [
            (token.start, token.end + 1) for token in Forebay().tokenize(script) if token.token_type in quoted
        ]
    except SqlglotError:
        return
    ours = list(_tokens(script))
    assert [(token.start, token.end) for token in ours if token.kind in ("text", "tick")] == theirs
