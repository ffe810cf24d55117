"""The shell of `forebay sql`: statements one by one, with history and completion."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory

from forebay import __version__, threads
from forebay.cli.output import OutputFormat, say_error, show, show_rows, words
from forebay.cli.phases import Elapsed
from forebay.deadletter.policy import DEAD_LETTER
from forebay.kafka.options import KAFKA
from forebay.patience import Person, waited_for_by
from forebay.runtime.results import Result
from forebay.runtime.session import Session
from forebay.sql.phrases import PHRASES

HELP = """\
A statement ends with a semicolon. Tab completes, the arrow keys recall, Ctrl-C breaks off, Ctrl-D ends.
  CREATE SOURCE t (id BIGINT, ts TIMESTAMP) FROM KAFKA (brokers = 'localhost:9092', topic = 't') FORMAT JSON;
  CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM t GROUP BY id;
  SELECT * FROM v ORDER BY n DESC LIMIT 10;    SUBSCRIBE v;
  SHOW SOURCES; SHOW VIEWS; SHOW QUERIES;      DESCRIBE EXTENDED SOURCE t;    DROP SOURCE t CASCADE;
"""


def loop(session: Session, output: OutputFormat) -> None:
    session.home.mkdir(parents=True, exist_ok=True)
    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(str(session.home / "history")),
        completer=_Names(session),
        complete_while_typing=False,
        enable_history_search=True,
    )
    words.print(
        f"forebay {__version__}, home {session.home.name}. Type help; for help, exit; to end.",
        highlight=False,
    )
    while True:
        try:
            statement = _read(prompt)
            word = statement.rstrip("; \n\t").lower()
            if word in ("exit", "quit", "\\q"):
                return
            if word in ("help", "\\h", "?"):
                words.print(HELP, markup=False, highlight=False)
            elif word:
                _one(session, statement, output)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _read(prompt: PromptSession[str]) -> str:
    """Lines up to one that ends with a semicolon."""
    lines: list[str] = []
    while True:
        mark = HTML("<b>forebay&gt; </b>") if not lines else HTML("<b>      -&gt; </b>")
        lines.append(prompt.prompt(mark))
        text = "\n".join(lines)
        if text.rstrip().endswith(";") or text.strip().lower() in (
            "",
            "exit",
            "quit",
            "help",
            "\\q",
            "\\h",
            "?",
        ):
            return text


def _one(session: Session, statement: str, output: OutputFormat) -> None:
    """Run what was typed. Whatever goes wrong is said, and the prompt comes back."""
    try:
        name = _subscribed(statement)
        if name:
            _follow(session, name)
            return
        results = session.each(statement)
        while (result := _next(results)) is not None:
            show(result, output)
    except KeyboardInterrupt:
        words.print("broken off", style="dim")
    except Exception as error:
        say_error(error)


def _next(results: Iterator[Result]) -> Result | None:
    """The next result. A thread of its own makes it: a statement that Ctrl-C broke off would be half done."""
    found: list[Result | None] = []
    failures: list[Exception] = []
    # Not Thread.join(): one that Ctrl-C interrupts takes the thread for ended (Python 3.11).
    done = threading.Event()

    def work() -> None:
        try:
            found.append(next(results, None))
        except Exception as error:
            failures.append(error)
        finally:
            done.set()

    with words.status("…") as status:
        person = Person(lambda what: status.update("…" if what is None else Elapsed(what)))

        def watched() -> None:
            with waited_for_by(person):
                work()

        threads.start("forebay-statement", watched, failures.append, logged=False)
        while not done.is_set():
            try:
                done.wait()
            except KeyboardInterrupt:
                words.print("Ctrl-C does not stop this statement; it ends by itself", style="dim")
    if not found:
        raise failures[0]
    return found[0]


def _subscribed(statement: str) -> str | None:
    from forebay import sql as language

    parsed = language.parse(statement)
    return parsed[0].view if len(parsed) == 1 and isinstance(parsed[0], language.Subscribe) else None


def _follow(session: Session, view: str) -> None:
    words.print("following; Ctrl-C to stop", style="dim")
    with session.subscribe(view) as changes:
        for batch in changes:
            show_rows(batch.to_pylist(), OutputFormat.JSONL)


class _Names(Completer):
    """Keywords, options, and what exists."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fixed = (*PHRASES, *(f"'{name}' = " for name in KAFKA.names()), *DEAD_LETTER.names())

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(WORD=True).lstrip("(")
        line = document.text_before_cursor.split("\n")[-1].lstrip()
        existing = [
            row["name"] for kind in ("SOURCES", "VIEWS") for row in self._session.sql(f"SHOW {kind}").rows()
        ]
        choices = (*self._fixed, *existing)
        # A phrase that goes on from the whole line is meant before one that goes on from its last word.
        for typed in (line, word):
            found = [choice for choice in choices if typed and choice.lower().startswith(typed.lower())]
            if found:
                yield from (Completion(choice, start_position=-len(typed)) for choice in found)
                return
