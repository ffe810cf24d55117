"""What `--help` prints is what was written: a word in brackets is markup to rich, which leaves it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.text import Text

from forebay.cli.main import COMMANDS, load

MARKUP = ("[bold]", "[dim]", "[/]", "[/bold]", "[/dim]")  # what is meant as such


def texts(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for each in command.params:
        yield f"{name} {each.name}", getattr(each, "help", None) or ""
    for inner in getattr(command, "commands", {}).values():
        yield from texts(inner, f"{name} {inner.name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_of_a_help_text_is_lost_as_markup(name: str) -> None:
    for place, text in texts(load(name), name):
        written = text.replace("\\[", "[")
        for each in MARKUP:
            written = written.replace(each, "")
        assert Text.from_markup(text).plain == written, place


def test_the_help_of_run_and_pool_run_names_the_extra() -> None:
    for name in ("run", "pool"):
        shown = [Text.from_markup(text).plain for _, text in texts(load(name), name)]
        assert any("'forebay[ui]'" in each for each in shown)
