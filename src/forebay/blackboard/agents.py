"""Agents: which artifacts each wants, and what it makes of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from forebay.blackboard.artifact import Document
from forebay.errors import ArtifactError

AgentHandler = Callable[[Any], Any]
"""Takes an artifact; gives nothing, an artifact, or several of them. `async def`, or plain, run in a thread."""

EVERY = "*"


@dataclass(frozen=True)
class AgentSubscription:
    """One agent's wish. `where` is asked of those of the types; it sees the artifact, and must not change it."""

    agent: str
    types: frozenset[str]
    handler: AgentHandler
    where: Callable[[Any], bool] | None = None

    def wants(self, document: Document) -> bool:
        """An agent is never handed what it has itself produced: that would go on for ever."""
        if document.get("produced_by") == self.agent:
            return False
        named = {document.get("type"), document.get("canonical_type")}
        return EVERY in self.types or not self.types.isdisjoint(named)

    def passes(self, artifact: Any) -> bool:
        """Whether `where` holds. It is the user's, and may raise."""
        return self.where is None or bool(self.where(artifact))

    async def handle(self, artifact: Any, threads: Executor) -> list[Any]:
        """What the handler makes of it, as a list."""
        if inspect.iscoroutinefunction(self.handler):
            made = await self.handler(artifact)
        else:
            work = partial(copy_context().run, self.handler, artifact)  # spans know where they are
            made = await asyncio.get_running_loop().run_in_executor(threads, work)
            if isinstance(made, Awaitable):  # such as a lambda around an async function
                made = await made
        if made is None:
            return []
        if isinstance(made, Iterable) and not hasattr(made, "payload"):
            return list(made)
        return [made]


def types_of(types: str | Collection[str]) -> frozenset[str]:
    return frozenset([types]) if isinstance(types, str) else frozenset(types)


def output(made: Document, cause: Document, agent: str, number: int, replay: str) -> Document:
    """An agent's output as it is published: whose it is, what it belongs to, and an id that follows from its cause.

    An agent that is run again for the same artifact makes the same artifacts again, and not others like them.
    """
    if not isinstance(made, dict) or "payload" not in made:
        raise ArtifactError(f"agent '{agent}' made something that is no artifact: {made!r}")
    return {
        **made,
        "id": str(output_id(cause["id"], agent, number, replay)),
        "produced_by": made["produced_by"] or agent,
        "correlation_id": made["correlation_id"] or cause["correlation_id"],
    }


def output_id(cause: str, agent: str, number: int, replay: str = "") -> UUID:
    return uuid5(NAMESPACE_OID, f"forebay:{cause}:{agent}:{number}:{replay}")
