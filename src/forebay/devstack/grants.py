"""ACLs of the embedded broker, by the words of Kafka's own `kafka-acls`, which the stack does not have.

So the line that an error names can be tried as it is.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import NoReturn

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from forebay.errors import OptionValueError, StackError
from forebay.kafka.settings import CLIENT_LOG

TIMEOUT_S = 30.0
_EXAMPLE = "--add --allow-principal User:forebay --operation Read --topic orders"
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_CLUSTER = "kafka-cluster"  # what the cluster is called as a resource


class Grants:
    """As the user whose settings are given."""

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        self._client = {"bootstrap.servers": servers, **settings}

    def run(self, line: str | Sequence[str]) -> list[str]:
        """Do what the line says; returns the ACLs that were added, removed or found, as such lines."""
        words = shlex.split(line) if isinstance(line, str) else list(line)
        asked = _parser().parse_args(words[1:] if words[:1] == ["kafka-acls"] else words)
        admin = AdminClient(self._client, logger=CLIENT_LOG)
        try:
            if asked.list:
                filters = [_filter(each) for each in _bindings(asked)] or [_everything()]
                found = [admin.describe_acls(each).result(TIMEOUT_S) for each in filters]
                return [_line(each) for some in found for each in some]
            bindings = _bindings(asked)
            if not bindings:
                raise OptionValueError("which ACLs?", option="acls", remedy=f"for example: {_EXAMPLE}")
            if asked.add:
                for future in admin.create_acls(bindings).values():
                    future.result(TIMEOUT_S)
            else:
                for future in admin.delete_acls([_filter(each) for each in bindings]).values():
                    future.result(TIMEOUT_S)
        except KafkaException as error:
            raise StackError(f"the broker does not take these ACLs: {error.args[0].str()}") from None
        return [_line(each) for each in bindings]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionValueError(
            f"no line of kafka-acls: {message}", option="acls", remedy=f"for example: {_EXAMPLE}"
        )


def _parser() -> _Parser:
    parser = _Parser(prog="kafka-acls", add_help=False, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    for verb in ("--add", "--remove", "--list"):
        what.add_argument(verb, action="store_true")
    for words in ("--allow-principal", "--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(words, action="append", default=[])
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--resource-pattern-type", choices=("literal", "prefixed"), default="literal")
    for ignored in ("--bootstrap-server", "--command-config"):  # the stack knows where it is
        parser.add_argument(ignored)
    parser.add_argument("--force", action="store_true")
    return parser


def _bindings(asked: argparse.Namespace) -> list[AclBinding]:
    resources = [(kind, name) for key, kind in _TYPES.items() for name in getattr(asked, key)]
    if asked.cluster:
        resources.append((ResourceType.BROKER, _CLUSTER))
    pattern = ResourcePatternType[asked.resource_pattern_type.upper()]
    return [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL if kind is ResourceType.BROKER else pattern,
            principal,
            "*",
            _operation(word),
            AclPermissionType.ALLOW,
        )
        for kind, name in resources
        for principal in asked.allow_principal
        for word in asked.operation
    ]


def _operation(word: str) -> AclOperation:
    for each in AclOperation:
        if each.name.replace("_", "").lower() == word.lower():
            return each
    raise OptionValueError(
        f"there is no operation '{word}'", option="acls", remedy=f"for example: {_EXAMPLE}"
    )


def _filter(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation,
        acl.permission_type,
    )  # fmt: skip


def _everything() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )


def _line(acl: AclBinding) -> str:
    words = [f"--allow-principal {shlex.quote(acl.principal)}", f"--operation {_camel(acl.operation.name)}"]
    if acl.restype is ResourceType.BROKER:
        words.append("--cluster")
    else:
        flag = next(key for key, kind in _TYPES.items() if kind is acl.restype).replace("_", "-")
        words.append(f"--{flag} {shlex.quote(acl.name)}")
    if acl.resource_pattern_type is ResourcePatternType.PREFIXED:
        words.append("--resource-pattern-type prefixed")
    return " ".join(words)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
