"""The machinery of the option table: declare an option once, and everything else follows from it.

A declaration feeds validation, DESCRIBE, the docs page, shell completion and the JSON schema. The
declarations themselves stand beside what they configure (`kafka/options.py`, `connectors/datagen.py`).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.errors import (
    DeniedOptionError,
    MissingOptionError,
    OptionConflictError,
    OptionValueError,
    SecretMissingError,
    UnknownOptionError,
)

MASK = "********"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class OptionKind:
    """How an option's text becomes a value; `expected` is the phrase an error message uses."""

    name: str
    parse: Callable[[str], Any]
    expected: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """One option, declared once."""

    name: str
    kind: OptionKind
    description: str
    default: str | None = None
    example: str = ""
    required: bool = False
    secret: bool = False
    env: str = ""
    since: str = "0.1.0"


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError
    return value


def _words(value: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in value.split(","))
    if not all(words):
        raise ValueError
    return words


def _boolean(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


_SIZES = {
    "": 1,
    "B": 1,
    "KB": 1 << 10,
    "KIB": 1 << 10,
    "MB": 1 << 20,
    "MIB": 1 << 20,
    "GB": 1 << 30,
    "GIB": 1 << 30,
}


def _size(value: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if not match:
        raise ValueError
    return int(match[1]) * _SIZES[match[2].upper()]


def _regex(value: str) -> str:
    re.compile(_text(value))
    return value


def _character(value: str) -> str:
    value = {"\\t": "\t"}.get(value, value)
    if len(value) != 1 or value in "\r\n":
        raise ValueError
    return value


def integer(low: int, high: int = 2**63 - 1) -> OptionKind:
    """A whole number in [low, high]."""

    def parse(text: str) -> int:
        value = int(text.strip())
        if not low <= value <= high:
            raise ValueError
        return value

    span = f"of at least {low}" if high == 2**63 - 1 else f"from {low} to {high}"
    return OptionKind("integer", parse, f"a whole number {span}")


def size(low: str, high: str) -> OptionKind:
    """Bytes in [low, high], with or without a unit."""

    def parse(text: str) -> int:
        value = _size(text)
        if not _size(low) <= value <= _size(high):
            raise ValueError
        return value

    return OptionKind("size", parse, f"a size from {low} to {high}, such as 1048576 or 64MB")


def fraction() -> OptionKind:
    """A number between 0 and 1."""

    def parse(text: str) -> float:
        value = float(text)
        if not 0.0 <= value <= 1.0:
            raise ValueError
        return value

    return OptionKind("float", parse, "a number from 0 to 1")


def choice(*choices: str) -> OptionKind:
    """One of a few words, whatever their case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise ValueError
        return word

    return OptionKind("choice", parse, "one of " + ", ".join(choices), choices)


_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def _duration(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s+([a-z]+?)s?\s*", text.lower())
    if not match or match[2] not in _SECONDS:
        raise ValueError
    return int(match[1]) * _SECONDS[match[2]]


TEXT = OptionKind("string", _text, "a text that is not empty")
ANY_TEXT = OptionKind("string", str, "a text")
WORDS = OptionKind("list", _words, "names, separated by commas")
BOOLEAN = OptionKind("boolean", _boolean, "true or false", ("true", "false"))
SIZE = OptionKind("size", _size, "a size such as 1048576, 512KB or 1MB")
DURATION = OptionKind("duration", _duration, "a length of time such as '7 days', '12 hours' or '30 minutes'")
REGEX = OptionKind("pattern", _regex, "a regular expression")
CHARACTER = OptionKind("character", _character, "one character")
CHARACTER_OR_NONE = OptionKind(
    "character", lambda text: _character(text) if text else text, "one character, or nothing"
)


@dataclass(frozen=True)
class PassThrough:
    """Keys with this prefix go to a client library as they are, except those that are denied."""

    prefix: str
    denied: Mapping[str, str]
    secret: re.Pattern[str]
    check: Callable[[str, str], str | None]


class Options(Mapping[str, Any]):
    """Bound options: every declared name is there, with its value or its default (or None)."""

    def __init__(self, table: OptionTable, given: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self.table = table
        self.given = dict(given)
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def passed_through(self) -> dict[str, str]:
        """The pass-through keys without their prefix."""
        prefix = self.table.pass_through.prefix if self.table.pass_through else None
        if prefix is None:
            return {}
        return {
            key[len(prefix) :]: dereference(key, text)
            for key, text in self.given.items()
            if key.startswith(prefix)
        }

    def __repr__(self) -> str:
        shown = {key: self.table.shown(key, text) for key, text in self.given.items()}
        return f"Options({shown})"


@dataclass(frozen=True)
class OptionTable:
    """All options of one kind of thing, and the rules between them."""

    title: str
    options: tuple[Option, ...]
    exclusive: tuple[tuple[str, ...], ...] = ()  # at most one of each group
    one_of: tuple[tuple[str, ...], ...] = ()  # at least one of each group
    pass_through: PassThrough | None = None
    rules: tuple[Callable[[Mapping[str, Any]], None], ...] = ()
    elsewhere: Callable[[str, Container[str]], str] | None = (
        None  # how a key of another system is written here
    )
    _by_name: dict[str, Option] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((option.name, option) for option in self.options)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Option | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        return [option.name for option in self.options]

    def is_secret(self, key: str) -> bool:
        option = self._by_name.get(key)
        if option:
            return option.secret
        rule = self.pass_through
        return bool(rule and key.startswith(rule.prefix) and rule.secret.search(key))

    def shown(self, key: str, text: str) -> str:
        """What may be shown of a value: a secret never, a reference to the environment always."""
        if not self.is_secret(key):
            return text
        match = _REFERENCE.fullmatch(text)
        if not match:
            return MASK
        return text if match[2] is None else f"${{{match[1]}:-{MASK}}}"

    def bind(self, given: Mapping[str, str]) -> Options:
        """Check every key and value; raise an OptionError that names the key at fault."""
        for key in given:
            self._check_known(key)
        values: dict[str, Any] = {}
        for option in self.options:
            text = given.get(option.name)
            if text is None and option.env:
                text = os.environ.get(option.env)
            if text is None:
                text = option.default
            values[option.name] = (
                None if text is None else self._parse(option, dereference(option.name, text))
            )
        self._check_groups(given, values)
        for rule in self.rules:
            rule(values)
        return Options(self, given, values)

    def _parse(self, option: Option, text: str) -> Any:
        if option.secret and text == MASK:
            raise SecretMissingError(f"the value of '{option.name}' is not kept", option=option.name)
        try:
            return option.kind.parse(text)
        except (ValueError, KeyError, re.error):
            shown = "that value" if option.secret else f"{text!r}"
            near = difflib.get_close_matches(text.strip().lower(), option.kind.choices, 1)
            remedy = (
                f"did you mean '{near[0]}'?" if near else f"for example: '{option.name}' = '{option.example}'"
            )
            raise OptionValueError(
                f"'{option.name}' cannot be {shown}: expected {option.kind.expected}",
                option=option.name,
                remedy=remedy if near or option.example else "",
            ) from None

    def _check_known(self, key: str) -> None:
        if key in self._by_name:
            return
        rule = self.pass_through
        foreign = self.elsewhere(key, self._by_name) if self.elsewhere else ""
        if not foreign and rule and key.startswith(rule.prefix):
            bare = key[len(rule.prefix) :]
            if bare in rule.denied:
                raise DeniedOptionError(f"'{key}' is not allowed: {rule.denied[bare]}", option=key)
            return
        raise UnknownOptionError(
            f"{self.title} has no option '{key}'",
            option=key,
            remedy=foreign or suggestion(key, self.names(), rule),
        )

    def _check_groups(self, given: Mapping[str, str], values: Mapping[str, Any]) -> None:
        for option in self.options:
            if option.required and values[option.name] is None:
                raise MissingOptionError(
                    f"'{option.name}' is missing: {option.description}",
                    option=option.name,
                    remedy=f"add '{option.name}' = '{option.example}'",
                )
        for group in self.exclusive:
            present = [name for name in given if name in group]
            if len(present) > 1:
                raise OptionConflictError(
                    f"'{present[1]}' and '{present[0]}' exclude each other",
                    option=present[1],
                    remedy="keep one of " + ", ".join(f"'{name}'" for name in group),
                )
        for group in self.one_of:
            if not any(values[name] is not None for name in group):
                listed = " or ".join(f"'{name}'" for name in group)
                raise MissingOptionError(
                    f"{listed} is missing: {self._by_name[group[0]].description}",
                    option=group[0],
                    remedy=f"add '{group[0]}' = '{self._by_name[group[0]].example}'",
                )
        rule = self.pass_through
        for key, text in given.items():
            if rule and key.startswith(rule.prefix):
                value = dereference(key, text)
                if self.is_secret(key) and value == MASK:
                    raise SecretMissingError(f"the value of '{key}' is not kept", option=key)
                problem = rule.check(key[len(rule.prefix) :], value)
                if problem:
                    raise DeniedOptionError(f"'{key}' is not allowed: {problem}", option=key)

    def json_schema(self) -> dict[str, Any]:
        """The table as a JSON schema, for editors."""
        types = {"integer": "integer", "float": "number", "boolean": "boolean"}
        properties: dict[str, Any] = {}
        for option in self.options:
            entry: dict[str, Any] = {
                "type": types.get(option.kind.name, "string"),
                "description": option.description,
            }
            if option.kind.choices and option.kind.name == "choice":
                entry["enum"] = list(option.kind.choices)
            if option.default is not None:
                entry["default"] = option.default
            properties[option.name] = entry
        return {
            "title": self.title,
            "type": "object",
            "properties": properties,
            "required": [option.name for option in self.options if option.required],
            "additionalProperties": False,
            **(
                {"patternProperties": {f"^{re.escape(self.pass_through.prefix)}": {"type": "string"}}}
                if self.pass_through
                else {}
            ),
        }


def suggestion(key: str, names: Iterable[str], rule: PassThrough | None = None) -> str:
    """The nearest names to a wrong one, as a question."""
    known = list(names)
    near = difflib.get_close_matches(key.replace("_", "."), known, 3, 0.6)
    if not near:
        near = [name for name in known if key.split(".")[-1] in name.split(".")][:3]
    if near:
        return "did you mean " + " or ".join(f"'{name}'" for name in near) + "?"
    if rule:
        return f"settings of the client library itself are written '{rule.prefix}{key}'"
    return "known options: " + ", ".join(known)


def dereference(key: str, text: str) -> str:
    """The value behind a `${NAME}`; any other text is the value itself."""
    match = _REFERENCE.fullmatch(text)
    if not match:
        return text
    value = os.environ.get(match[1], match[2])
    if value is None:
        raise OptionValueError(
            f"'{key}' refers to the environment variable {match[1]}, which is not set",
            option=key,
            remedy=f"export {match[1]}=…, or write '${{{match[1]}:-default}}'",
        )
    return value


def expand(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace `${NAME}` in a script, except where a quoted literal is nothing else.

    Such a literal is an option's value, resolved when the option is bound, so that a secret stays a
    reference wherever the statement is kept.
    """
    source = os.environ if environ is None else environ

    def replace(match: re.Match[str]) -> str:
        quoted = text[match.start() - 1 : match.start()] == "'" and text[match.end() : match.end() + 1] == "'"
        if quoted:
            return match[0]
        value: str | None = source.get(match[1], match[2])
        if value is None:
            line = text.count("\n", 0, match.start()) + 1
            raise OptionValueError(
                f"the environment variable {match[1]} is not set (line {line})",
                option=match[1],
                remedy=f"export {match[1]}=…, or write ${{{match[1]}:-default}}",
            )
        return value

    return _REFERENCE.sub(replace, text)
