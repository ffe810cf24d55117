"""`%load_ext forebay`: SQL in a cell of a notebook or of IPython, which Forebay itself does not need.

    %%forebay [--name db] [--home DIR]
    CREATE SOURCE …;
    SELECT …

The cell runs on the session of that name in the notebook; where there is none, one is opened and gets that name.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from forebay.errors import ForebayError, OptionConflictError, OptionValueError

if TYPE_CHECKING:
    from forebay.runtime.results import Result
    from forebay.runtime.session import Session

USAGE = "%%forebay [--name db] [--home DIR]"


def load(shell: Any) -> None:
    """What `%load_ext forebay` does; `shell` is IPython's."""

    def forebay(line: str, cell: str | None = None) -> Any:
        """Run SQL: %%forebay [--name db] [--home DIR], the statements below it; or %forebay SELECT … in a line."""
        try:
            if cell is None:
                return run(shell, "", line)
            return run(shell, line, cell)
        except ForebayError as error:
            # IPython shows what this returns in place of a traceback; the cell has failed, and those after it wait.
            error._render_traceback_ = [str(error)].copy  # type: ignore[attr-defined]
            raise

    shell.register_magic_function(forebay, magic_kind="line_cell", magic_name="forebay")


def run(shell: Any, line: str, script: str) -> Result | None:
    """Run the statements and show their results; the last one is returned, for IPython to show and keep."""
    from forebay.options import expand

    given = _parse(line)
    session = _session(shell.user_ns, given.name, given.home)
    last: Result | None = None
    for result in session.each(expand(script)):
        if last is not None:
            _show(last)
        result.head()  # now: an error belongs to this cell
        last = result
    if last is None or last.done:
        if last is not None:
            _show(last)
        return None
    return last


def _show(result: Result) -> None:
    from IPython.display import display

    if result.done:
        print("\n".join((result.done, *result.notes)))
    else:
        display(result)  # type: ignore[no-untyped-call]


def _session(names: dict[str, Any], name: str, home: str | None) -> Session:
    from forebay import project
    from forebay.runtime.session import Session, connect

    found = names.get(name)
    if isinstance(found, Session) and not found.closed:
        if home is not None and Path(home).expanduser().resolve() != found.home:
            raise OptionConflictError(
                f"session '{name}' has the home {found.home}",
                option="home",
                remedy="--name gives another one",
            )
        return found
    if found is not None and not isinstance(found, Session):
        raise OptionValueError(
            f"'{name}' is {type(found).__name__} here, and no session",
            option="name",
            remedy="%%forebay --name another, which is opened if it is not there",
        )
    project.offer(os.environ.get("FOREBAY_PROFILE"))
    session = connect(home or os.environ.get("FOREBAY_HOME") or ".forebay")
    atexit.register(session.close)  # finishes the batches in flight and commits their offsets
    names[name] = session
    print(f"{name} = {session!r}")
    return session


class _LineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionValueError(f"%%forebay: {message}", remedy=f"{USAGE}, and the statements below it")


def _parse(line: str) -> argparse.Namespace:
    parser = _LineParser(prog="%%forebay", add_help=False, allow_abbrev=False)
    parser.add_argument("--name", default="db")
    parser.add_argument("--home")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:  # a quote that is not closed
        raise OptionValueError(f"%%forebay: {error}", remedy=USAGE) from None
