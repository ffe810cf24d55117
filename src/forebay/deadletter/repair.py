"""Repairs: what a letter's record is to hold when it is sent again.

A repair takes a Letter, whose value is whole, and gives the new value; None leaves the letter as it is, open.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.deadletter.letter import Letter
from forebay.errors import OptionValueError

Repair = Callable[[Letter], bytes | None]


class Digits(str):
    """A number as it was written. Not that of `formats`: commands that list letters do without what formats import."""

    __slots__ = ()


class RepairError(Exception):
    """This repair has nothing to give for this letter: why."""


def merge_patch(patch: str) -> Repair:
    """RFC 7386: fields of the patch replace those of the record, null removes one, objects are merged."""
    try:
        wanted = json.loads(patch)
    except ValueError as error:
        raise OptionValueError(
            f"the patch is not JSON: {error}", option="patch", remedy="for example: --patch '{\"price\": 0}'"
        ) from None

    return json_repair(lambda found: _merged(found, wanted))


def json_repair(change: Callable[[Any], Any], *, always: bool = True) -> Repair:
    """A change of the record as JSON. Numbers are `Digits`: what is not changed keeps its digits.

    Without `always`, a letter that it changes nothing of stays open.
    """

    def repair(letter: Letter) -> bytes | None:
        if letter.value is None:
            raise RepairError("the record has no value, and this needs JSON")
        try:
            found = json.loads(letter.value, parse_float=Digits, parse_int=Digits, object_pairs_hook=_unique)
            before, made = _dump(found), _dump(change(found))
        except (ValueError, RecursionError) as error:
            raise RepairError(
                f"it is not JSON ({error}): a function (--with) can repair what is not JSON"
            ) from None
        return made.encode() if always or made != before else None

    return repair


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it names a field twice, and which one is meant nobody knows")
    return found


def _dump(value: Any) -> str:
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_dump_text(name)}: {_dump(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_dump(item) for item in value) + "]"
    return _dump_text(value)


def _dump_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def function(name: str) -> Repair:
    """`module:function`, from the current folder or from anything that is installed."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise OptionValueError(
            f"'{name}' names no function", option="with", remedy="write --with module:function"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` has it; a console script has its own folder there instead
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise OptionValueError(
            f"module '{module}' cannot be imported: {error}", option="with", remedy="is it in this folder?"
        ) from None
    made = getattr(found, attribute, None)
    if not callable(made):
        raise OptionValueError(f"'{module}' has no function '{attribute}'", option="with")
    return checked(made)


def checked(repair: Callable[[Letter], Any]) -> Repair:
    """A function of the user's: what it raises is about one letter, and so is a result that is no bytes."""

    def run(letter: Letter) -> bytes | None:
        try:
            made = repair(letter)
        except Exception as error:
            raise RepairError(f"the repair failed: {type(error).__name__}: {error}") from error
        if made is not None and not isinstance(made, bytes | bytearray):
            raise RepairError(f"the repair gave {type(made).__name__}: it gives bytes, or None to leave it")
        return None if made is None else bytes(made)

    return run
