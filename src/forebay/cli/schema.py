"""`forebay schema`: what a schema registry holds, what changed, and whether a new schema would be taken."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.brokers import registry
from forebay.cli.output import OUTPUT_OPTION, OutputFormat, show_items, words
from forebay.errors import OptionValueError, StatementError, UnknownObjectError
from forebay.registry import RegisteredSchema, Version

if TYPE_CHECKING:
    from forebay.formats.schema_diff import Change
    from forebay.registry.client import RegistryClient

schema_app = typer.Typer(
    name="schema",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look into a schema registry: subjects, versions, what changed, what would be taken.\n\n"
    "The address is [bold]--url[/], SCHEMA_REGISTRY_URL, or that of the running dev stack. Credentials are taken from the environment only: "
    "SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_PASSWORD, or SCHEMA_REGISTRY_TOKEN; for TLS "
    "SCHEMA_REGISTRY_SSL_CA_LOCATION, _CERTIFICATE_LOCATION, _KEY_LOCATION and _KEY_PASSWORD.",
)
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="SCHEMA_REGISTRY_URL", help="the registry's address", show_default=False),
]
Subject = Annotated[str, typer.Argument(help="a subject, such as orders-value")]
_SUFFIXES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@dataclass(frozen=True)
class Listed:
    """A subject, as `ls` shows it."""

    subject: str
    versions: int
    newest: int
    id: int
    type: str
    compatibility: str


@schema_app.command()
def ls(
    match: Annotated[str, typer.Argument(help="only subjects that contain this text")] = "",
    url: Url = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
) -> None:
    """List the subjects, each with its newest version.

    Example: forebay schema ls orders -o json
    """
    here = registry(url)
    found = []
    for subject in here.subjects():
        if match in subject:
            newest = here.version(subject)
            found.append(
                Listed(
                    subject,
                    len(here.versions(subject)),
                    newest.version,
                    newest.schema.id,
                    newest.schema.type,
                    here.compatibility(subject),
                )
            )
    show_items(Listed, found, output)


@schema_app.command()
def show(
    subject: Annotated[str, typer.Argument(help="a subject, such as orders-value, or the id of a schema")],
    version: Annotated[int | None, typer.Option("--version", "-n", help="the newest if not given")] = None,
    url: Url = None,
) -> None:
    """Print a schema; what it is and refers to is said on stderr.

    Examples: forebay schema show orders-value --version 2  ·  forebay schema show 17
    """
    here = registry(url)
    if subject.isdigit() and subject not in here.subjects():
        schema, what = here.schema(int(subject)), f"schema id {subject}"
    else:
        found = _version(here, subject, version)
        schema, what = found.schema, f"{subject} version {found.version}, id {found.schema.id}"
    names = [name for name, _ in schema.references]
    refers = f", refers to {', '.join(names)}" if names else ""
    words.print(f"{what}, {schema.type}{refers}", markup=False, highlight=False)
    print(_pretty(schema))


@schema_app.command()
def diff(
    subject: Subject,
    old: Annotated[
        int | None, typer.Argument(help="a version; the one before the other if not given")
    ] = None,
    new: Annotated[int | None, typer.Argument(help="a version; the newest if not given")] = None,
    url: Url = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
) -> None:
    """What changed from one version of a subject to another, field by field.

    Examples: forebay schema diff orders-value  ·  forebay schema diff orders-value 1 3
    """
    here = registry(url)
    after = _version(here, subject, new)
    if old is None:
        earlier = [number for number in here.versions(subject) if number < after.version]
        if not earlier:
            words.print(f"{subject} has no version before {after.version}", markup=False, highlight=False)
            return
        old = earlier[-1]
    _show_changes(_version(here, subject, old).schema, after.schema, output)


@schema_app.command()
def check(
    subject: Subject,
    file: Annotated[Path, typer.Argument(help="the new schema: .avsc, .proto or .json (a JSON schema)")],
    url: Url = None,
    output: Annotated[OutputFormat, OUTPUT_OPTION] = OutputFormat.TABLE,
) -> None:
    """Whether a schema would be taken as the subject's next version, and what it changes. Registers nothing.

    Ends with 1 if the registry would refuse it.

    Example: forebay schema check orders-value order.avsc
    """
    here = registry(url)
    schema = _from_file(file)
    try:
        newest = here.version(subject)
    except UnknownObjectError:
        words.print(f"{subject} does not exist: any schema would be its first", markup=False, highlight=False)
        return
    _show_changes(newest.schema, schema, output)
    rule = here.compatibility(subject)
    if here.accepts(subject, schema):
        words.print(f"it would be taken ({rule})", markup=False, highlight=False)
        return
    words.print(f"it would be refused: the rule of {subject} is {rule}", markup=False, highlight=False)
    raise typer.Exit(1)


def _version(here: RegistryClient, subject: str, number: int | None) -> Version:
    try:
        return here.version(subject, number)
    except UnknownObjectError:
        subjects = here.subjects()
        if subject in subjects:
            versions = ", ".join(map(str, here.versions(subject)))
            raise UnknownObjectError(
                f"'{subject}' has no version {number}", remedy=f"it has {versions}"
            ) from None
        near = difflib.get_close_matches(subject, subjects, 3, 0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "forebay schema ls lists them"
        raise UnknownObjectError(f"there is no subject '{subject}'", remedy=remedy) from None


def _from_file(file: Path) -> RegisteredSchema:
    if file.suffix not in _SUFFIXES:
        raise OptionValueError(f"{file}: what is it?", remedy="name it .avsc, .proto or .json")
    try:
        return RegisteredSchema(0, _SUFFIXES[file.suffix], file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionValueError(f"{file} cannot be read: {error}") from None


def _show_changes(old: RegisteredSchema, new: RegisteredSchema, output: OutputFormat) -> None:
    from forebay.formats.schema_diff import Change

    found = _changes(old, new)
    if found is not None:
        show_items(Change, found, output)
    else:
        lines = difflib.unified_diff(
            _pretty(old).splitlines(), _pretty(new).splitlines(), "before", "after", lineterm=""
        )
        print("\n".join(lines))


def _changes(old: RegisteredSchema, new: RegisteredSchema) -> list[Change] | None:
    """None where a schema is not one that we can take apart: then its text must do."""
    if (old.type, new.type) != ("AVRO", "AVRO"):
        return None
    from forebay.formats.avro_diff import changes
    from forebay.formats.avro_schema import parse

    try:
        # A new schema from a file may use what the old one refers to.
        references = [text for _, text in old.references]
        return changes(
            parse(old.text, references), parse(new.text, [t for _, t in new.references] or references)
        )
    except StatementError:
        return None


def _pretty(schema: RegisteredSchema) -> str:
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text
