"""The columns a view's query puts out: their names, and aliases for those without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from forebay.sql.ast import EventWindow
from forebay.sql.rewrite import Edit, refuse
from forebay.sql.text import identifier
from forebay.sql.windows import Window, group_window, read_window

# Delta takes no column with one of these in its name.
_UNSAFE = frozenset(" ,;{}()\n\t=")
_GENERATORS = (exp.Explode, exp.Posexplode, exp.Inline, exp.JSONTable)
_GENERATOR_NAMES = frozenset(
    {"stack", "json_tuple", "inline_outer", "posexplode_outer", "explode_outer", "variant_explode"}
)


@dataclass(frozen=True)
class OutputColumn:
    """One column that comes out; a `*` is one whose name is None."""

    name: str | None
    expression: Any
    edit: Edit | None = None


def outputs(query: Any, select: Any) -> list[OutputColumn]:
    """All columns of a SELECT, in order, with names that Delta takes and no two alike."""
    window = group_window(query, select)
    found: list[OutputColumn] = []
    generated: list[int] = []
    for at, projection in enumerate(select.expressions):
        if isinstance(projection, exp.Aliases):
            found += [OutputColumn(alias.name, projection.this) for alias in projection.expressions]
            continue
        name, needs_alias = _given_name(query, projection, window)
        if name is None and not _is_star(projection):
            name, needs_alias = _made_name(query, projection) or f"_c{at}", True
            generated.append(len(found))
        expression = projection.this if isinstance(projection, exp.Alias) else projection
        found.append(
            OutputColumn(name, expression, _alias(projection, name) if needs_alias and name else None)
        )
    return _distinct(query, found, generated)


def bound_aliases(query: Any, select: Any) -> list[Edit]:
    """Aliases for `window_start` and TUMBLE_START(…) alone, so that they come out under these names."""
    window = group_window(query, select)
    edits = []
    for projection in select.expressions:
        if isinstance(projection, exp.Column | EventWindow):
            name, needs_alias = _given_name(query, projection, window)
            if needs_alias and name:
                edits.append(_alias(projection, name))
    return edits


def _is_star(projection: Any) -> bool:
    return isinstance(projection, exp.Star) or (
        isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)
    )


def _given_name(query: Any, projection: Any, window: Window | None) -> tuple[str | None, bool]:
    """The name an output has by itself, and whether it must be written out to be sure of it."""
    if _is_star(projection):
        return None, False
    if isinstance(projection, exp.Alias):
        if _UNSAFE & set(projection.alias):
            message = f"a Delta table has no column named '{projection.alias}'"
            raise refuse(query, message, projection.args["alias"], "use letters, digits and underscores")
        return str(projection.alias), False
    if isinstance(projection, exp.Column):
        bounds = window.bounds if window else {}
        return str(projection.name), not projection.table and projection.name.lower() in bounds
    if isinstance(projection, exp.Dot):
        return str(projection.name), True
    if isinstance(projection, EventWindow):
        call = read_window(query, projection)
        return (f"window_{call.part}" if call.part else call.function), True
    return None, False


def _made_name(query: Any, projection: Any) -> str | None:
    """`sum_amount` for SUM(amount), `count_all` for COUNT(*); None for all that is not as plain."""
    if isinstance(projection, _GENERATORS) or projection.name.lower() in _GENERATOR_NAMES:
        message = "a function that makes rows needs an alias in a view"
        raise refuse(query, message, projection, "write explode(x) AS item, or posexplode(x) AS (pos, item)")
    if not isinstance(projection, exp.Func) or "span" not in projection.meta:
        return None
    start = projection.meta["span"][0]
    called = query.meta["script"][start : projection.meta["span"][1]].partition("(")[0].strip().lower()
    words = [called]
    for child in projection.iter_expressions():
        inner = (
            child.expressions[0] if isinstance(child, exp.Distinct) and len(child.expressions) == 1 else child
        )
        if inner is not child:
            words.append("distinct")
        if isinstance(inner, exp.Star):
            words.append("all")
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier):
            words.append(inner.name)
        else:
            return None
    name = "_".join(words)
    return name if len(words) > 1 and name.isascii() and name.isidentifier() else None


def _alias(projection: Any, name: str) -> Edit:
    end = projection.meta["span"][1]
    return Edit(end, end, f" AS {identifier(name)}")


def _distinct(query: Any, found: list[OutputColumn], generated: list[int]) -> list[OutputColumn]:
    given = {out.name.lower() for at, out in enumerate(found) if out.name and at not in generated}
    taken: set[str] = set()
    result: list[OutputColumn] = []
    for at, out in enumerate(found):
        if out.name and at in generated and (out.name.lower() in given or out.name.lower() in taken):
            # A name of our own making gives way.
            out = OutputColumn(f"_c{at}", out.expression, _alias(out.expression, f"_c{at}"))
        if out.name and out.name.lower() in taken:
            raise refuse(
                query,
                f"two columns are named '{out.name}'",
                out.expression,
                "give one of them an alias: … AS other",
            )
        if out.name:
            taken.add(out.name.lower())
        result.append(out)
    return result
