"""What became of artifacts, in order: published, consumed, tried again, given up."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.blackboard.retries import ERROR, agent_of, job_of
from forebay.deadletter.letter import Letter, NotALetterError
from forebay.errors import ForebayError
from forebay.web.model import ArtifactRow
from forebay.web.shown import inert

if TYPE_CHECKING:
    from confluent_kafka import Message

Step = Mapping[str, Any]
Words = Callable[[str], str]
"""What may be shown of a message, which may quote an artifact."""


@dataclass(frozen=True)
class AgentFailure:
    """An agent failed on an artifact: it is tried again, or became a letter."""

    at_ms: int
    what: str
    agent: str
    artifact: str
    type: str
    correlation: str | None
    message: str

    def step(self, words: Words) -> Step:
        about = {
            "artifact": inert(self.artifact),
            "type": inert(self.type),
            "detail": inert(words(self.message)),
        }
        return {"at_ms": self.at_ms, "what": self.what, "who": inert(self.agent), **about}


def retry_of(message: Message) -> AgentFailure | None:
    """A record of a retry topic; None for what is no artifact."""
    headers = message.headers() or []
    try:
        job = job_of(headers, (message.topic(), message.partition(), message.offset()))
    except ForebayError:
        return None
    error = next((data.decode(errors="replace") for name, data in headers if name == ERROR and data), "")
    tried = f"attempt {job.failed} failed" + (f": {error}" if error else "")
    return _trouble(message.value(), message.timestamp()[1], "retried", agent_of(headers) or "?", tried)


def letter_of(message: Message) -> AgentFailure | None:
    """A record of an agent's topic of letters; None for what is no letter of an artifact."""
    try:
        letter = Letter.from_kafka(message.key(), message.value(), message.headers())
    except NotALetterError:
        return None
    said = f"{letter.kind}: {letter.message}"
    return _trouble(letter.value, letter.failed_at_ms, "became a letter", letter.source, said)


def _trouble(value: bytes | None, at_ms: int, what: str, agent: str, message: str) -> AgentFailure | None:
    try:
        document = json.loads(value or b"")
        id, correlation = str(document["id"]), document.get("correlation_id")
        kind = str(document.get("type", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return AgentFailure(
        at_ms, what, agent, id, kind, None if correlation is None else str(correlation), message
    )


def of_artifact(
    versions: Sequence[ArtifactRow], envelopes: Iterable[Any], troubles: Iterable[Step]
) -> list[Step]:
    """One artifact's: each version, who consumed it, what went wrong with it."""
    steps: list[Step] = [
        _published(each.created_ms, each.produced_by, each.id, each.type, each.version) for each in versions
    ]
    for envelope in envelopes:
        steps += _consumed(envelope)
    return _in_order([*steps, *troubles])


def of_correlation(envelopes: Iterable[Any], troubles: Iterable[Step]) -> list[Step]:
    """Of all artifacts of a correlation."""
    steps: list[Step] = []
    for each in envelopes:
        made = each.artifact
        at = int(made.created_at.timestamp() * 1000)
        steps.append(_published(at, inert(made.produced_by), str(made.id), inert(made.type), made.version))
        steps += _consumed(each)
    return _in_order([*steps, *troubles])


def concerning(
    troubles: Iterable[AgentFailure], ids: Collection[str], correlation: str | None, words: Words
) -> list[Step]:
    """What went wrong with these artifacts, or in a correlation."""
    return [
        each.step(words)
        for each in troubles
        if each.artifact in ids or (correlation is not None and each.correlation == correlation)
    ]


def _published(at_ms: int, who: str, id: str, type: str, version: int) -> Step:
    detail = f"{type}, version {version}"
    return {"at_ms": at_ms, "what": "published", "who": who, "artifact": id, "type": type, "detail": detail}


def _consumed(envelope: Any) -> list[Step]:
    about = {"artifact": str(envelope.artifact.id), "type": inert(envelope.artifact.type)}
    return [
        {
            "at_ms": int(used.consumed_at.timestamp() * 1000),
            "what": "consumed",
            "who": inert(used.consumer),
            **about,
            "detail": about["type"],
        }
        for used in envelope.consumptions
    ]


def _in_order(steps: Iterable[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: step["at_ms"])
