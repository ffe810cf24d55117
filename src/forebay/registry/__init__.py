"""A Confluent-compatible schema registry: which schema an id means, and which is a subject's newest."""

from forebay.registry.client import RegisteredSchema, Registry, Version, registry
from forebay.registry.settings import Origin, RegistrySettings, origin, subject_name

__all__ = [
    "Origin",
    "RegisteredSchema",
    "Registry",
    "RegistrySettings",
    "Version",
    "origin",
    "registry",
    "subject_name",
]
