"""Every block of README and docs is of a known kind, and few do not run."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections import Counter

import pytest
from documents import ROOT, Block, DocumentError, blocks_of, pages, parse, shows

from forebay import sql
from forebay.errors import StatementError

PAGE = """\
Type this:

```bash
echo one
```

```text
one
```

Save it as `a.py`:

```python file=a.py
x = 1
```

```sql fragment=grammar
SELECT …
```
"""

# How many blocks of a page do not run, with the reason. Make a block run before you add to this.
FRAGMENTS = {
    ("README.md", "checkout"): 1,
    ("docs/blackboard.md", "theirs"): 1,
    ("docs/cluster.md", "theirs"): 2,
    ("docs/dashboard.md", "theirs"): 1,
    ("docs/how-to/from-kafka-connect.md", "elsewhere"): 1,
    ("docs/how-to/from-ksqldb-or-flink-sql.md", "elsewhere"): 3,
    ("docs/how-to/from-plain-spark.md", "elsewhere"): 1,
    ("docs/monitoring.md", "theirs"): 1,
    ("docs/sql.md", "grammar"): 3,
    ("docs/storage.md", "theirs"): 3,
}

BLOCKS = [block for path in pages() for block in blocks_of(path)]


def named(blocks: list[Block]) -> list[object]:
    return [pytest.param(block, id=block.place) for block in blocks]


def test_a_page_is_its_blocks_with_the_output_that_follows_them() -> None:
    shell, python, grammar = parse(PAGE, "p.md")
    assert (shell.language, shell.text, shell.expected, shell.line) == ("bash", "echo one", "one", 3)
    assert shell.runs
    assert (python.file, python.runs) == ("a.py", False)
    assert "Save it as `a.py`" in python.before
    assert (grammar.fragment, grammar.runs) == ("grammar", False)


@pytest.mark.parametrize(
    ("markdown", "message"),
    [
        ("```\nls\n```", "no language"),
        ("```rust\nls\n```", "'rust' is no language"),
        ("```bash\nls", "does not end"),
        ("```bash fragment=lazy\nls\n```", "'lazy' is no reason"),
        ("```bash once\nls\n```", "'once' means nothing"),
        ("```text\nls\n```", "no block that runs"),
        ("```bash\nls\n```\nwhich prints\n```text\na\n```", "no block that runs"),
        ("```bash fragment=theirs\nls\n```\n```text\na\n```", "no block that runs"),
    ],
)
def test_a_fence_that_cannot_be_checked_is_an_error_with_its_line(markdown: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        parse(markdown, "p.md")
    assert str(caught.value).startswith("p.md:")


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("a\nb", "a  \nb\n", True),
        ("a\nb", "a\n\nb\n", False),
        ("a\n…\nb", "a\nx\ny\nb\n", True),
        ("a\n…\nb", "a\nb\n", True),
        ("a\n…", "a\n", True),
        ("a … c", "a b c", True),
        ("a … c", "a b\nc", False),
        ("│ …     │ b", "│ 2026 │ b", True),
        ("a.b", "axb", False),
        ("a", "a\nb", False),
    ],
)
def test_an_ellipsis_stands_for_anything_and_nothing_else_does(
    expected: str, output: str, same: bool
) -> None:
    assert shows(expected, output) is same


def test_few_blocks_do_not_run_and_each_is_listed() -> None:
    found = Counter((block.page, block.fragment) for block in BLOCKS if block.fragment is not None)
    assert dict(found) == FRAGMENTS


@pytest.mark.parametrize("block", named([block for block in BLOCKS if block.file]))
def test_the_text_before_a_file_names_it(block: Block) -> None:
    assert f"`{block.file}`" in block.before


@pytest.mark.parametrize("block", named([block for block in BLOCKS if block.language == "sql"]))
def test_sql_is_read_or_is_refused_with_what_to_write_instead(block: Block) -> None:
    if block.fragment is None:
        sql.parse(block.text)
        return
    with pytest.raises(StatementError) as caught:
        sql.parse(block.text)
    if block.fragment == "elsewhere":
        assert caught.value.remedy


@pytest.mark.parametrize("block", named([block for block in BLOCKS if block.language == "python"]))
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(
    "block", named([block for block in BLOCKS if block.language in ("json", "jsonl", "toml")])
)
def test_data_is_what_it_says_it_is(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    else:
        for text in block.text.splitlines() if block.language == "jsonl" else [block.text]:
            json.loads(text)


@pytest.mark.parametrize("block", named([block for block in BLOCKS if block.language == "promql"]))
def test_metrics_that_an_alert_names_are_there(block: Block) -> None:
    written = "".join(path.read_text() for path in (ROOT / "src" / "forebay").rglob("metrics.py"))
    names = re.findall(r"\b(?:forebay|kafka)_\w+", block.text)
    assert names
    assert [name for name in names if name.removesuffix("_total") not in written] == []


def test_pages_use_what_forebay_exports() -> None:
    """`forebay.blackboard` and `forebay.blackboard.flock` and `forebay.testing` are public beside `forebay`."""
    private = re.compile(r"\b(?:from|import) forebay\.(?!(?:blackboard(?:\.flock)?|testing) import)\S+")
    assert [
        (block.place, private.findall(block.text)) for block in BLOCKS if private.search(block.text)
    ] == []


def test_what_a_page_links_to_is_there() -> None:
    missing = []
    for page in pages():
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (page.parent / target).exists():
                missing.append((page.name, target))
    assert missing == []
