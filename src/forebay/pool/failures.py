"""What becomes of a record whose handler has failed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forebay.backoff import wait_ms
from forebay.errors import BadRecordError, OptionValueError


class Verdict(StrEnum):
    """Each is also a word for `errors={TimeoutError: "retry", …}` and, but for retry, for `on.error`."""

    RETRY = "retry"
    """Again after a while, up to `max.attempts`; then as `on.error` says."""

    DEAD_LETTER = "dead_letter"
    """To the dead-letter topic, and on; durable there before the record's offset is committed."""

    SKIP = "skip"
    """Said in the log and counted; the record is taken for done."""

    HALT = "halt"
    """The record stays unfinished: nothing from it on is committed, and a restart handles it again.

    The pool goes on with other records until more than `max.errors` have failed so.
    """


@dataclass(frozen=True)
class FailurePolicy:
    """`errors` says of a class of exceptions what is done at once; the nearest class counts."""

    last: Verdict = Verdict.HALT
    max_attempts: int = 3  # 0: without end
    backoff_ms: int = 100
    backoff_max_ms: int = 30_000
    errors: Mapping[type[BaseException], Verdict] = field(default_factory=dict)

    def verdict(self, error: BaseException, attempt: int) -> Verdict:
        """Of the attempt of this number, counted from 1."""
        if isinstance(error, BadRecordError):
            return self.last  # its bytes will not be others the next time
        found = next((self.errors[cls] for cls in type(error).__mro__ if cls in self.errors), Verdict.RETRY)
        if found is Verdict.RETRY and 0 < self.max_attempts <= attempt:
            return self.last
        return found

    def wait_s(self, attempt: int) -> float:
        """Twice as long after each attempt, and between half of it and all: failures do not come back in step."""
        longest = wait_ms(attempt, self.backoff_ms, self.backoff_max_ms)
        return random.uniform(longest / 2, longest) / 1000


def verdicts(given: Mapping[type[BaseException], str]) -> dict[type[BaseException], Verdict]:
    """From `errors={…}` of a pool."""
    try:
        return {cls: Verdict(word) for cls, word in given.items()}
    except ValueError as error:
        raise OptionValueError(
            f"'errors' cannot say {error}", option="errors", remedy="say one of " + ", ".join(Verdict)
        ) from None
