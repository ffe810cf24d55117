"""`forebay init`: a project to begin with, which runs as it is written."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.output import words
from forebay.errors import ObjectExistsError

# By the name in `forebay/template`, where a .gitignore would hide files from packagers.
FILES = {
    name: name for name in ("pipeline.sql", "forebay.toml", "orders.jsonl", "test_pipeline.py", "README.md")
} | {"gitignore": ".gitignore"}


def init(
    folder: Annotated[Path, typer.Argument(help="where to; made if it is not there")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="overwrite files that are there")] = False,
) -> None:
    """Make a project: a pipeline, its settings, a test of it and a README.

    Nothing that is there is overwritten without --force.

    Examples: forebay init orders · forebay init
    """
    if folder.exists() and not folder.is_dir():
        raise ObjectExistsError(f"{folder} is a file", remedy="name a folder: forebay init NAME")
    there = [name for name in FILES.values() if (folder / name).exists()]
    if there and not force:
        raise ObjectExistsError(
            f"{folder.resolve()} has {', '.join(there)}: nothing was written",
            remedy="name another folder, or --force overwrites them",
        )
    folder.mkdir(parents=True, exist_ok=True)
    template = resources.files("forebay") / "template"
    for source, name in FILES.items():
        (folder / name).write_bytes((template / source).read_bytes())
    made = [name for name in FILES.values() if name not in there]
    if made:
        _say(f"made in {folder.resolve()}:")
        for name in made:
            _say(f"  {name}")
    if there:
        _say(f"overwritten: {', '.join(there)}")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {_quoted(folder)} && "
    _say("next:")
    _say(f"  {enter}forebay dev up --no-registry")
    _say("  forebay topic create orders")
    _say("  forebay produce orders orders.jsonl")
    _say("  forebay run pipeline.sql --until-caught-up")


def _quoted(folder: Path) -> str:
    import shlex

    return shlex.quote(str(folder))


def _say(line: str) -> None:
    words.print(line, markup=False, highlight=False, soft_wrap=True)
