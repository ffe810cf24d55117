"""The embedded stack: a real Kafka broker and a real schema registry, without Docker.

Reading order: `stack` (the context manager), `broker` and `registry` (one JVM each), `process` and
`watch` (how a JVM starts, stops, and does not outlive its owner), `download` (where the jars come
from), `daemon` and `state` (`forebay dev up`).
"""

from __future__ import annotations

from forebay.devstack.stack import DevStack

__all__ = ["DevStack"]
