"""What a registry holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema with all that it refers to: (name, text), each after those that it uses itself."""

    id: int
    type: str  # AVRO, JSON, PROTOBUF
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    schema: RegisteredSchema
