"""The fenced blocks of a Markdown page: what each is, and what its output should be.

An info string is a language and some words:

    bash, python, sql, ipython      runs
      ctrl-c                        runs until its output is there, then is interrupted
      file=NAME                     is written to that file instead, which the text before it names
      fragment=REASON               does not run, for one of REASONS
    json, toml, proto, …            data: checked by its own parser, written to a file if it is given one
    text                            right after a block that runs: what that prints; `…` stands for anything
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RUNS = frozenset({"bash", "python", "sql", "ipython"})
DATA = frozenset({"json", "jsonl", "toml", "proto", "csv", "promql", "properties"})
OUTPUT = "text"

# Why a block does not run. A new reason is a decision, not a way out.
REASONS = {
    "grammar": "the shape of a statement, with what may be left out in brackets",
    "elsewhere": "a statement or a setting of another system",
    "checkout": "typed in a checkout of Forebay, not in a folder of the reader's",
    "theirs": "needs a server, an account or a program that only the reader has",
}


class DocumentError(Exception):
    """A fence that nobody would know how to read."""


@dataclass(frozen=True)
class Block:
    """One fenced block. `expected` is the output that the page shows right after it."""

    page: str
    line: int
    language: str
    text: str
    file: str | None = None
    fragment: str | None = None
    ctrl_c: bool = False
    before: str = ""
    expected: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUNS and self.file is None and self.fragment is None


def pages(root: Path = ROOT) -> list[Path]:
    """README and every page of docs; decisions are records of a day, which nobody types."""
    found = sorted((root / "docs").glob("*.md")) + sorted((root / "docs" / "how-to").glob("*.md"))
    return [root / "README.md", *found]


def blocks_of(path: Path, root: Path = ROOT) -> list[Block]:
    return parse(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


def parse(markdown: str, page: str) -> list[Block]:
    """The blocks in the order of the page."""
    blocks: list[Block] = []
    prose: list[str] = []
    fence: str | None = None
    body: list[str] = []
    opened, info = 0, ""
    for number, line in enumerate(markdown.splitlines(), start=1):
        mark = re.match(r"\s*(`{3,})\s*(.*)$", line)
        if fence is None and mark:
            fence, info, opened, body = mark[1], mark[2].strip(), number, []
        elif fence is not None and mark and mark[1] == fence and not mark[2]:
            _add(blocks, _block(page, opened, info, "\n".join(body), "\n".join(prose)), prose)
            fence, prose = None, []
        elif fence is not None:
            body.append(line)
        else:
            prose.append(line)
    if fence is not None:
        raise DocumentError(f"{page}:{opened}: the block does not end")
    return blocks


def _add(blocks: list[Block], block: Block, prose: list[str]) -> None:
    if block.language != OUTPUT:
        blocks.append(block)
        return
    if not blocks or not blocks[-1].runs or blocks[-1].expected is not None or "".join(prose).strip():
        raise DocumentError(f"{block.place}: output, but no block that runs stands right before it")
    blocks[-1] = replace(blocks[-1], expected=block.text)


def _block(page: str, line: int, info: str, text: str, before: str) -> Block:
    language, *words = info.split() or [""]
    if language not in RUNS | DATA | {OUTPUT}:
        raise DocumentError(f"{page}:{line}: '{language}' is no language that is checked")
    given: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in ("file", "fragment", "ctrl-c") or name in given or (name == "ctrl-c") == bool(value):
            raise DocumentError(f"{page}:{line}: '{word}' means nothing here")
        given[name] = value
    reason = given.get("fragment")
    if reason is not None and reason not in REASONS:
        raise DocumentError(f"{page}:{line}: '{reason}' is no reason; there are {', '.join(REASONS)}")
    if language == OUTPUT and given:
        raise DocumentError(f"{page}:{line}: output takes no words")
    return Block(page, line, language, text, given.get("file"), reason, "ctrl-c" in given, before)


def shows(expected: str, output: str) -> bool:
    """Whether the output is as expected: `…` is anything within a line, and on a line of its own any lines.

    Spaces behind it count for it, so that a table can be written with its columns in line.
    """
    parts: list[str] = []
    for line in _lines(expected):
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(re.escape(piece) for piece in re.split("… *", line)) + r"\n")
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in _lines(output))) is not None


def _lines(text: str) -> list[str]:
    """Without spaces at the ends of lines, which nobody sees, and without empty lines around."""
    return [line.rstrip() for line in text.strip("\n").rstrip().split("\n")]
