"""Where Protobuf's schemas come from when records name them by a registry's ids."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.errors import RecordError
from forebay.formats.contract import Kind
from forebay.formats.protobuf_schema import registered_files
from forebay.formats.refusal import RefusedError, mismatch
from forebay.registry import Origin, registry


@dataclass(frozen=True)
class RegisteredFiles:
    """From a schema id to its FileDescriptorSet. Pickles. AuthError if the registry does not let us in."""

    origin: Origin

    def __call__(self, number: int) -> bytes:
        try:
            schema = registry(self.origin.settings).schema(number)
        except RecordError as error:
            raise RefusedError(Kind(error.kind), error.message) from None
        if schema.type != "PROTOBUF":
            raise mismatch(
                f"the schema {number} is of type {schema.type}, and the source's format is protobuf"
            )
        try:
            return registered_files(schema.text, dict(schema.references))
        except ValueError as error:
            raise mismatch(f"the schema {number} cannot be loaded: {error}") from None
