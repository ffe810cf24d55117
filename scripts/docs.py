"""Writes the pages that are made from the code, so that they cannot disagree with it.

`python -m scripts.docs` writes them; `--check` only says whether they are up to date.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection

from scripts import dashboard
from scripts.rooms import ROOT, design

from forebay.blackboard.options import BLACKBOARD, OWN
from forebay.connectors.datagen import DATAGEN
from forebay.deadletter.policy import DEAD_LETTER, OTHERS
from forebay.errors import all_errors
from forebay.kafka.options import KAFKA, PASS_THROUGH
from forebay.keywords import parameters
from forebay.options import OptionTable
from forebay.pool.options import POOL
from forebay.project import PROJECT
from forebay.views.options import VIEW


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
        about = option.description[0].upper() + option.description[1:] + "." + secret + env
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


def keywords_module(table: OptionTable, name: str, of: str, without: Collection[str] = ()) -> str:
    """A module with a `TypedDict` of a table's options, which types the `**keywords` of a class."""
    lines = [
        f'"""The keyword arguments of `{of}`, with their types. Made from the option table by `make docs`."""',
        "from __future__ import annotations",
        "from collections.abc import Mapping, Sequence",
        "from typing import Literal, TypedDict",
        f"class {name}(TypedDict, total=False):",
        f'    """What `{of}` can be given by keyword. docs/options.md has the same as a table."""',
    ]
    for keyword, written, about, _ in parameters(table, without):
        lines += [f"    {keyword}: {written}", f"    {_docstring(about)}"]
    code = "\n".join(lines) + "\n"
    for command in (["check", "--fix", "--quiet", "--select=F401,I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename=keywords.py", "-"]
        code = subprocess.run(ruff, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


def _docstring(text: str) -> str:
    sentence = text[0].upper() + text[1:] + "."
    return '"""' + sentence.replace("\\", "\\\\") + '"""'


PAGES = {
    "docs/options.md": options_page,
    "docs/errors.md": errors_page,
    "docs/kafka-source.schema.json": lambda: json.dumps(KAFKA.json_schema(), indent=2) + "\n",
    "src/forebay/pool/keywords.py": lambda: keywords_module(POOL, "PoolKeywords", "forebay.Pool"),
    "src/forebay/blackboard/keywords.py": lambda: keywords_module(
        BLACKBOARD, "BlackboardKeywords", "forebay.KafkaBlackboardStore", ["bootstrap_servers"]
    ),
    "src/forebay/blackboard/agent_keywords.py": lambda: keywords_module(
        POOL, "AgentKeywords", "forebay.blackboard.Orchestrator", [*OWN, "group_id", "workers", "order"]
    ),
    "DESIGN.md": lambda: design((ROOT / "DESIGN.md").read_text()),
    str(dashboard.PATH.relative_to(ROOT)): dashboard.text,
}


def main() -> int:
    check = "--check" in sys.argv
    made = {name: page() for name, page in PAGES.items()}
    stale = [
        name for name, text in made.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text
    ]
    if check:
        for name in stale:
            print(f"{name} is out of date: run make docs", file=sys.stderr)
        return bool(stale)
    for name in stale:
        (ROOT / name).write_text(made[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
