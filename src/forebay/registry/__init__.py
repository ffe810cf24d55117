"""A Confluent-compatible schema registry: which schema an id means, and which is a subject's newest."""

from forebay.registry.schemas import RegisteredSchema, Version
from forebay.registry.settings import Origin, RegistrySettings, origin, subject_name
from forebay.registry.shared import registry

__all__ = [
    "Origin",
    "RegisteredSchema",
    "RegistrySettings",
    "Version",
    "origin",
    "registry",
    "subject_name",
]
