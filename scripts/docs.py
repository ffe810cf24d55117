"""Writes the pages that are made from the code, so that they cannot disagree with it.

`python scripts/docs.py` writes them; `--check` only says whether they are up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forebay.blackboard.options import BLACKBOARD
from forebay.connectors.datagen import DATAGEN
from forebay.deadletter.policy import DEAD_LETTER, OTHERS
from forebay.errors import all_errors
from forebay.kafka.options import KAFKA, PASS_THROUGH
from forebay.options import OptionTable
from forebay.pool.options import POOL
from forebay.project import PROJECT
from forebay.views.options import VIEW

DOCS = Path(__file__).resolve().parent.parent / "docs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _rows(table: OptionTable) -> list[str]:
    lines = ["| option | type | default | what it does | example |", "|---|---|---|---|---|"]
    for option in table.options:
        default = "required" if option.required else "" if option.default is None else f"`{option.default}`"
        if option.default == "":
            default = "(empty)"
        kind = option.kind.expected if option.kind.choices else option.kind.name
        secret = " Secret." if option.secret else ""
        env = f" From `{option.env}` if not given." if option.env else ""
        example = f"`{option.example}`" if option.example else ""
        kept = "" if option.acts else " Checked and kept; this version does not act on it yet."
        about = option.description[0].upper() + option.description[1:] + "." + secret + env + kept
        lines.append(
            f"| `{option.name}` | {_cell(kind)} | {_cell(default)} | {_cell(about)} | {_cell(example)} |"
        )
    return lines


def options_page() -> str:
    denied = [f"| `kafka.{key}` | {_cell(why)} |" for key, why in PASS_THROUGH.denied.items()]
    parts = [
        "# Options",
        "",
        "Made from the code by `make docs`. In `FROM KAFKA (…)` an option is written bare with underscores",
        "(`group_id`) or quoted with dots (`'group.id'`); `brokers` is `bootstrap.servers`. A value `'${NAME}'` is",
        "taken from the environment, also for secrets. An unknown option is an error, never ignored.",
        "",
        "## Views",
        "",
        "In `CREATE MATERIALIZED VIEW name WITH (…) AS SELECT …`.",
        "",
        *_rows(VIEW),
        "",
        "## Kafka sources",
        "",
        *_rows(KAFKA),
        "",
        "`topic`, `topics` and `topic.pattern` exclude each other, and one is needed. `group.id` is required in",
        "the `WITH (…)` spelling and is `forebay-<source>` in the `FROM KAFKA (…)` spelling.",
        "",
        "`kafka.*` goes to the client library (librdkafka) as it is, except:",
        "",
        "| key | why not |",
        "|---|---|",
        *denied,
        "",
        "## ON ERROR = 'dead_letter' WITH (…)",
        "",
        *_rows(DEAD_LETTER),
        "",
        "One of `dead_letter_topic` and `dead_letter_path` is needed, and they exclude each other.",
        "",
        "## ON ERROR = 'skip' WITH (…), 'fail' WITH (…)",
        "",
        *_rows(OTHERS),
        "",
        "## Pools",
        "",
        "As keywords of `forebay.Pool` with underscores for dots; see [pool.md](pool.md).",
        "",
        *_rows(POOL),
        "",
        "## Blackboards",
        "",
        "Keywords of `KafkaBlackboardStore`, with underscores for dots; `kafka.*` goes to the client library as above.",
        "`FROM BLACKBOARD (…)` takes the options of a Kafka source, and `topic.prefix`.",
        "",
        *_rows(BLACKBOARD),
        "",
        "## forebay.toml",
        "",
        "At the top of the file, or in a `[profiles.NAME]`; see [project.md](project.md).",
        "",
        *_rows(PROJECT),
        "",
        "## Datagen sources",
        "",
        *_rows(DATAGEN),
        "",
        "`fields.<column>.<setting>` shapes one column: `kind` (random, sequence), `min`, `max`, `start`, `end`,",
        "`length`, `choices` (separated by commas), `null.rate`.",
        "",
    ]
    return "\n".join(parts)


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Made from the code by `make docs`. Codes are stable: scripts may match on them.",
        "",
    ]
    lines += ["| code | error | retried | exit code | remedy |", "|---|---|---|---|---|"]
    for code, cls in sorted(all_errors().items()):
        retried = "yes" if cls.retryable else ""
        lines.append(
            f"| {code} | {cls.__name__} | {retried} | {cls.exit_code} | {_cell(cls.default_remedy)} |"
        )
    return "\n".join([*lines, ""])


PAGES = {
    "options.md": options_page,
    "errors.md": errors_page,
    "kafka-source.schema.json": lambda: json.dumps(KAFKA.json_schema(), indent=2) + "\n",
}


def main() -> int:
    check = "--check" in sys.argv
    stale = [
        name
        for name, page in PAGES.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text() != page()
    ]
    if check:
        for name in stale:
            print(f"docs/{name} is out of date: run make docs", file=sys.stderr)
        return bool(stale)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
