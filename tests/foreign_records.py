"""Records that anybody may have written to a blackboard's topics, and that do not belong there."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

ID = str(UUID(int=7))
KINDS = ("by_id", "processed", "consumptions", "agents", "artifacts")
_ARTIFACT = {
    "id": ID, "type": "Order", "payload": {"n": 1}, "produced_by": "shop", "correlation_id": "c", "partition_key": "p",
    "tags": ["a"], "visibility": {"kind": "Public"}, "created_at": "2026-01-01T00:00:00+00:00", "version": 1,
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "by_id": _ARTIFACT,
    "artifacts": _ARTIFACT,
    "processed": {
        "at_ms": 1, "topic": "t", "partition": 0, "offset": 1, "result": "done", "outputs": [ID],
    },
    "consumptions": {
        "artifact_id": ID, "consumer": "web", "run_id": "r", "correlation_id": "c",
        "consumed_at": "2026-01-01T00:00:00+00:00",
    },
    "agents": {
        "agent_name": "web", "description": "answers", "subscriptions": ["Order"], "output_types": ["Reply"],
        "labels": ["l"], "first_seen": "2026-01-01T00:00:00+00:00", "last_seen": "2026-01-01T00:00:00+00:00",
        "signature": "s",
    },
}  # fmt: skip
KEYS = {
    "by_id": ID.encode(),
    "artifacts": b"p",
    "processed": f"{ID}:web".encode(),
    "consumptions": f"{ID}:web:r".encode(),
    "agents": b"web",
}
DEEP = b"[" * 100_000 + b"]" * 100_000


def good(kind: str) -> bytes:
    return json.dumps(GOOD[kind]).encode()


def foreign(kind: str) -> dict[str, bytes]:
    """By name, what must be refused."""
    like = GOOD[kind]
    found = {
        "not JSON": b"{",
        "nothing": b"",
        "not UTF-8": b'{"\xff": 1}',
        "UTF-16": json.dumps(like).encode("utf-16"),
        "a surrogate in bytes": json.dumps(like).replace("}", ', "x": "').encode() + b'\xed\xa0\x80"}',
        "null": b"null",
        "a number": b"1",
        "a list": b"[1]",
        "no fields": b"{}",
        "an unknown field": json.dumps({**like, "surprise": 1}).encode(),
        "a lone list of 100,000 levels": DEEP,
        "NaN": json.dumps({**like, "surprise": float("nan")}).encode(),
    }
    for name, value in like.items():
        wrong: dict[str, Any] = {"a list of lists": [[]], "an object": {"x": {}}, "true": True}
        if name not in ("correlation_id", "partition_key", "run_id", "description"):
            wrong["null"] = None
        if isinstance(value, dict):
            del wrong["an object"]
        if isinstance(value, str):
            wrong |= {"half of a surrogate pair": value + "\ud800", "a number": 5}
        for what, put in wrong.items():
            found[f"{name}: {what}"] = json.dumps({**like, name: put}).encode()
        deep = json.dumps({**like, name: "HERE"}).encode().replace(b'"HERE"', DEEP)
        found[f"{name}: 100,000 levels"] = deep
    if kind in ("by_id", "artifacts"):
        for what, put in {"null": None, "an object": {}, "a list": ["Order"], "half": "\ud800"}.items():
            found[f"canonical_type: {what}"] = json.dumps({**like, "canonical_type": put}).encode()
        for name, put in {
            "id": "no UUID", "created_at": "today", "visibility": {"kind": ["x"]}, "tags": ["\udc00"],
            "payload": {"x": {"y": ["\ud800"]}},
        }.items():  # fmt: skip
            found[f"{name}: {put!r}"] = json.dumps({**like, name: put}).encode()
        nested: Any = {}
        for _ in range(300):
            nested = {"x": nested}
        found["payload: 300 levels"] = json.dumps({**like, "payload": nested}).encode()
    return found
