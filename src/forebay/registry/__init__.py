"""A Confluent-compatible schema registry: which schema an id means, and which is a subject's newest."""

from forebay.registry.schemas import RegisteredSchema, Version
from forebay.registry.settings import Evolution, Origin, RegistrySettings, origin, subject_name
from forebay.registry.shared import newest, registry

__all__ = [
    "Evolution",
    "Origin",
    "RegisteredSchema",
    "RegistrySettings",
    "Version",
    "newest",
    "origin",
    "registry",
    "subject_name",
]
