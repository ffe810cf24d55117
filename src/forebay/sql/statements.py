"""What a parsed statement is to the rest of the system: plain frozen data.

Two statements are equal if they mean the same; where they stood (`position`) and how they were spelt
(`text`) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlglot import exp

from forebay.errors import Position
from forebay.sql.intervals import split_ms
from forebay.sql.text import identifier

if TYPE_CHECKING:
    import pyarrow as pa

Emit: TypeAlias = Literal["changes", "window_close"]
ObjectKind: TypeAlias = Literal["source", "view", "sink"]
ListKind: TypeAlias = Literal["sources", "views", "sinks", "queries"]


@dataclass(frozen=True)
class OptionValue:
    """An option's value as text; `position` covers `key = value`."""

    text: str
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class Watermark:
    """`delay_ms` is None for `WATERMARK FOR ts`: option `watermark.max.out.of.orderness.ms` decides.

    `text` is the expression in canonical form, as DESCRIBE shows it: `ts - INTERVAL '5' SECOND`.
    """

    column: str
    delay_ms: int | None
    text: str
    key: str | None = None  # of `PER KEY key`: each value of this column has a watermark of its own

    @property
    def shown(self) -> str:
        """All of it, in one line."""
        return f"{self.text} PER KEY {identifier(self.key)}" if self.key else self.text

    @classmethod
    def of(cls, column: str, delay_ms: int | None, key: str | None = None) -> Watermark:
        name = identifier(column)
        if not delay_ms:
            return cls(column, delay_ms, name, key)
        return cls(column, delay_ms, f"{name} - {interval_text(delay_ms)}", key)


def interval_text(milliseconds: int) -> str:
    """A length of time as SQL writes it."""
    amount, unit = split_ms(milliseconds)
    return f"INTERVAL '{amount}' {unit.upper()}"


@dataclass(frozen=True)
class LateClause:
    """For how long windows take rows after the watermark has passed them, and where rows go that are later still.

    At most one of `table` and `letters` is set; without one, late rows are only counted.
    """

    allowed_ms: int = 0
    table: str | None = None
    letters: bool = False

    @property
    def kept(self) -> bool:
        """Whether late rows go somewhere."""
        return self.letters or self.table is not None


@dataclass(frozen=True)
class OnError:
    """What becomes of a record that does not decode. Option keys are spelt with underscores."""

    strategy: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """`text` is the statement alone, `position` its first word within the whole `script`."""

    text: str = field(default="", compare=False)
    script: str = field(default="", compare=False, repr=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CreateSource(_Statement):
    """Without columns, the schema is for the registry to tell. Options hold all but the connector."""

    name: str
    columns: tuple[Column, ...]
    watermark: Watermark | None
    connector: str
    options: Mapping[str, OptionValue]
    on_error: OnError | None = None
    if_not_exists: bool = False
    or_replace: bool = False
    spelling: Literal["with", "from"] = "with"


@dataclass(frozen=True)
class AlterSource(_Statement):
    """`ALTER SOURCE t ON ERROR = …`: a new error policy for an existing source."""

    name: str
    on_error: OnError


@dataclass(frozen=True)
class SetSource(_Statement):
    """`ALTER SOURCE t SET (mask = 'email')`: other options for an existing source; an empty text takes one away."""

    name: str
    options: Mapping[str, OptionValue]


@dataclass(frozen=True)
class CreateView(_Statement):
    """Options are those of `forebay.views.options`."""

    name: str
    query: exp.Expression
    emit: Emit | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    if_not_exists: bool = False
    or_replace: bool = False
    late: LateClause = LateClause()


@dataclass(frozen=True)
class Drop(_Statement):
    kind: ObjectKind
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Show(_Statement):
    kind: ListKind


@dataclass(frozen=True)
class ShowCreate(_Statement):
    kind: Literal["source", "view"]
    name: str


@dataclass(frozen=True)
class Describe(_Statement):
    """`kind` is None where it was not said."""

    kind: Literal["source", "view"] | None
    name: str
    extended: bool = False


@dataclass(frozen=True)
class StartView(_Statement):
    name: str


@dataclass(frozen=True)
class StopView(_Statement):
    name: str


@dataclass(frozen=True)
class DetachView(_Statement):
    """`ALTER VIEW v DETACH`: it is stopped, and its sources' groups do not wait for it any more."""

    name: str


@dataclass(frozen=True)
class PauseSource(_Statement):
    """Nothing is fetched of it until it is resumed; the batches in flight are finished."""

    name: str


@dataclass(frozen=True)
class ResumeSource(_Statement):
    name: str


@dataclass(frozen=True)
class Select(_Statement):
    query: exp.Expression


@dataclass(frozen=True)
class Subscribe(_Statement):
    view: str


@dataclass(frozen=True)
class ReplayDeadLetters(_Statement):
    """`where` is a condition on the columns of `forebay_catalog.dead_letters`, `patch` a JSON merge patch."""

    source: str
    where: exp.Expression | None = None
    target: str | None = None
    patch: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class DiscardDeadLetters(_Statement):
    source: str
    where: exp.Expression | None = None
    reason: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class ReopenDeadLetters(_Statement):
    """Takes a DISCARD back."""

    source: str
    where: exp.Expression | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class RecoverDeadLetters(_Statement):
    """Letters of what the rate limit kept out."""

    source: str
    dry_run: bool = False


@dataclass(frozen=True)
class Explain(_Statement):
    statement: Select | CreateView | CreateSource


Statement: TypeAlias = (
    CreateSource
    | AlterSource
    | SetSource
    | CreateView
    | Drop
    | Show
    | ShowCreate
    | Describe
    | Explain
    | Select
    | Subscribe
    | StartView
    | StopView
    | DetachView
    | PauseSource
    | ResumeSource
    | ReplayDeadLetters
    | DiscardDeadLetters
    | ReopenDeadLetters
    | RecoverDeadLetters
)


def query_text(query: Any) -> str:
    """A query as the user wrote it, comments inside it included.

    sqlglot's own printing is not always the identity (`LISTAGG(x)` gains a delimiter, a two-unit
    interval loses its parentheses), so nothing that Spark runs or a catalog stores goes through it.
    """
    script, found = query.meta.get("script"), query.meta.get("span")
    if script is None or found is None:
        return str(query.sql(dialect="forebay", comments=False))
    return str(script[found[0] : found[1]]).rstrip()  # see `backticked` for a space at the end
