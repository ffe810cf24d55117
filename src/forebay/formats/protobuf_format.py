"""FORMAT protobuf: one message a record, bare or in a schema registry's framing.

The plain decoder: protobuf's own runtime parses a record whole (`protobuf_wire.py`), so that bytes which are
no message are malformed whatever else is wrong with them; then the columns are filled (`protobuf_values.py`).
An empty payload is a message: one with all its fields at their defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from forebay.errors import UnsupportedSqlError
from forebay.formats.arrow_batches import decode_each, readable
from forebay.formats.contract import Decoded, NativeLesson, RefusalKind
from forebay.formats.protobuf_explain import explain
from forebay.formats.protobuf_files import FilesError, add_files
from forebay.formats.protobuf_framing import Framed, unframe
from forebay.formats.protobuf_plan import ProtobufPlan, compile_plan
from forebay.formats.protobuf_schema import MESSAGE, find_message, given_files, message_at
from forebay.formats.protobuf_values import row_reader
from forebay.formats.protobuf_wire import message_class
from forebay.formats.refusal import RefusedError, malformed, mismatch

Resolve = Callable[[int], bytes]
"""From a registry's schema id to a FileDescriptorSet, the schema's own file last; LookupError if there is none.

A RefusedError is passed on as it is. It is asked once for each id and each decoder, and pickled with it.
"""


Met = Callable[[int, str, str], None]
"""Hears of each schema id that is met, of the message's name there, and of why it does not fit, if it does not.

What it raises ends the task.
"""


ReadPayload = Callable[[bytes], list[Any]]
_Key = tuple[int, tuple[int, ...]]  # a schema's id, and the way to a message in it


class ProtobufDecoder:
    """Fields by their exact names. What the message has beyond the columns is read over.

    With `resolve`, records begin with a registry's header, and each schema id and message has a plan of its
    own; without it, the schema is the one that the options name.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: Mapping[str, str],
        resolve: Resolve | None = None,
        met: Met | None = None,
    ) -> None:
        self.schema = readable(schema)
        self._made_from = (schema, dict(options), resolve, met)
        self._columns = schema
        self._resolve = resolve
        self._met = met
        self._wanted = options.get(MESSAGE)
        self._plans: dict[_Key, ProtobufPlan | RefusedError] = {}
        self._readers: dict[_Key, ReadPayload] = {}
        self._plan: ProtobufPlan | None = None
        if resolve is None:
            message = find_message(given_files(options), options)
            self._plan = compile_plan(message, schema, complete=True)
            self._read = _reader(self._plan, len(schema))

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufDecoder, self._made_from

    @property
    def native_options(self) -> dict[str, str]:
        return {"framed": "true"} if self._plan is None else {"protobuf.plan": _text(self._plan)}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._resolve is None:
            return decode_each(values, self.schema, self._record)
        for value in values:
            self._meet(value)  # here, where a registry that does not let us in is an error and no bad record
        return decode_each(values, self.schema, self._framed)

    def lesson(self, header: bytes) -> NativeLesson:
        try:
            plan = self._plan_of(unframe(header))
        except RefusedError as refused:
            plan = refused
        if isinstance(plan, RefusedError):
            return NativeLesson(None, plan.kind, plan.message)
        return NativeLesson(_text(plan))

    def _meet(self, payload: bytes | None) -> None:
        try:
            self._plan_of(unframe(_present(payload)))
        except RefusedError:
            return  # and again when it is the record's turn

    def _record(self, payload: bytes | None) -> list[Any]:
        return self._read(_present(payload))

    def _framed(self, payload: bytes | None) -> list[Any]:
        present = _present(payload)
        header = unframe(present)
        key = (header.schema_id, header.indexes)
        if key not in self._readers:
            plan = self._plan_of(header)
            if isinstance(plan, RefusedError):
                raise RefusedError(plan.kind, plan.reason)
            self._readers[key] = _reader(plan, len(self._columns))
        return self._readers[key](present[header.start :])

    def _plan_of(self, header: Framed) -> ProtobufPlan | RefusedError:
        """A refusal that holds for every record with this header is kept, too."""
        key = (header.schema_id, header.indexes)
        if key not in self._plans:
            self._plans[key] = self._made_plan(header)
        return self._plans[key]

    def _made_plan(self, header: Framed) -> ProtobufPlan | RefusedError:
        assert self._resolve is not None
        try:
            files = self._resolve(header.schema_id)
        except LookupError:
            # Not kept: the registry may learn of it.
            raise RefusedError(
                RefusalKind.UNKNOWN_SCHEMA_ID, f"the registry has no schema {header.schema_id}"
            ) from None
        name = f"the schema {header.schema_id}"
        try:
            message = message_at(add_files(files), header.indexes)
            if message is None:
                return malformed(f"{name} has no message at {list(header.indexes)}")
            self._check_wanted(message)
            plan = self._compiled(header.schema_id, message)
            if self._met is not None:
                self._met(header.schema_id, message.full_name, "")
            return plan
        except FilesError as error:
            return mismatch(f"{name} cannot be loaded: {error}")
        except UnsupportedSqlError as error:
            return mismatch(f"{name}: {error.message}")
        except RefusedError as refused:
            return refused

    def _compiled(self, schema_id: int, message: Descriptor) -> ProtobufPlan:
        try:
            return compile_plan(message, self._columns, complete=False)
        except UnsupportedSqlError as error:
            if self._met is not None:
                self._met(schema_id, message.full_name, error.message)
            raise

    def _check_wanted(self, message: Descriptor) -> None:
        if self._wanted and not f".{message.full_name}".endswith(f".{self._wanted}"):
            raise mismatch(
                f"a record of the message {message.full_name}, and the source reads {self._wanted}"
            )


def _present(payload: bytes | None) -> bytes:
    if payload is None:
        raise malformed("the payload is null (a tombstone)")
    return payload


def _text(plan: ProtobufPlan) -> str:
    """As the native decoder is given it."""
    return json.dumps(plan, ensure_ascii=False, separators=(",", ":"))


def _reader(plan: ProtobufPlan, columns: int) -> ReadPayload:
    parse: Callable[[bytes], Any] = message_class(plan).FromString
    to_row = row_reader(plan, columns)

    def read(payload: bytes) -> list[Any]:
        try:
            message = parse(payload)
        except DecodeError:
            raise explain(plan, payload) from None
        return to_row(message)

    return read
