"""A Confluent-compatible schema registry: which schema an id means, and which is a subject's newest."""

from forebay.registry.client import RegisteredSchema, Registry, Version, newest, registry
from forebay.registry.settings import Evolution, Origin, RegistrySettings, origin, subject_name

__all__ = [
    "Evolution",
    "Origin",
    "RegisteredSchema",
    "Registry",
    "RegistrySettings",
    "Version",
    "newest",
    "origin",
    "registry",
    "subject_name",
]
