"""FORMAT csv: one CSV record a message, columns by position."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from forebay.errors import OptionConflictError, OptionValueError
from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.contract import NO_MORE, Decoded
from forebay.formats.refusal import RefusedError, check_present, malformed, mismatch, shorten
from forebay.formats.text_fields import text_converter

_LONGEST_FIELD = 2**31 - 1


class CsvDecoder:
    """Strict CSV. Options: `csv.delimiter` (,), `csv.quote` ("), `csv.escape` (none), `csv.null` (empty),
    `csv.header` (false), `csv.comment` (none).

    A field equal to `csv.null` is NULL, quoted or not. Quoted fields may hold line breaks; a message
    that holds a second line is malformed, one line break at its end is not: of two records one could be
    good and the other bad, and a message is either. With `csv.header`, a message that names the columns,
    in their order and in whatever case, is skipped wherever it comes: each file that was sent line by line
    begins with one. A message whose first character is `csv.comment` is skipped.
    """

    native_options = NO_MORE

    def __init__(self, schema: pa.Schema, options: Mapping[str, str]) -> None:
        self.schema = readable(schema)
        self._made_from = (schema, dict(options))
        self._columns = [(field.name, text_converter(field), not field.nullable) for field in schema]
        self._dialect = _dialect(options)
        self._null = options.get("csv.null", "")
        self._comment = _comment(options, self._dialect)
        self._header = [_lower(field.name) for field in schema] if header_expected(options) else None
        # The limit belongs to the process and guards against stray quotes; a message has an end of its own.
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))

    def __reduce__(self) -> tuple[Any, ...]:
        return CsvDecoder, self._made_from

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decode_each(values, self.schema, self._record)

    def _record(self, payload: bytes | None) -> list[Any] | None:
        check_present(payload)
        assert payload is not None
        line = _one_line(payload)
        if self._comment and line[0] == self._comment:
            if "\n" in line or "\r" in line:
                raise malformed("more than one line")
            return None
        fields = self._split(line)
        if self._header is not None and self._is_header(fields):
            return None
        if len(fields) != len(self._columns):
            raise mismatch(f"expected {len(self._columns)} fields, found {len(fields)}")
        row: list[Any] = []
        name = ""
        try:
            for (name, convert, required), text in zip(self._columns, fields, strict=True):  # noqa: B007
                if text != self._null:
                    row.append(convert(text))
                elif required:
                    raise mismatch("NOT NULL, but the field is null")
                else:
                    row.append(None)
        except RefusedError as refused:
            refused.enter(f".{name}")
            raise
        return row

    def _is_header(self, fields: list[str]) -> bool:
        found = [_lower(text) for text in fields]
        if found == self._header:
            return True
        assert self._header is not None
        if sorted(found) == sorted(self._header):
            # As a record it would be good wherever the columns are text.
            raise mismatch(
                f"the header line names the columns in another order: {shorten(', '.join(fields))}"
            )
        return False

    def _split(self, line: str) -> list[str]:
        try:
            return next(csv.reader([line], self._dialect))
        except csv.Error as error:
            several = "new-line character" in str(error)
            raise malformed("more than one line" if several else f"not CSV: {error}") from None


def _one_line(payload: bytes) -> str:
    """The payload as text, without the line break at its end."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"invalid UTF-8 at byte {error.start}") from None
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text.removesuffix("\r")
    if not text:
        raise malformed("the payload is an empty line")
    if text.endswith(("\n", "\r")):  # the reader would eat any number of them
        raise malformed("more than one line")
    return text


def _lower(text: str) -> bytes:
    """As the native decoder compares names: case does not count in ASCII."""
    return text.encode().lower()


def header_expected(options: Mapping[str, str]) -> bool:
    return options.get("csv.header", "false").lower() == "true"


def _comment(options: Mapping[str, str], dialect: Any) -> str:
    comment = _character(options, "csv.comment", "", optional=True)
    if comment and comment in (dialect.delimiter, dialect.quotechar, dialect.escapechar):
        raise OptionConflictError(
            "'csv.comment' cannot be the delimiter, the quote or the escape character", option="csv.comment"
        )
    return comment


def _dialect(options: Mapping[str, str]) -> Any:
    delimiter = _character(options, "csv.delimiter", ",")
    quote = _character(options, "csv.quote", '"', optional=True)
    escape = _character(options, "csv.escape", "", optional=True)
    if escape == quote:  # how some tools say "a quote is doubled", which always holds
        escape = ""
    if delimiter in (quote, escape):
        raise OptionConflictError(
            "'csv.delimiter' cannot be the quote or the escape character", option="csv.delimiter"
        )

    # A reader's own dialect object is ready made: each record's reader takes it as it is.
    return csv.reader(
        [],
        delimiter=delimiter,
        quotechar=quote or None,
        escapechar=escape or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        doublequote=True,
        strict=True,
    ).dialect


def _character(options: Mapping[str, str], option: str, default: str, *, optional: bool = False) -> str:
    value = options.get(option, default)
    value = "\t" if value == "\\t" else value
    if (optional and not value) or (len(value) == 1 and value not in "\r\n"):
        return value
    raise OptionValueError(f"'{option}' is one character, not {value!r}", option=option)
