"""An option table as keyword arguments: underscores for dots, a type for an editor, a line of help each.

`make docs` writes a `TypedDict` from a table (`pool/keywords.py`, `blackboard/keywords.py`), which is what type checkers
and editors read. `shown` gives `help()` and notebooks the same at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from forebay.options import Option, OptionTable

F = TypeVar("F", bound=Callable[..., Any])

CLIENT = "kafka"  # the keyword that takes the client library's own settings
CLIENT_TYPE = "Mapping[str, str | int | float | bool]"
CLIENT_HELP = "settings of the client library (librdkafka) itself, such as {'client.id': 'me'}"

_TYPES = {
    "boolean": "bool",
    "float": "float",
    "integer": "int",
    "list": "str | Sequence[str]",
    "numbers": "str | Sequence[int]",
    "size": "int | str",
}


def keyword(option: str) -> str:
    """How an option's name is written as a keyword."""
    return option.replace(".", "_")


def annotation(option: Option) -> str:
    """The type of an option's keyword, as it is written in code. None stands for "not given"."""
    kind = option.kind
    if kind.name == "choice":
        written = f"Literal[{', '.join(repr(str(word)) for word in kind.choices)}]"
    else:
        written = _TYPES.get(kind.name, "str")
    return written if option.required or option.default is not None else f"{written} | None"


def default(option: Option) -> Any:
    """What an option is when it is not given, as Python has it."""
    return None if option.default is None else option.kind.parse(option.default)


def help_line(option: Option) -> str:
    """What an option does, and what it is when it is not given."""
    more = [option.description]
    if option.required:
        more.append("required")
    elif option.default is not None:
        more.append(f"default {default(option)!r}")
    if option.env:
        more.append(f"from {option.env} if not given")
    return "; ".join(more)


def parameters(table: OptionTable, without: Collection[str] = ()) -> Iterator[tuple[str, str, str, Any]]:
    """Of each keyword: its name, its type, its help, its default."""
    for option in table.options:
        name = keyword(option.name)
        if name not in without:
            yield name, annotation(option), help_line(option), default(option)
    if table.pass_through is not None:
        yield CLIENT, f"{CLIENT_TYPE} | None", CLIENT_HELP, None


def shown(table: OptionTable, without: Collection[str] = (), **own: str) -> Callable[[F], F]:
    """Decorates an `__init__` that takes a table's options as `**keywords`.

    Its signature then names each of them, and its docstring has a line for each, but for those that it is `without`.
    `own` are lines for parameters that the function spells out itself.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        spelled = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = list(parameters(table, [*without, *(each.name for each in spelled)]))
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=written)
            for name, written, _, value in added
        ]
        function.__signature__ = signature.replace(parameters=[*spelled, *more])  # type: ignore[attr-defined]
        lines = [f"{name}: {about}" for name, about in own.items()]
        lines += [f"{name} ({written}): {about}" for name, written, about, _ in added]
        function.__doc__ = "Keyword arguments:\n\n" + "\n".join(lines)
        return function

    return decorate


def texts(table: OptionTable, given: Mapping[str, Any]) -> dict[str, str]:
    """Keywords, or a file's nested tables, as options with their texts. What is None was not given.

    `topic_by_id` and `{"topic": {"by_id": …}}` are both `topic.by_id`, for an option's own name may have an underscore;
    `kafka={"client.id": "me"}` is `kafka.client.id`, and its names are left as they are.
    """
    names = {keyword(option.name): option.name for option in table.options}
    found: dict[str, str] = {}
    for key, value in _flat(given, ""):
        if key.startswith(f"{CLIENT}_"):
            key = key.replace("_", ".")
        elif not key.startswith(f"{CLIENT}."):
            key = names.get(keyword(key), key)  # an unknown one is named in the error as it was written
        if isinstance(value, bool):
            found[key] = str(value).lower()
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            found[key] = ",".join(str(item) for item in value)
        elif value is not None:
            found[key] = str(value)
    return found


def _flat(given: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
