"""Somebody who types a page: its blocks in order, in one folder, on a broker and a registry.

Shell blocks are shells of their own that hand on their folder and their exported variables. SQL runs as with `forebay
run FILE --until-caught-up`: all views of the home run, and what a block began is caught up with when it ends. Python
shares one namespace and one event loop. SQL and Python run in this process, on its Spark: a Spark of its own for each
page would take minutes.
"""

from __future__ import annotations

import ast
import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from documents import Block, shows
from rich.console import Console
from sessions import connect

from forebay import Session
from forebay import sql as language
from forebay.options import expand

PATIENCE_S = 60
WIDTH = 80  # what a terminal has when nobody has made it wider, and what pages are written for
HOME = ".forebay"


class Reader:
    """`places` are the addresses that pages name, and where they are here."""

    def __init__(self, folder: Path, environment: Mapping[str, str], places: Mapping[str, str]) -> None:
        self.folder = folder
        self._cwd = folder
        self._environment = dict(environment)
        self._places = places
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._loop = asyncio.new_event_loop()
        self._session: Any = None
        self._notebook: Any = None

    def close(self) -> None:
        """What a program leaves open ends with it."""
        self._end_session()
        for value in self._names.values():
            if isinstance(value, Session):
                value.close()
        self._loop.close()

    def read(self, block: Block, *, checked: bool) -> None:
        """Do what the block says; with `checked`, its output must be what the page shows."""
        text = self._here(block.text)
        if block.file is not None:
            path = self._cwd / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
            return
        if not block.runs:
            return
        if block.language != "sql":
            self._end_session()
        output = self._run(block, text)
        if checked and block.expected is not None:
            shown = self._there(output)
            assert shows(block.expected, shown), (
                f"{block.place} prints\n{shown}\ninstead of\n{block.expected}"
            )

    def _run(self, block: Block, text: str) -> str:
        if block.ctrl_c:
            assert block.expected is not None, f"{block.place}: nobody knows when to press Ctrl-C"
            command = ["bash", "-c", text] if block.language == "bash" else [sys.executable, "-c", text]
            return self._until_shown(block, command)
        with self._inside():
            match block.language:
                case "bash":
                    return self._shell(block, text)
                case "sql":
                    return self._sql(text)
                case "ipython":
                    return self._cell(text)
            return self._python(block, text)

    def _shell(self, block: Block, text: str) -> str:
        """The last lines tell where the shell is then, and what it exports."""
        left = self.folder.parent / "left"
        script = f"set -eo pipefail\ntrap 'pwd >{left}; env -0 >>{left}' EXIT\n{text}\n"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self._cwd, env=self._environment, text=True, timeout=4 * PATIENCE_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.place} ends with {done.returncode}:\n{done.stdout}"
        where, _, exported = left.read_text().partition("\n")
        self._cwd = Path(where)
        self._environment = dict(pair.split("=", 1) for pair in exported.split("\0") if "=" in pair)
        return done.stdout

    def _until_shown(self, block: Block, command: list[str]) -> str:
        """Started in a group of its own, as a terminal does, and interrupted like from there."""
        assert block.expected is not None
        process = subprocess.Popen(
            command, cwd=self._cwd, env=self._environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        limit = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        output = ""
        try:
            for line in process.stdout:
                output += line
                if shows(block.expected, self._there(output)):
                    break
            os.killpg(process.pid, signal.SIGINT)
            process.communicate()
        finally:
            limit.cancel()
        assert process.returncode in (0, 130, -signal.SIGINT), f"{block.place}: {output}"
        return output

    def _sql(self, text: str) -> str:
        if self._session is None:
            self._session = connect(self._home())
            self._session.start_all()
            self._catch_up()
        script = expand(text, self._environment)
        printed = io.StringIO()
        console = Console(file=printed, width=WIDTH)
        statements = language.parse(script)
        for number, result in enumerate(self._session.each(script)):
            result.show(console=console)
            if number + 1 < len(statements) and not isinstance(statements[number + 1], language.CreateView):
                self._catch_up()
        self._catch_up()
        return printed.getvalue()

    def _catch_up(self) -> None:
        self._session.wait(until_caught_up=True, timeout=PATIENCE_S)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _home(self) -> Path:
        return self._cwd / HOME

    def _python(self, block: Block, text: str) -> str:
        code = compile(text, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            pending = eval(code, self._names)
            if pending is not None:
                self._loop.run_until_complete(asyncio.wait_for(pending, PATIENCE_S))
        return printed.getvalue()

    def _cell(self, text: str) -> str:
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.utils.capture import capture_output

        if self._notebook is None:
            InteractiveShell.clear_instance()
            self._notebook = InteractiveShell.instance(user_ns=self._names)
        with capture_output() as printed:
            done = self._notebook.run_cell(text)
        done.raise_error()
        return str(printed)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """This process in the reader's folder, with the reader's variables."""
        folder, environment = Path.cwd(), dict(os.environ)
        os.chdir(self._cwd)
        os.environ.clear()
        os.environ.update(self._environment)
        try:
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)

    def _here(self, text: str) -> str:
        for named, here in self._places.items():
            text = text.replace(named, here)
        return text

    def _there(self, output: str) -> str:
        for named, here in self._places.items():
            output = output.replace(here, named)
        return re.sub(r"\x1b\[[0-9;]*m", "", output)
