"""ON ERROR: what becomes of records that do not decode.

The catalog keeps the clause; tasks read it from a small file in the source's folder, each time they
start, so that ALTER SOURCE takes effect at the next micro-batch without a restart.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from forebay.errors import OptionValueError
from forebay.files import make_folder, write_whole
from forebay.options import BOOLEAN, SIZE, TEXT, Option, OptionTable, fraction, integer

Strategy = Literal["skip", "dead_letter", "fail"]
STRATEGIES: tuple[Strategy, ...] = ("skip", "dead_letter", "fail")

_BREAKERS = (
    Option(
        "max_error_ratio",
        fraction(),
        "the query stops when more than this share of a partition's records is bad, of the last hundred or "
        "more",
        example="0.1",
    ),
    Option(
        "max_consecutive_errors",
        integer(1),
        "the query stops when so many records in a row of a partition are bad",
        example="100",
    ),
)
DEAD_LETTER = OptionTable(
    title="ON ERROR = 'dead_letter'",
    options=(
        Option("dead_letter_topic", TEXT, "the topic that takes the letters", example="trades-dlq"),
        Option(
            "dead_letter_path",
            TEXT,
            "a folder that takes the letters as JSON lines instead, below the home unless it is absolute",
            example="/data/dlq",
        ),
        Option(
            "dead_letter_brokers",
            TEXT,
            "the brokers of that topic; the source's unless given, with the source's security settings",
            example="localhost:9092",
        ),
        Option(
            "max_errors_per_second",
            integer(0),
            "the most letters a second, of all tasks of the source; 0 is no limit. What is beyond is counted, "
            "and kept in a ledger to be recovered",
            "100",
            "10",
        ),
        Option(
            "include_raw_message", BOOLEAN, "whether a letter carries the record's own value", "true", "false"
        ),
        Option(
            "max_raw_message_size",
            SIZE,
            "the most bytes of a value that a letter carries; of a longer one its head and its SHA-256",
            "1MB",
            "64KB",
        ),
        *_BREAKERS,
    ),
    exclusive=(("dead_letter_topic", "dead_letter_path"), ("dead_letter_path", "dead_letter_brokers")),
    one_of=(("dead_letter_topic", "dead_letter_path"),),
)
OTHERS = OptionTable(title="ON ERROR = 'skip' and 'fail'", options=_BREAKERS)


@dataclass(frozen=True)
class ErrorPolicy:
    """The clause, checked, with its defaults."""

    strategy: Strategy = "skip"
    topic: str | None = None
    path: str | None = None
    brokers: str | None = None
    max_per_second: int = 100
    include_raw: bool = True
    max_raw_bytes: int = 1 << 20
    max_error_ratio: float | None = None
    max_consecutive_errors: int | None = None

    @property
    def breaks(self) -> bool:
        """Whether there is a limit to how many errors are borne."""
        return self.max_error_ratio is not None or self.max_consecutive_errors is not None

    @classmethod
    def of(cls, strategy: str, given: Mapping[str, str]) -> ErrorPolicy:
        """OptionError where the clause makes no sense; its `option` says which part of it."""
        known = next((name for name in STRATEGIES if name == strategy), None)
        if known is None:
            near = difflib.get_close_matches(strategy, STRATEGIES, 1)
            raise OptionValueError(
                f"unknown error strategy: '{strategy}'. Expected 'skip', 'dead_letter', or 'fail'",
                option="ON ERROR",
                remedy=f"did you mean '{near[0]}'?" if near else "",
            )
        options = (DEAD_LETTER if known == "dead_letter" else OTHERS).bind(given)
        breakers = options["max_error_ratio"], options["max_consecutive_errors"]
        if known != "dead_letter":
            return cls(known, max_error_ratio=breakers[0], max_consecutive_errors=breakers[1])
        return cls(
            known,
            options["dead_letter_topic"],
            options["dead_letter_path"],
            options["dead_letter_brokers"],
            options["max_errors_per_second"],
            options["include_raw_message"],
            options["max_raw_message_size"],
            *breakers,
        )


@dataclass(frozen=True)
class SourceFolder:
    """Where a source keeps what its tasks share. Everything of a source is below one directory of the home."""

    root: Path

    @classmethod
    def of(cls, home: Path, source: str) -> SourceFolder:
        return cls(home / "sources" / source)

    @property
    def policy(self) -> Path:
        return self.root / "on_error.json"

    @property
    def bucket(self) -> Path:
        """The tokens that are left of the rate limit."""
        return self.root / "letters.bucket"

    def write_policy(self, policy: ErrorPolicy) -> None:
        make_folder(self.root, 0o700)
        write_whole(self.policy, json.dumps(asdict(policy)).encode())

    def read_policy(self) -> ErrorPolicy:
        """As it is now; `skip` where nobody has written one."""
        try:
            return ErrorPolicy(**json.loads(self.policy.read_bytes()))
        except FileNotFoundError:
            return ErrorPolicy()
