"""Retries: an artifact that an agent failed on waits in `flock.retry.<n>`, and what is to be done is in its headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forebay.backoff import wait_ms
from forebay.deadletter.letter import REPLAY_ID, Letter
from forebay.deadletter.stacktrace import stacktrace_of
from forebay.errors import ArtifactError

Headers = Sequence[tuple[str, bytes | None]]
RecordPlace = tuple[str, int, int]

AGENT = "forebay.agent"
ATTEMPT = "forebay.retry.attempt"
DUE = "forebay.retry.due.ms"
ERROR = "forebay.retry.error"
ORIGIN = "forebay.retry.origin"
MOST = 1 << 62  # attempts, and milliseconds since 1970
_OWN = (AGENT, ATTEMPT, DUE, ERROR, ORIGIN)


@dataclass(frozen=True)
class RetryPolicy:
    """`attempts` in all, the first included; each further one waits twice as long, within a limit."""

    attempts: int = 4
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000

    def wait_ms(self, failed: int) -> int:
        """After this many failures. The same for all, so that a retry topic is in the order in which it is due."""
        return wait_ms(failed, self.backoff_ms, self.backoff_max_ms)

    @property
    def topics(self) -> int:
        """One at least: replays go through the first."""
        return max(1, self.attempts - 1)


@dataclass(frozen=True)
class Job:
    """What a record asks for: an artifact for whoever wants it, or for one agent, again or once more."""

    agent: str | None  # None: for all that want it
    failed: int  # how often it was tried before
    due_ms: int
    replay: str
    origin: RecordPlace  # where the artifact first came from

    def next(self, agent: str, due_ms: int) -> Job:
        return replace(self, agent=agent, failed=self.failed + 1, due_ms=due_ms)


def agent_of(headers: Headers) -> str | None:
    """The one agent that a record is for, if it is for one."""
    return next((data.decode(errors="replace") for name, data in headers if name == AGENT and data), None)


def job_of(headers: Headers, place: RecordPlace) -> Job:
    """Of any record that holds an artifact."""
    fields = {name: data.decode(errors="replace") for name, data in headers if data is not None}
    try:
        origin = fields.get(ORIGIN)
        topic, partition, offset = origin.rsplit("/", 2) if origin else place
        job = Job(
            agent_of(headers),
            int(fields.get(ATTEMPT, "0")),
            int(fields.get(DUE, "0")),
            fields.get(REPLAY_ID, ""),
            (str(topic), int(partition), int(offset)),
        )
        if min(job.failed, job.due_ms, *job.origin[1:]) < 0 or max(job.failed, job.due_ms) > MOST:
            raise ValueError("a number is out of range")
        return job
    except ValueError as error:
        raise ArtifactError(f"the headers of a retry do not make sense: {error}") from None


def headers_of(job: Job, before: Headers, error: str = "") -> list[tuple[str, bytes | None]]:
    """The record's own headers, and what is to be done."""
    fields = {
        AGENT: job.agent or "",
        ATTEMPT: str(job.failed),
        DUE: str(job.due_ms),
        ORIGIN: "{}/{}/{}".format(*job.origin),
        ERROR: error,
    }
    return [*own(before), *((name, text.encode()) for name, text in fields.items() if text)]


def own(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, data) for name, data in headers if name not in _OWN]


def letter_of(
    job: Job,
    agent: str,
    key: bytes | None,
    value: bytes,
    headers: Headers,
    error: BaseException,
    now_ms: int,
    sent_ms: int | None,
) -> Letter:
    """The agent's dead letter: the artifact as it is in the log, addressed to this agent if it is replayed."""
    topic, partition, offset = job.origin
    return Letter(
        source=agent,
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=sent_ms,
        key=key,
        value=value,
        headers=(*((name, data) for name, data in own(headers)), (AGENT, agent.encode())),
        kind=type(error).__name__,
        message=f"attempt {job.failed + 1}: {error}",
        failed_at_ms=now_ms,
        size=len(value),
        stacktrace=stacktrace_of(error),
    )
