"""Values that must not be shown: which fields a source's `mask` names, and texts and rows without them.

A pattern is a name or a glob, `email` or `card*`: it names columns, fields at any depth, and headers. With dots it is a path,
`customer.email`, wherever that stands in the record. What lies below a field that is masked is masked. Case does not matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "•••"
"""What stands in the place of a value. The second of a text is `•••2`, and so on: an edit gives them back by that."""

_MARK = re.compile(re.escape(HIDDEN) + r"([0-9]*)")
_TOKEN = re.compile(r'[ \t\r\n]+|"(?:[^"\\\x00-\x1f]|\\.)*"|[{}\[\]:,]|[-+.0-9A-Za-z_]+')
_STRUCTURE = re.compile(r'[^{}\[\]:,"\s]+')
_LITERAL = re.compile(r"(?:true|false|null|NaN|-?Infinity|-?[0-9][-+.0-9eE]*)\Z")
# In this order: a number inside quotes is part of a text.
_PLACEHOLDERS: tuple[tuple[re.Pattern[str], str], ...] = (
    # As Python's repr writes them. Not the apostrophe of a word: a quote that opens stands behind no letter.
    (re.compile(r"""(?<![\w'"])(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL), "<text>"),
    (re.compile(r"(?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w)"), "<id>"),
    (
        re.compile(
            r"(?<!\w)\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?!\w)", re.ASCII
        ),
        "<time>",
    ),
    (re.compile(r"(?<!\w)0x[0-9a-fA-F]+(?!\w)"), "<id>"),
    (re.compile(r"(?<!\w)(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{16,}(?!\w)"), "<id>"),
    # Of `int64` and `FB1203` nothing: those are names.
    (re.compile(r"(?<![\w.])[+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?", re.ASCII), "<n>"),
)
_LONG_ENOUGH = 3  # a text of one or two characters would be found everywhere


@dataclass(frozen=True)
class Hidden:
    """A text with what is masked taken out of it."""

    text: str
    values: tuple[str, ...] = ()  # what was there, as it was written; for `restored`, and never to be shown
    whole: bool = True  # False: the text is broken from some place on, and only its structure is shown there
    _moves: tuple[tuple[int, int, int, int], ...] = field(default=(), repr=False)

    def place(self, at: int) -> int:
        """Where a character of the true text is in this one."""
        before = 0
        for low, high, start, end in self._moves:
            if at < low:
                break
            if at < high:
                return min(start + (at - low), end - 1)
            before = end - high
        return min(at + before, len(self.text))


@dataclass(frozen=True)
class Mask:
    """The patterns of a source. One without patterns hides nothing, and is false."""

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def names(self, name: str) -> bool:
        """Whether a column or a header of that name is masked."""
        return self.hides((name,))

    def hides(self, path: Sequence[str]) -> bool:
        """Whether the field is masked that these names lead to; places in lists are left out of a path."""
        found = [name.casefold() for name in path]
        return any(_matches(pattern.casefold(), found) for pattern in self.patterns)

    def hides_field(self, path: str | None) -> bool:
        """The same of a path as messages have it: `customer.cards[2].number`."""
        found = re.sub(r"\[[^\]]*\]", "", path or "").removeprefix("key.")
        return bool(found) and self.hides(found.split("."))

    def message(self, message: str, path: str | None) -> str:
        """A message about a record, without what it quotes of a masked field. `path` is the field that it is about."""
        # A fault that is in no field, such as a broken text, may quote anything.
        return placeholders(message) if self.patterns and (not path or self.hides_field(path)) else message

    def json_text(self, text: str) -> Hidden:
        """A JSON text without the values that are masked. It need not be right: what cannot be read is not shown."""
        return _Scan(text, self).hidden()

    def row(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """A row, or any value of dictionaries and lists, without what is masked."""
        if path and self.hides(path):
            return HIDDEN
        if isinstance(value, Mapping):
            return {name: self.row(item, (*path, str(name))) for name, item in value.items()}
        if isinstance(value, list | tuple):
            # A map comes from Arrow as a list of pairs.
            if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
                return [(name, self.row(item, (*path, str(name)))) for name, item in value]
            return [self.row(item, path) for item in value]
        return value

    def leaves(self, value: Any, path: tuple[str, ...] = (), hidden: bool = False) -> list[str]:
        """The texts of all values that are masked: what must not stand in a message either."""
        hidden = hidden or (bool(path) and self.hides(path))
        if isinstance(value, Mapping):
            return [
                leaf for name, item in value.items() for leaf in self.leaves(item, (*path, str(name)), hidden)
            ]
        if isinstance(value, list | tuple):
            return [leaf for item in value for leaf in self.leaves(item, path, hidden)]
        return [str(value)] if hidden and value is not None else []


NOTHING = Mask()


def placeholders(message: str) -> str:
    """A message with placeholders for what it quotes: texts, ids, times, numbers."""
    for pattern, placeholder in _PLACEHOLDERS:
        message = pattern.sub(placeholder, message)
    return message


def without(text: str, values: Sequence[str]) -> str:
    """A message without these values, wherever it quotes one."""
    for value in sorted(set(values), key=len, reverse=True):
        for form in {value, repr(value)[1:-1], json.dumps(value)[1:-1], value.replace("'", "\\'")}:
            if len(form) >= _LONG_ENOUGH:
                text = text.replace(form, HIDDEN)
            elif form:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)
    return text


def restored(edited: str, hidden: Hidden) -> str:
    """An edited JSON text, with the true values where the marks stand. ValueError for a mark that stands for nothing."""
    if HIDDEN not in edited:
        return edited
    if hidden.text.count(HIDDEN) != len(hidden.values):
        raise ValueError(f"which {HIDDEN} stands for which value cannot be known: write the values anew")
    parts: list[str] = []
    at = 0
    for token in _TOKEN.finditer(edited):
        mark = _MARK.fullmatch(token[0][1:-1]) if token[0].startswith('"') else None
        if mark is not None:
            parts += [edited[at : token.start()], _value(hidden, mark)]
            at = token.end()
    made = "".join(parts) + edited[at:]
    if HIDDEN in edited[at:] or any(HIDDEN in part for part in parts[::2]):
        raise ValueError(f"{HIDDEN} within a text stands for nothing: write the value anew")
    return made


def _value(hidden: Hidden, mark: re.Match[str]) -> str:
    number = int(mark[1] or 1)
    if not 1 <= number <= len(hidden.values):
        raise ValueError(f"{mark[0]} stands for nothing that the record has: write the value anew")
    return hidden.values[number - 1]


def _matches(pattern: str, path: Sequence[str]) -> bool:
    if any(fnmatchcase(name, pattern) for name in path):
        return True
    parts = pattern.split(".")
    return len(parts) > 1 and any(
        all(fnmatchcase(name, part) for name, part in zip(path[start:], parts, strict=False))
        for start in range(len(path) - len(parts) + 1)
    )


class _Scan:
    """Goes through a JSON text once, however deep it is, and as far as it is one."""

    def __init__(self, text: str, mask: Mask) -> None:
        self._text, self._mask = text, mask
        self._spans: list[tuple[int, int]] = []
        self._open: list[str] = []  # brackets
        self._path: list[str] = []
        self._since: tuple[int, int] | None = None  # where a masked value began, and at which depth
        self._broken: int | None = None
        self._scan()

    def _scan(self) -> None:
        wants = "value"  # or "name", "name or end", "value or end", "colon", "comma or end", "nothing"
        at = 1 if self._text.startswith("\ufeff") else 0
        while at < len(self._text):
            token = _TOKEN.match(self._text, at)
            if token is None:
                break
            if not token[0].isspace():
                following = self._step(token[0], wants, at, token.end())
                if following is None:
                    break
                wants = following
            at = token.end()
        if at < len(self._text) or wants != "nothing":
            self._broken = at if self._since is None else min(at, self._since[0])
            if self._since is not None:
                self._since = None

    def _step(self, word: str, wants: str, start: int, end: int) -> str | None:
        """What must come next; None if this must not come now."""
        if wants in ("name", "name or end") and word.startswith('"'):
            self._path.append(_name(word))
            return "colon"
        if word == ":" and wants == "colon":
            return "value"
        if word == "," and wants == "comma or end":
            return "name" if self._open[-1] == "{" else "value"
        if word in "}]" and wants in ("name or end", "value or end", "comma or end"):
            if (self._open[-1] == "{") != (word == "}"):
                return None
            self._open.pop()
            return self._ended(end)
        if wants not in ("value", "value or end"):
            return None
        if self._since is None and self._path and self._mask.hides(self._path):
            self._since = (start, len(self._open))
        if word in ("{", "["):
            self._open.append(word)
            return "name or end" if word == "{" else "value or end"
        if word.startswith('"') or _LITERAL.match(word):
            return self._ended(end)
        return None

    def _ended(self, end: int) -> str:
        """A value has ended here."""
        if self._since is not None and self._since[1] == len(self._open):
            self._spans.append((self._since[0], end))
            self._since = None
        if self._open and self._open[-1] == "{":
            self._path.pop()
        return "comma or end" if self._open else "nothing"

    def hidden(self) -> Hidden:
        upto = len(self._text) if self._broken is None else self._broken
        parts: list[str] = []
        values: list[str] = []
        moves: list[tuple[int, int, int, int]] = []
        at = length = 0
        for low, high in self._spans:
            values.append(self._text[low:high])
            mark = f'"{HIDDEN}{len(values) if len(values) > 1 else ""}"'
            parts += [self._text[at:low], mark]
            length += low - at
            moves.append((low, high, length, length + len(mark)))
            length += len(mark)
            at = high
        parts.append(self._text[at:upto])
        length += upto - at
        rest = _STRUCTURE.sub(HIDDEN, self._text[upto:])
        if upto < len(self._text):
            moves.append((upto, len(self._text), length, length + max(1, len(rest))))
        return Hidden("".join([*parts, rest]), tuple(values), self._broken is None, tuple(moves))


def _name(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]
